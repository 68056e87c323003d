"""A broker that goes and comes back: offsets and messages are where they were."""

from collections.abc import Callable, Iterator

import pytest

from tests.support.cluster import Cluster
from tests.support.java_client import JavaClients, Json
from tests.support.processes import BrokerProcess
from tests.support.wait import wait_until


@pytest.fixture(scope="module")
def restarted(servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose broker these tests stop and kill."""
    home = tmp_path_factory.mktemp("restarted")
    with Cluster.of(home, name_servers=[servers], brokers=[servers]) as started:
        yield started


@pytest.mark.parametrize("end", [BrokerProcess.stop, BrokerProcess.kill], ids=["stop", "kill"])
def test_messages_and_offsets_survive_the_broker(
    end: Callable[[BrokerProcess], None], java: JavaClients, restarted: Cluster, names
) -> None:
    topic = restarted.create_topic(java, names.topic)
    group = names.group
    broker = restarted.broker
    with java.producer(restarted.namesrv) as producer, java.puller(restarted.namesrv) as puller:
        first = [f"first-{number}" for number in range(30)]
        producer.send(*({"topic": topic, "body": body} for body in first))
        consumer = java.consumer(restarted.namesrv, group, {topic: "*"})
        consumer.received(30)
        consumer.stop()
        # A consumer that stays away keeps its place: a kill may lose only what is not written yet.
        wait_until(lambda: sum(broker.stored_offsets(topic, group).values()) == 30, "the offsets")
        before = _places(puller.drain(topic))
        assert len(before) == 30

        end(broker)
        broker.start()

        # The client's connection is gone, which it may be told only now.
        assert _places(puller.wait_drained(topic, 30)) == before
        second = [f"second-{number}" for number in range(30)]
        producer.send(*({"topic": topic, "body": body} for body in second))
        with java.consumer(restarted.namesrv, group, {topic: "*"}) as again:
            assert sorted(again.bodies(30)) == sorted(second)


def _places(messages: list[Json]) -> list[tuple[int, int, str]]:
    return sorted((m["queue"], m["offset"], m["body"]) for m in messages)


def test_running_clients_go_on_after_the_broker_came_back(
    java: JavaClients, restarted: Cluster, names
) -> None:
    topic = restarted.create_topic(java, names.topic)
    with (
        java.producer(restarted.namesrv) as producer,
        java.consumer(restarted.namesrv, names.group, {topic: "*"}) as consumer,
    ):
        producer.send({"topic": topic, "body": "before"})
        consumer.wait_bodies({"before"})
        restarted.broker.kill()
        restarted.broker.start()
        wait_until(
            lambda: (
                producer.send({"topic": topic, "body": "after"}, check=False)[0]["status"]
                == "SEND_OK"
            ),
            "a send to the broker that came back",
        )
        # A client of 4.9 does not notice the lost connection and waits for its pull's time-out.
        consumer.wait_bodies({"after"})
