"""Messages for a time of their own: stock's clients on our broker, and stores that change hands."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.cluster import OURS, Cluster, make_brokers_of_one_store
from tests.support.java_client import JavaClients, JavaError, Json
from tests.support.processes import BrokerProcess, NameServerProcess
from tests.support.wait import wait_until

STOCK = "5.3.3"
SETTINGS = {
    "timerWheelEnable": "true",
    "mappedFileSizeTimerLog": str(1 << 20),
    "recallMessageEnable": "true",
}
#: Milliseconds by which a delivery may be late on a busy machine.
LATE_MS = 30_000
#: Longer than a second broker takes to start.
LATER_MS = 30_000


@pytest.fixture(scope="module")
def timing(servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker of ours that takes messages back."""
    home = tmp_path_factory.mktemp("timers")
    with Cluster.of(home, name_servers=[servers], brokers=[servers], settings=SETTINGS) as started:
        yield started


def topic_of(
    java: JavaClients, name_server: NameServerProcess, broker: BrokerProcess, topic: str
) -> str:
    java.create_topic(name_server.address, broker.address, topic, 1)
    wait_until(lambda: name_server.routes(topic, [broker]), "the route")
    return topic


def test_each_way_to_ask_for_a_time(java: JavaClients, timing: Cluster, names) -> None:
    topic = topic_of(java, timing.name_servers[0], timing.brokers[0], names.topic)
    with (
        java.puller(timing.namesrv) as puller,
        java.producer(timing.namesrv) as producer,
    ):
        at = int(time.time() * 1000) + 4_000
        producer.send(
            {"topic": topic, "body": "ms", "rawProperties": {"TIMER_DELAY_MS": 1500}},
            {"topic": topic, "body": "s", "tags": "a", "rawProperties": {"TIMER_DELAY_SEC": 2}},
            {"topic": topic, "body": "at", "rawProperties": {"TIMER_DELIVER_MS": at}},
            {"topic": topic, "body": "level", "delayLevel": 1},
            {"topic": topic, "body": "over", "rawProperties": {"TIMER_DELIVER_MS": 5}},
            {"topic": topic, "body": "now"},
        )
        came = {each["body"]: each for each in puller.wait_drained(topic, 6)}
        assert came.keys() == {"ms", "s", "at", "level", "over", "now"}
        dues = {"ms": came["ms"]["born"] + 1500, "s": came["s"]["born"] + 2000, "at": at}
        for body, due in dues.items():
            late = came[body]["stored"] - due
            assert 0 <= late < LATE_MS, f"{body} came {late} ms late"
            properties = came[body]["properties"]
            assert properties["REAL_TOPIC"] == topic
            assert properties.keys() >= {"TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"}
        assert came["s"]["tags"] == "a"


def test_what_is_refused(java: JavaClients, timing: Cluster, names) -> None:
    topic = topic_of(java, timing.name_servers[0], timing.brokers[0], names.topic)
    with java.producer(timing.namesrv) as producer, pytest.raises(JavaError, match="CODE: 13"):
        producer.send({"topic": topic, "body": "x", "rawProperties": {"TIMER_DELAY_SEC": 300_000}})


def test_recall(jvms: dict[str, JavaClients], timing: Cluster, names) -> None:
    java = jvms[STOCK]
    topic = topic_of(java, timing.name_servers[0], timing.brokers[0], names.topic)
    with (
        java.puller(timing.namesrv) as puller,
        java.recaller(timing.namesrv, names.group) as producer,
    ):
        timer = {"TIMER_DELAY_SEC": 10}
        producer.send({"topic": topic, "body": "stays", "rawProperties": timer})
        handle = producer.send({"topic": topic, "body": "gone", "rawProperties": timer})
        producer.send({"topic": topic, "body": "last", "rawProperties": {"TIMER_DELAY_SEC": 12}})
        assert producer.recall(topic, handle)
        assert [each["body"] for each in puller.wait_drained(topic, 2)] == ["stays", "last"]
        with pytest.raises(JavaError, match="CODE: 604"):
            producer.recall(topic, handle)


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(BrokerProcess.stop, id="stop", marks=pytest.mark.more),
        pytest.param(BrokerProcess.kill, id="kill"),
    ],
)
@pytest.mark.parametrize(("first", "second"), [(OURS, STOCK), (STOCK, OURS)])
def test_a_store_changes_hands_while_messages_wait(
    first: str,
    second: str,
    end: Callable[[BrokerProcess], None],
    servers: str,
    jvms: dict[str, JavaClients],
    timing: Cluster,
    tmp_path: Path,
    names,
) -> None:
    java, name_server = jvms[STOCK], timing.name_servers[0]
    kinds = [servers if kind == OURS else kind for kind in (first, second)]
    # What stock would lose by a kill, it would deliver again.
    settings = SETTINGS | {"timerFlushIntervalMs": "4000"}
    brokers = make_brokers_of_one_store(kinds, names.new("timers"), tmp_path, name_server, settings)
    writer, reader = brokers
    try:
        with java.puller(name_server.address) as puller:
            writer.start()
            topic = topic_of(java, name_server, writer, names.topic)
            with java.recaller(name_server.address, names.group) as producer:

                def send(body: str, delay_ms: int) -> str:
                    timer = {"TIMER_DELAY_MS": delay_ms}
                    return producer.send({"topic": topic, "body": body, "rawProperties": timer})

                for number in range(5):
                    send(f"soon {number}", 1_000 + 300 * number)
                for number in range(20):
                    send(f"later {number}", LATER_MS + 400 * number)
                handle = send("gone", LATER_MS + 2_000)
                assert producer.recall(topic, handle)
                soon = puller.wait_drained(topic, 5)
            # It is written every second; a kill before that would deliver some of them again.
            wait_until(lambda: _is_told(writer, soon), "the progress on disk")
            end(writer)

            reader.start()
            came = puller.wait_drained(topic, 25)
            with java.producer(name_server.address) as another:
                another.send(
                    {"topic": topic, "body": "new", "rawProperties": {"TIMER_DELAY_MS": 2000}}
                )
            came = wait_until(lambda: _with_new(puller.drain(topic)), "the last one")
        counts = Counter(each["body"] for each in came)
        expected = {f"soon {n}" for n in range(5)} | {f"later {n}" for n in range(20)} | {"new"}
        assert counts.keys() == expected
        assert {body: n for body, n in counts.items() if n > 1} == {}
        reader.stop()
    finally:
        for broker in brokers:
            broker.close()


def _is_told(broker: BrokerProcess, delivered: list[Json]) -> bool:
    """Whether the files say that all but what waits is delivered."""
    path = broker.store / "config" / "timercheck"
    data = path.read_bytes() if path.exists() else b""
    last = max(int(each["properties"]["TIMER_OUT_MS"]) for each in delivered)
    # 27 messages went into the timer's topic.
    return int.from_bytes(data[24:32], "big") == 27 and int.from_bytes(data[:8], "big") > last


def _with_new(messages: list[Json]) -> list[Json]:
    return messages if any(each["body"] == "new" for each in messages) else []
