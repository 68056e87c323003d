"""A master of one kind and a slave of the other: equal logs, and a slave that serves alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketmq_tw.broker.timer.progress import decode_timer_checkpoint
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.fastjson import loads
from tests.support.cluster import OURS, Cluster
from tests.support.java_client import JavaClients, Json
from tests.support.processes import BrokerProcess, NameServerProcess
from tests.support.remoting import ask
from tests.support.replicas import (
    COPY_LIMIT,
    Replicas,
    log_digest,
    log_end,
    offsets_of,
    send_volume,
    wait_topic,
)
from tests.support.wait import wait_until

STOCK = "5.3.3"
VOLUME = 32 << 20
#: Within the first file, where an empty slave starts; the rest comes by the link.
FIRST_VOLUME = 4 << 20
COMMITTED = 5
#: A consumer that is not at the log's end counts as far behind.
LAGS_AT_ONCE = {"accessMessageInMemoryMaxRatio": "0", "slaveReadEnable": "true"}
#: Off in the tests' brokers otherwise; no timer runs in ours.
TIMER = {"timerWheelEnable": "true", "mappedFileSizeTimerLog": str(1 << 20)}
QUEUES = 4


class Pair:
    """Two brokers that are linked when this is made, with a topic and a group that has offsets."""

    def __init__(
        self,
        home: Path,
        java: JavaClients,
        name_server: NameServerProcess,
        *,
        master: str,
        slave: str,
    ) -> None:
        self.java = java
        self.name_server = name_server
        kinds = f"{master}-{slave}".replace(".", "_")
        self.topic, self.group = f"t-{kinds}", f"g-{kinds}"
        settings = LAGS_AT_ONCE | (TIMER if master == STOCK else {})
        self.replicas = Replicas(
            f"pair-{kinds}", home, [name_server], master=master, slaves=[slave], settings=settings
        )
        try:
            self._link()
        except BaseException:
            self.replicas.close()
            raise

    def _link(self) -> None:
        java, topic, replicas = self.java, self.topic, self.replicas
        replicas.master.start()
        java.create_topic(self.name_server.address, replicas.master.address, topic, QUEUES)
        wait_until(lambda: self.name_server.routes(topic, [replicas.master]), "the route")
        self.sent = send_volume(replicas.master.address, topic, FIRST_VOLUME)
        with java.puller(self.name_server.address, self.group) as puller:
            for queue in puller.queues(topic):
                # The pull makes the group, as stock's brokers have it.
                puller.pull(queue, 0, COMMITTED)
                puller.commit(queue, COMMITTED)
            puller.stop()
        replicas.slave.start()
        wait_until(lambda: log_end(replicas.slave) > 0, "the link")


@pytest.fixture(scope="module", autouse=True)
def slow_pair(
    servers: str,
    jvms: dict[str, JavaClients],
    cluster: Cluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Pair]:
    """A slave of 5.3.3 first copies topics after a minute, so it starts before all other tests."""
    home = tmp_path_factory.mktemp("slow")
    pair = Pair(home, jvms[STOCK], cluster.name_servers[0], master=servers, slave=STOCK)
    yield pair
    pair.replicas.close()


@pytest.mark.parametrize(
    ("master", "slave"), [("4.9.7", OURS), ("5.3.3", OURS), (OURS, "4.9.7"), (OURS, "5.3.3")]
)
def test_a_slave_has_the_masters_log_and_serves_it_alone(
    master: str,
    slave: str,
    servers: str,
    jvms: dict[str, JavaClients],
    cluster: Cluster,
    slow_pair: Pair,
    tmp_path: Path,
) -> None:
    if slave == STOCK:
        check(slow_pair)
        return
    kinds = [servers if kind == OURS else kind for kind in (master, slave)]
    pair = Pair(tmp_path, jvms[STOCK], cluster.name_servers[0], master=kinds[0], slave=kinds[1])
    with pair.replicas:
        check(pair)


def check(pair: Pair) -> None:
    """Copies the rest, compares, kills the master and lets stock's clients read the slave."""
    java, topic, group, replicas = pair.java, pair.topic, pair.group, pair.replicas
    namesrv, slave = pair.name_server.address, replicas.slave
    sent = pair.sent + send_volume(replicas.master.address, topic, VOLUME)
    with java.puller(namesrv) as puller, java.producer(namesrv) as producer:
        for number in range(20):
            producer.send({"topic": topic, "body": f"m{number}", "tags": "t", "keys": "k"})
        end = replicas.wait_equal(slave)
        assert log_digest(slave, 0, end) == log_digest(replicas.master, 0, end)
        # Who lags is sent to the slave, and the puller starts with the oldest message.
        wait_topic(slave, topic)
        expected = puller.wait_drained(topic, sent + 20)
        assert len(expected) == sent + 20
        puller.stop()
    wait_until(
        lambda: offsets_of(slave, topic, group) == dict.fromkeys(range(QUEUES), COMMITTED),
        "the group's offsets at the slave",
        limit=COPY_LIMIT,
    )
    if replicas.master.settings.keys() >= TIMER.keys():
        wait_until(lambda: timer_read_ms(slave) > 0, "the timer's progress", limit=COPY_LIMIT)
        progress = timer_read_ms(replicas.master)
        wait_until(lambda: timer_read_ms(slave) >= progress, "the timer's progress to go on")
    with java.consumer(namesrv, f"{group}-lagging", {topic: "*"}) as consumer:
        assert _places(consumer.received(len(expected))) == _places(expected)
    assert served_by(slave) > 0, "the master, alive, sends consumers that lag to its slave"
    replicas.master.kill()
    wait_until(lambda: not pair.name_server.knows(replicas.master), "the master to be gone")
    with java.consumer(namesrv, f"{group}-reader", {topic: "*"}) as consumer:
        served = consumer.received(len(expected))
    assert _places(served) == _places(expected)
    with java.puller(namesrv, group) as puller:
        assert {puller.committed(queue) for queue in puller.queues(topic)} == {COMMITTED}


def timer_read_ms(broker: BrokerProcess) -> int:
    """Until when timed messages are delivered, as the broker knows it; 0 where it does not."""
    response = ask(broker.address, RemotingCommand.request(RequestCode.GET_TIMER_CHECK_POINT), 5.0)
    if response.code != ResponseCode.SUCCESS:
        return 0
    return decode_timer_checkpoint(response.body).read_ms


def served_by(broker: BrokerProcess) -> int:
    """How many messages the broker has given to consumers today."""
    response = ask(broker.address, RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO))
    return int(loads(response.body)["table"]["msgGetTotalTodayNow"])


def _places(messages: list[Json]) -> list[tuple[object, ...]]:
    fields = ("queue", "offset", "physicalOffset", "size", "crc", "tags", "keys", "msgId")
    return sorted(tuple(message.get(field) for field in fields) for message in messages)
