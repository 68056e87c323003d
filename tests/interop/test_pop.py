"""Popping with stock 5.3's clients: the same calls against our broker and stock's, and push
consumers that leave the division of queues to the broker. Stores: test_pop_stores.py."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.cluster import OURS, Cluster
from tests.support.java_client import JavaClients, Json, PopConsumer
from tests.support.processes import BrokerProcess
from tests.support.wait import wait_until

STOCK = "5.3.3"
#: Milliseconds of a pop that expects messages: stock answers one that came 500 ms late with none.
PATIENT = 10_000
#: Stock pops only with its timer.
SETTINGS = {"timerWheelEnable": "true"}


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Cluster]]:
    """Our broker and stock's, each with a name server of ours."""
    home = tmp_path_factory.mktemp("pop")
    made = {
        kind: Cluster.of(
            home / kind.replace(".", "-"),
            name_servers=[OURS],
            brokers=[kind],
            settings=SETTINGS,
        )
        for kind in (OURS, STOCK)
    }
    try:
        for cluster in made.values():
            cluster.start()
        yield made
    finally:
        for cluster in made.values():
            cluster.close()


@pytest.fixture
def java(jvms: dict[str, JavaClients]) -> JavaClients:
    return jvms[STOCK]


def popper_of(java: JavaClients, broker: BrokerProcess, group: str) -> PopConsumer:
    namesrv = broker.name_servers[0].address
    java.mqadmin("updateSubGroup", "-n", namesrv, "-b", broker.address, "-g", group)
    return java.popper(namesrv, group, broker.name, broker.address)


def seen(popped: Json) -> Json:
    """What is the same wherever and whenever it is popped."""
    return {
        "status": popped["status"],
        "rest": popped["rest"],
        "messages": [
            {
                "body": message["body"],
                "topic": message["topic"],
                "queue": message["queue"],
                "offset": message["offset"],
                "reconsumeTimes": message["reconsumeTimes"],
                "tags": message["tags"],
                # Start, invisible time, kind, queue, offset.
                "extraInfo": [message["properties"]["POP_CK"].split(" ")[at] for at in _ALIKE],
                "firstPopTime": "1ST_POP_TIME" in message["properties"],
            }
            for message in popped["messages"]
        ],
    }


#: Of an extra info all but pop time, revive queue and broker name.
_ALIKE = (0, 2, 4, 6, 7)


def wait_readable(java: JavaClients, namesrv: str, topic: str, count: int) -> None:
    """Stock fills its queues behind the back of who was answered."""
    with java.puller(namesrv) as puller:
        puller.wait_drained(topic, count)


def calls(java: JavaClients, cluster: Cluster, topic: str, group: str) -> list[Any]:
    """What a client sees of everything that it asks."""
    transcript: list[Any] = []
    cluster.create_topic(java, topic, queues=1)
    with (
        java.producer(cluster.namesrv) as producer,
        popper_of(java, cluster.broker, group) as popper,
    ):
        for number in range(6):
            producer.send({"topic": topic, "body": f"m{number}", "tags": "ab"[number % 2]})
        wait_readable(java, cluster.namesrv, topic, 6)

        def pop(**options: Any) -> list[Json]:
            popped = popper.pop(topic, **options)
            transcript.append(seen(popped))
            messages: list[Json] = popped["messages"]
            return messages

        first = pop(max=2, invisible=20_000, poll=PATIENT)
        transcript.append(popper.ack(first[0])["status"])
        (tagged,) = pop(max=1, expression="a", poll=PATIENT)
        transcript.append(popper.ack(tagged)["status"])
        hidden = popper.hide(pop(max=1, poll=PATIENT)[0], 12_000)
        transcript.append(hidden["properties"]["POP_CK"].split(" ")[0])
        rest = pop(poll=PATIENT)
        for message in rest:
            transcript.append(popper.ack(message)["status"])
        assert not pop()
        # What was hidden for 12 seconds, then what was popped for 20.
        revived = []
        for _ in range(2):
            messages = wait_until(
                lambda: popper.pop(topic, poll=5_000)["messages"], "a revived message"
            )
            revived += messages
            for message in messages:
                transcript.append(popper.ack(message)["status"])
        transcript.append(seen({"status": "", "rest": 0, "messages": revived}))
        wrong = rest[0] | {"offset": 99}
        transcript.append(popper.ack(wrong)["status"])
        empty = popper.pop(topic, poll=1_000)
        transcript.append(empty["status"])
    return transcript


def test_the_same_answers(java: JavaClients, clusters: dict[str, Cluster], names) -> None:
    topic, group = names.topic, names.group
    ours = calls(java, clusters[OURS], topic, group)
    stock = calls(java, clusters[STOCK], topic, group)
    assert ours == stock


def orderly_calls(java: JavaClients, cluster: Cluster, topic: str, group: str) -> list[Any]:
    transcript: list[Any] = []
    cluster.create_topic(java, topic, queues=1)
    with (
        java.producer(cluster.namesrv) as producer,
        popper_of(java, cluster.broker, group) as popper,
    ):
        for number in range(4):
            producer.send({"topic": topic, "body": f"m{number}"})
        wait_readable(java, cluster.namesrv, topic, 4)

        def pop(**options: Any) -> list[Json]:
            popped = popper.pop(topic, orderly=True, **options)
            transcript.append(seen(popped))
            messages: list[Json] = popped["messages"]
            return messages

        first = pop(max=2, invisible=10_000, poll=PATIENT)
        assert not pop()
        transcript.append(popper.ack(first[0])["status"])
        assert not pop()
        # The second one comes again, with those behind it.
        again = wait_until(
            lambda: popper.pop(topic, orderly=True, poll=5_000)["messages"], "the rest"
        )
        transcript.append(seen({"status": "", "rest": 0, "messages": again}))
        for message in again:
            transcript.append(popper.ack(message)["status"])
        assert not pop()
    return transcript


def test_the_same_order(java: JavaClients, clusters: dict[str, Cluster], names) -> None:
    topic, group = names.topic, names.group
    ours = orderly_calls(java, clusters[OURS], topic, group)
    stock = orderly_calls(java, clusters[STOCK], topic, group)
    assert ours == stock


@pytest.mark.parametrize("kind", [OURS, STOCK])
def test_push_consumers_that_leave_queues_to_the_broker(
    kind: str, java: JavaClients, clusters: dict[str, Cluster], names
) -> None:
    cluster = clusters[kind]
    topic, group = names.topic, names.group
    cluster.create_topic(java, topic, queues=2)
    namesrv, address = cluster.namesrv, cluster.broker.address
    java.mqadmin("updateSubGroup", "-n", namesrv, "-b", address, "-g", group)
    said = java.mqadmin(
        *("setConsumeMode", "-n", namesrv, "-b", address),
        *("-t", topic, "-g", group, "-m", "POP", "-q", "8"),
    )
    assert "success" in said, said
    options = {"clientRebalance": False, "popInvisibleTime": 15_000}
    with (
        java.producer(namesrv) as producer,
        java.consumer(namesrv, group, {topic: "*"}, **options) as one,
        java.consumer(namesrv, group, {topic: "*"}, **options) as other,
    ):
        bodies = {f"m{number}" for number in range(40)}

        def both() -> list[str]:
            return [message["body"] for each in (one, other) for message in each.received()]

        for body in sorted(bodies):
            producer.send({"topic": topic, "body": body})
        wait_until(lambda: bodies <= set(both()), "all messages")
        assert sorted(both()) == sorted(bodies), "each once"


def test_what_a_push_consumer_fails_comes_again(
    java: JavaClients, clusters: dict[str, Cluster], names
) -> None:
    cluster = clusters[OURS]
    topic, group = names.topic, names.group
    cluster.create_topic(java, topic, queues=2)
    namesrv, address = cluster.namesrv, cluster.broker.address
    java.mqadmin("updateSubGroup", "-n", namesrv, "-b", address, "-g", group)
    java.mqadmin(
        *("setConsumeMode", "-n", namesrv, "-b", address),
        *("-t", topic, "-g", group, "-m", "POP"),
    )
    options = {"clientRebalance": False, "failTimes": 1}
    with (
        java.producer(namesrv) as producer,
        java.consumer(namesrv, group, {topic: "*"}, **options) as consumer,
    ):
        producer.send({"topic": topic, "body": "fails once"})
        # The client hides it for ten seconds first.
        received = consumer.received(2)
        assert [message["reconsumeTimes"] for message in received] == [0, 1]
