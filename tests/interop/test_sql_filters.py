"""SQL92 filters: stock's consumers get from our broker what they get from stock's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import OURS, Cluster, make_broker
from tests.support.jars import STOCK_VERSIONS
from tests.support.java_client import JavaClients, JavaError, Json, PullConsumer
from tests.support.ports import BrokerPorts
from tests.support.wait import wait_until

NEWEST = STOCK_VERSIONS[-1]
ENABLED = {"enablePropertyFilter": "true"}

#: Properties of the messages; a message's body is its number.
MESSAGES: list[Json] = [
    {},
    *({"a": value} for value in ("1", "5", "10", "-3", "2147483648", "abc", "1.5", "NaN", " 5")),
    {"a": "7", "b": "x"},
    {"a": "7", "b": "it's"},
    {"a": "8", "b": "7"},
    {"b": "x", "c": "true"},
    {"b": "axb", "c": "FALSE"},
    {"a": "Ünï 😀", "b": "y"},
]
EXPRESSIONS = [
    "a > 5",
    "a <= 5 OR b = 'x'",
    "a BETWEEN 5 AND 10",
    "a NOT BETWEEN 5 AND 10",
    "a IN ('5', '7', 'abc')",
    "a NOT IN ('5', '7', 'abc')",
    "a IS NULL",
    "a IS NOT NULL AND b IS NULL",
    "NOT (a = 7)",
    "a <> 7",
    "a > b",
    "a = 1.5 OR a = 10.0",
    "a > 1.4",
    "a > 2147483647",
    "a > 2147483648",
    "c = TRUE",
    "c = FALSE OR b = 'it''s'",
    "a = 'Ünï 😀'",
    "(a = 7 AND b = 'x') OR (a IS NULL AND c = TRUE)",
    "a > -4",
    "TRUE",
    "NULL",
]
#: Stock has these since 5.0.
NEWER_EXPRESSIONS = [
    "b CONTAINS 'x'",
    "b NOT CONTAINS 'x'",
    "b STARTSWITH 'a' OR a STARTSWITH 'Ü'",
    "b NOT ENDSWITH 'b'",
]
WRONG = [("a >", 4), ("a BETWEEN 10 AND 1", 11), ("a = NULL", 5), ("a && b", 3)]


@pytest.fixture(scope="module")
def filtering(servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A name server with our broker and one of each stock version, which all filter by SQL92."""
    home = tmp_path_factory.mktemp("filtering")
    with Cluster.of(
        home,
        name_servers=[servers],
        brokers=[servers, *STOCK_VERSIONS],
        settings=ENABLED,
    ) as started:
        yield started


@pytest.fixture
def topics(filtering: Cluster, java: JavaClients, names) -> list[str]:
    """A topic on each broker, with one queue that has all messages: ours, 4.9.7's and 5.3.3's."""
    topics = []
    with java.producer(filtering.namesrv) as producer:
        for broker in filtering.brokers:
            topic = filtering.create_topic(java, names.topic, queues=1, brokers=[broker])
            producer.send(
                *(
                    {"topic": topic, "body": str(number), "properties": properties}
                    for number, properties in enumerate(MESSAGES)
                )
            )
            topics.append(topic)
    return topics


def wait_readable(puller: PullConsumer, topics: list[str]) -> None:
    """Stock fills its queues behind the back of who was answered."""
    for topic in topics:
        puller.wait_drained(topic, len(MESSAGES))


def pull(puller: PullConsumer, topic: str, expression: str) -> Json:
    """A pull of the topic's only queue by an SQL92 expression."""
    (queue,) = wait_until(lambda: puller.queues(topic), "the queue")

    def asked() -> list[Json | JavaError]:
        # A client asks so only where a heartbeat told it that the broker is new enough.
        try:
            return [puller.pull(queue, 0, expression=expression, sql=True)]
        except JavaError as error:
            return [] if "does not upgrade" in str(error) else [error]

    (result,) = wait_until(asked, "a heartbeat", interval=0.2)
    if isinstance(result, JavaError):
        raise result
    return result


def test_pulls_get_what_they_get_from_stock(
    filtering: Cluster, java: JavaClients, topics: list[str]
) -> None:
    with java.puller(filtering.namesrv) as puller:

        def found(topic: str, expression: str) -> tuple[list[str], int]:
            result = pull(puller, topic, expression)
            return [message["body"] for message in result["messages"]], result["next"]

        wait_readable(puller, topics)
        ours, older, newer = topics
        for expression in EXPRESSIONS:
            expected = found(newer, expression)
            assert found(ours, expression) == expected, expression
            assert found(older, expression) == expected, expression
        for expression in NEWER_EXPRESSIONS:
            assert found(ours, expression) == found(newer, expression), expression


@pytest.mark.parametrize("expression", ["a > 5", "a IS NULL", "a = 7 AND b <> 'x'"])
def test_push_consumers_get_what_they_get_from_stock(
    filtering: Cluster, java: JavaClients, topics: list[str], names, expression: str
) -> None:
    ours, _, newer = topics
    with java.puller(filtering.namesrv) as puller, java.producer(filtering.namesrv) as producer:
        wait_readable(puller, topics)
        expected = [message["body"] for message in pull(puller, newer, expression)["messages"]]
        assert expected
        received = {}
        for topic in (ours, newer):
            with java.consumer(
                filtering.namesrv, names.group, {topic: expression}, sql=True
            ) as consumer:
                consumer.wait_bodies(set(expected))
                # While its pull is held: what does not match, and then what does.
                matching = MESSAGES[int(expected[-1])]
                others = [
                    each for number, each in enumerate(MESSAGES) if str(number) not in expected
                ]
                producer.send(
                    *({"topic": topic, "body": "other", "properties": each} for each in others[:3]),
                    {"topic": topic, "body": "last", "properties": matching},
                )
                received[topic] = sorted(
                    message["body"] for message in consumer.wait_bodies({*expected, "last"})
                )
        assert received[ours] == received[newer] == sorted([*expected, "last"])


def test_another_expression_takes_over(
    filtering: Cluster, java: JavaClients, topics: list[str], names
) -> None:
    group = names.group
    with java.consumer(filtering.namesrv, group, {topics[0]: "a = 7"}, sql=True) as consumer:
        consumer.wait_bodies({"10", "11"})
        consumer.stop()
    with (
        java.consumer(filtering.namesrv, group, {topics[0]: "a = 9"}, sql=True) as consumer,
        java.producer(filtering.namesrv) as producer,
    ):
        producer.send(
            *(
                {"topic": topics[0], "body": value, "properties": {"a": value}}
                for value in ("7", "8", "9")
            )
        )
        assert {message["body"] for message in consumer.wait_bodies({"9"})} == {"9"}


@pytest.mark.parametrize(("expression", "column"), WRONG)
def test_a_wrong_expression_is_refused(
    filtering: Cluster, java: JavaClients, topics: list[str], names, expression: str, column: int
) -> None:
    with pytest.raises(JavaError, match=f"column {column}"):
        java.consumer(filtering.namesrv, names.group, {topics[0]: expression}, sql=True)
    with (
        java.puller(filtering.namesrv) as puller,
        pytest.raises(JavaError, match=f"column {column}"),
    ):
        pull(puller, topics[0], expression)


def test_a_broker_that_does_not_filter(cluster: Cluster, java: JavaClients, names) -> None:
    topic = cluster.create_topic(java, names.topic, queues=1)
    with pytest.raises(JavaError, match="enablePropertyFilter"):
        java.consumer(cluster.namesrv, names.group, {topic: "a > 5"}, sql=True)


@pytest.mark.parametrize(
    ("first", "second"),
    [pair for version in STOCK_VERSIONS for pair in [(OURS, version), (version, OURS)]],
)
def test_what_groups_filter_by_is_kept_for_the_other_broker(
    first: str,
    second: str,
    servers: str,
    filtering: Cluster,
    jvms: dict[str, JavaClients],
    tmp_path: Path,
    names,
) -> None:
    java, group, topic = jvms[NEWEST], names.group, names.topic
    name, ports, store = names.new("exchange"), BrokerPorts(), tmp_path / "store"
    writer, reader = (
        make_broker(
            servers if kind == OURS else kind,
            name,
            tmp_path / str(number),
            filtering.name_servers,
            store=store,
            ports=ports,
            settings=ENABLED,
        )
        for number, kind in enumerate((first, second))
    )
    file = store / "config" / "consumerFilter.json"

    def kept() -> Json:
        data: Json = json.loads(file.read_text())["filterDataByTopic"]
        found: Json = data[topic]["groupFilterData"][group]
        return found

    try:
        writer.start()
        filtering.create_topic(java, topic, queues=1, brokers=[writer])
        with java.consumer(filtering.namesrv, group, {topic: "a > 5"}, sql=True) as consumer:
            wait_until(consumer.assigned, "the queue", interval=0.1)
            writer.stop()
        written = kept()
        assert (written["expression"], written["expressionType"]) == ("a > 5", "SQL92")
        # What changes makes it write the file.
        reader.start()
        with java.consumer(filtering.namesrv, names.group, {topic: "a < 5"}, sql=True) as consumer:
            wait_until(consumer.assigned, "the queue", interval=0.1)
            reader.stop()
        read = kept()
    finally:
        writer.close()
        reader.close()
    assert read["dead"] is True
    for key in ("expression", "bornTime", "clientVersion", "bloomFilterData", "topic"):
        assert read[key] == written[key], key
