"""A store that one broker wrote is opened by the other kind, which serves all of it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rocketmq_tw.storecheck.findings import Remedy
from tests.support.cluster import OURS, Cluster, make_brokers_of_one_store
from tests.support.java_client import JavaClients, Json, PullConsumer
from tests.support.processes import BrokerProcess, NameServerProcess
from tests.support.storecheck import check_store, findings_of
from tests.support.wait import wait_until

STOCK = "5.3.3"
COMMITTED = 7
#: Five seconds: about what the second broker takes to start.
DELAY_LEVEL = 8
MEBIBYTE = 1024 * 1024


@pytest.fixture
def name_server(cluster: Cluster) -> NameServerProcess:
    return cluster.name_servers[0]


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(BrokerProcess.stop, id="stop", marks=pytest.mark.more),
        pytest.param(BrokerProcess.kill, id="kill"),
    ],
)
@pytest.mark.parametrize(("first", "second"), [(OURS, STOCK), (STOCK, OURS)])
def test_the_second_broker_serves_what_the_first_one_stored(
    first: str,
    second: str,
    end: Callable[[BrokerProcess], None],
    servers: str,
    jvms: dict[str, JavaClients],
    name_server: NameServerProcess,
    tmp_path: Path,
    names,
) -> None:
    java = jvms[STOCK]
    topic, group = names.topic, names.group
    kinds = [servers if kind == OURS else kind for kind in (first, second)]
    brokers = make_brokers_of_one_store(kinds, names.new("exchange"), tmp_path, name_server)
    writer, reader = brokers
    store = writer.store
    try:
        with java.puller(name_server.address) as puller:
            writer.start()
            written = _write(java, writer, puller, topic)
            _commit(java, writer, topic, group)
            later = names.topic
            with java.producer(name_server.address) as producer:
                producer.send({"topic": later, "body": "delayed", "delayLevel": DELAY_LEVEL})
            end(writer)
            assert (store / "abort").exists() == (end is BrokerProcess.kill)
            # What a kill leaves unwritten is brought by the start.
            left = {found.remedy for found in findings_of(store)}
            assert left <= ({Remedy.START} if end is BrokerProcess.kill else set())

            reader.start()
            assert _places(puller.wait_drained(topic, len(written))) == _places(written)
            found = wait_until(lambda: puller.query(topic, "key-11"), "the index to be whole")
            assert [m["body"] for m in found] == ["m11"]
            _go_on(java, name_server.address, group, written)
            # Due by now or soon: what waits in the writer's store is the reader's to deliver.
            assert {m["body"] for m in puller.wait_drained(later, 1)} == {"delayed"}
        reader.stop()
        check_store(store)
        assert findings_of(store) == []
    finally:
        for broker in brokers:
            broker.close()


def _write(
    java: JavaClients, broker: BrokerProcess, puller: PullConsumer, topic: str
) -> list[Json]:
    """Messages of every kind, over more than one log file; what the writer serves of them."""
    namesrv = broker.name_servers[0].address
    java.create_topic(namesrv, broker.address, topic, 2)
    wait_until(lambda: broker.name_servers[0].routes(topic, [broker]), "the route")
    with java.producer(namesrv) as producer:
        for number in range(40):
            producer.send(
                {
                    "topic": topic,
                    "body": f"m{number}",
                    "keys": f"key-{number}",
                    "tags": "abc"[number % 3],
                    "properties": {"ключ": "語"},
                },
                queue=number % 2,
            )
        producer.send(*({"topic": topic, "body": f"b{n}"} for n in range(10)), mode="batch")
        producer.send(*({"topic": topic, "size": 2 * MEBIBYTE, "seed": n} for n in range(9)))
        producer.send({"topic": topic, "body": "compressed " * 1000})
    return puller.wait_drained(topic, 60)


def _commit(java: JavaClients, broker: BrokerProcess, topic: str, group: str) -> None:
    with java.puller(broker.name_servers[0].address, group) as puller:
        for queue in puller.queues(topic):
            # The pull makes the group, as stock's brokers have it.
            assert len(puller.pull(queue, 0, COMMITTED)["messages"]) == COMMITTED
            puller.commit(queue, COMMITTED)
        wait_until(
            lambda: list(broker.stored_offsets(topic, group).values()) == [COMMITTED] * 2,
            "the offsets on disk",
        )
        # A group's pull client has a share of its queues as long as it is there.
        puller.stop()


def _places(messages: list[Json]) -> list[tuple[object, ...]]:
    """All that must not change when another broker serves a message."""
    fields = ("queue", "offset", "physicalOffset", "size", "crc", "tags", "keys", "msgId", "born")
    return sorted(tuple(str(message[field]) for field in fields) for message in messages)


def _go_on(java: JavaClients, namesrv: str, group: str, written: list[Json]) -> None:
    """The reader takes messages behind the old ones, and the group goes on where it was."""
    topic = written[0]["topic"]
    with java.producer(namesrv) as producer:
        for queue in (0, 1):
            (result,) = producer.send({"topic": topic, "body": f"new-{queue}"}, queue=queue)
            assert result["offset"] == sum(message["queue"] == queue for message in written)
    with java.consumer(namesrv, group, {topic: "*"}) as consumer:
        rest = consumer.received(len(written) + 2 - 2 * COMMITTED)
    assert min(message["offset"] for message in rest) == COMMITTED
