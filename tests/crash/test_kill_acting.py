"""kill -9 of a slave that acts for its master, while delayed messages escape from it: each comes
through the other group, and again only where that was not in the slave's progress yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rocketmq_tw.message.properties import join_properties
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.queues import DelayOffsetTable
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.cluster import OURS, Cluster, make_broker, make_name_server
from tests.support.load import read_topic, send_request
from tests.support.processes import BrokerProcess, NameServerProcess
from tests.support.remoting import Connection, create_topic
from tests.support.replicas import log_end, wait_equal
from tests.support.storecheck import check_store
from tests.support.wait import wait_until

TOPIC, QUEUES = "Late", 4
#: Messages of each delay level.
EACH = 150
NAMES = {"supportActingMaster": "true", "scanNotActiveBrokerInterval": "500"}
KEYS = {
    "enableSlaveActingMaster": "true",
    "enableRemoteEscape": "true",
    "brokerNotActiveTimeoutMillis": "3000",
    # Levels 1 to 4: two before the kill, one in which it comes, and one behind it.
    "messageDelayLevel": "4s 5s 6s 15s",
    "flushDelayOffsetInterval": "500",
    # On a busy machine an answer takes long; what is sent again meanwhile is not the kill's.
    "forwardTimeout": "60000",
}
LEVELS = range(1, 5)


def broker_of(
    name: str, broker_id: int, home: Path, names: NameServerProcess, replicas: int
) -> BrokerProcess:
    own = {
        "brokerId": str(broker_id),
        "brokerRole": "SLAVE" if broker_id else "ASYNC_MASTER",
        "totalReplicas": str(replicas),
    }
    return make_broker(OURS, name, home / f"{name}{broker_id}", [names], settings=KEYS | own)


def requests() -> Iterator[RemotingCommand]:
    """Messages of all levels; a body says its level, and its number there."""
    for level in LEVELS:
        for number in range(EACH):
            body = f"{level}-{number}"
            request = send_request(TOPIC, number % QUEUES, body.encode())
            own = {"DELAY": str(level), "UNIQ_KEY": body}
            request.ext_fields["i"] = join_properties(own).decode()
            yield request


def send_all(broker: BrokerProcess) -> set[bytes]:
    """Sends them in this order, all of which have to be accepted; returns their bodies."""
    sent = list(requests())
    with Connection(broker.address) as connection:
        connection.send(*sent)
        for _ in sent:
            answer = connection.receive()
            assert answer.code == ResponseCode.SUCCESS, answer
    return {request.body for request in sent}


def noted(broker: BrokerProcess) -> dict[int, int]:
    """How many messages of each level are delivered, as the broker's file says."""
    path = broker.store / "config" / "delayOffset.json"
    return decode_body(DelayOffsetTable, path.read_bytes()).offset_table


def came(*brokers: BrokerProcess) -> Counter[bytes]:
    """What consumers are given, and how often."""
    return Counter(r.body for broker in brokers for r in read_topic(broker.address, TOPIC, QUEUES))


def test_what_escapes_is_not_lost_and_comes_twice_only_where_it_was_not_noted(
    tmp_path: Path,
) -> None:
    names = make_name_server(OURS, tmp_path / "names", NAMES)
    master, slave = (broker_of("a", number, tmp_path, names, 2) for number in range(2))
    other = broker_of("b", 0, tmp_path, names, 1)
    with Cluster([names], [master, slave, other]):
        create_topic(other.address, TOPIC, QUEUES)
        wait_until(lambda: names.routes(TOPIC, [other]), "the route")
        sent = send_all(master)
        wait_equal(master, slave)
        master.kill()
        end = log_end(slave)
        wait_until(lambda: noted(slave).get(1) == EACH, "the first level to be noted")
        wait_until(lambda: any(body.startswith(b"3-") for body in came(other)), "the third level")
        slave.kill()
        kept = noted(slave)
        assert kept.get(4, 0) == 0, "killed too late to show anything"
        slave.start()
        wait_until(lambda: noted(slave) == dict.fromkeys(LEVELS, EACH), "all to be noted")
        found = came(other, slave)
        twice = {body for body, count in found.items() if count > 1}
        print(f"noted: {kept}; {len(twice)} came twice")
        assert found.keys() == sent
        assert max(found.values()) <= 2
        for body in twice:
            level, number = map(int, body.split(b"-"))
            assert number >= kept.get(level, 0), f"{body!r} was noted: {kept}"
        assert log_end(slave) == end, "its log stays a copy"
        for broker in (slave, other):
            broker.stop()
            check_store(broker.store)
