"""A master of one kind and a slave of the other: equal logs, and a slave that serves alone."""

from pathlib import Path

import pytest

from rocketmq_tw.testing.cluster import OURS, Cluster
from rocketmq_tw.testing.jars import STOCK_VERSIONS
from rocketmq_tw.testing.java_client import JavaClients, Json
from rocketmq_tw.testing.processes import NameServerProcess
from rocketmq_tw.testing.replicas import (
    Replicas,
    has_topic,
    log_digest,
    log_end,
    offsets_of,
    send_volume,
)
from rocketmq_tw.testing.wait import wait_until

STOCK = "5.3.3"
VOLUME = 32 << 20
FIRST_FILE = 16 << 20
COMMITTED = 5


@pytest.fixture
def name_server(cluster: Cluster) -> NameServerProcess:
    return cluster.name_servers[0]


@pytest.mark.parametrize(
    ("master", "slave"),
    [*((version, OURS) for version in STOCK_VERSIONS), *((OURS, v) for v in STOCK_VERSIONS)],
)
def test_a_slave_has_the_masters_log_and_serves_it_alone(
    master: str,
    slave: str,
    servers: str,
    jvms: dict[str, JavaClients],
    name_server: NameServerProcess,
    tmp_path: Path,
    names,
) -> None:
    java = jvms[STOCK]
    topic, group = names.topic, names.group
    kinds = [servers if kind == OURS else kind for kind in (master, slave)]
    with Replicas(
        names.new("pair"), tmp_path, [name_server], master=kinds[0], slaves=[kinds[1]]
    ) as pair:
        pair.master.start()
        java.create_topic(name_server.address, pair.master.address, topic, 4)
        wait_until(lambda: name_server.routes(topic, [pair.master]), "the route")
        with (
            java.puller(name_server.address, group) as puller,
            java.producer(name_server.address) as producer,
        ):
            # Within the first file, where an empty slave starts; the rest comes by the link.
            sent = send_volume(pair.master.address, topic, FIRST_FILE // 4)
            for queue in puller.queues(topic):
                puller.pull(queue, 0, COMMITTED)
                puller.commit(queue, COMMITTED)
            pair.slave.start()
            wait_until(lambda: log_end(pair.slave) > 0, "the link", limit=60)
            sent += send_volume(pair.master.address, topic, VOLUME)
            for number in range(20):
                producer.send({"topic": topic, "body": f"m{number}", "tags": "t", "keys": "k"})
            end = pair.wait_equal(pair.slave)
            assert log_digest(pair.slave, 0, end) == log_digest(pair.master, 0, end)
            expected = puller.drain(topic)
            assert len(expected) == sent + 20
            puller.stop()
            wait_until(lambda: has_topic(pair.slave, topic), "the topic at the slave", limit=90)
            wait_until(
                lambda: offsets_of(pair.slave, topic, group) == dict.fromkeys(range(4), COMMITTED),
                "the group's offsets at the slave",
                limit=90,
            )
        pair.master.kill()
        wait_until(lambda: not name_server.knows(pair.master), "the master to be gone")
        with java.consumer(name_server.address, names.group, {topic: "*"}) as consumer:
            served = consumer.received(len(expected), limit=60)
        assert _places(served) == _places(expected)
        with java.puller(name_server.address, group) as puller:
            assert {puller.committed(queue) for queue in puller.queues(topic)} == {COMMITTED}


def _places(messages: list[Json]) -> list[tuple[object, ...]]:
    fields = ("queue", "offset", "physicalOffset", "size", "crc", "tags", "keys", "msgId")
    return sorted(tuple(message.get(field) for field in fields) for message in messages)
