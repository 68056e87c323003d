"""Acting masters beside controllers, and a group that changes from one to the other and back."""

from __future__ import annotations

from collections import Counter

import pytest

from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.files.memory import MemoryFiles
from tests.support.broker import BrokerInMemory, ok
from tests.support.sim.acting import BEAT_MS, NOT_ACTIVE_MS, ActingCluster
from tests.support.sim.brokers import NAME
from tests.support.sim.group import ElectedGroup
from tests.support.transactions import begin, connect, questions

BOTH_KEYS = {
    "enable_slave_acting_master": True,
    "broker_not_active_timeout_millis": NOT_ACTIVE_MS,
    "broker_heartbeat_interval": BEAT_MS,
    "sync_broker_member_group_period": BEAT_MS,
}


def test_a_slave_acts_while_controllers_elect_nobody_and_is_elected_then() -> None:
    group = ElectedGroup(broker=BOTH_KEYS)
    group.start(1)
    group.run_until(lambda: group.masters() == [1])
    group.start(2)
    group.run_until(lambda: len(group.in_sync()) == 2)
    group.send(1, b"before")
    group.run(8)
    group.network.cut |= {
        pair
        for controller in group.controllers.processes.values()
        for pair in ((controller.host, "10.0.0.2"), ("10.0.0.2", controller.host))
    }
    group.kill(1)
    group.run_until(lambda: group.role(2) is Role.ACTING_MASTER)
    group.run(20)
    assert group.role(2) is Role.ACTING_MASTER
    group.network.heal()
    group.run_until(lambda: group.masters() == [2])
    group.send(2, b"after")
    group.run(2)
    assert group.bodies(2) == [b"before", b"after"]
    group.start(1)
    group.run_until(lambda: len(group.in_sync()) == 2)
    assert group.role(1) is Role.SLAVE


def test_one_that_is_elected_beside_the_acting_one_goes_on_from_its_progress() -> None:
    group = ElectedGroup(broker=BOTH_KEYS)
    group.start(1)
    group.run_until(lambda: group.masters() == [1])
    for number in (2, 3):
        group.start(number)
    group.run_until(lambda: len(group.in_sync()) == 3)
    for number in range(40):
        group.send(1, b"%d" % number)
    group.run(8)
    hosts = [process.host for process in group.processes.values()]
    group.network.cut |= {
        pair
        for controller in group.controllers.processes.values()
        for host in hosts
        for pair in ((controller.host, host), (host, controller.host))
    }
    group.kill(1)
    group.run_until(lambda: group.role(2) is Role.ACTING_MASTER)
    group.brokers[2].offsets.commit("G", "Topic", 0, 30)
    group.run(12)
    group.kill(2)
    group.network.heal()
    group.run_until(lambda: group.masters() == [3])
    assert group.brokers[3].offsets.query("G", "Topic", 0) == 30


@pytest.mark.parametrize("last", [1, 2])
def test_a_group_changes_to_controllers_and_back_and_loses_nothing(last: int) -> None:
    """By the steps in docs/acting.md; `last` is the master that controllers elected last."""
    cluster = ActingCluster()
    send_some(cluster.start_group(NAME), "1")
    cluster.run_until(lambda: cluster.follows(NAME, 1))
    cluster.run(6)
    stores = stop(cluster)

    group = ElectedGroup()
    first = group.start(1, stores[0])
    group.run_until(lambda: group.masters() == [1])
    group.start(2, stores[1])
    group.run_until(lambda: len(group.in_sync()) == 2)
    assert first.offsets.query("G", "Topic", 0) == 1
    send_some(first, "2")
    group.run(15)
    if last == 2:
        group.kill(1)
        group.run_until(lambda: group.masters() == [2])
        group.start(1)
        group.run_until(lambda: len(group.in_sync()) == 2)
    stores = []
    for number in (3 - last, last):
        group.brokers[number].stop()
        group.kill(number)
        stores.insert(0, group.processes[number].files)

    cluster = ActingCluster()
    master = cluster.start(NAME, 0, files=stores[0])
    cluster.start(NAME, 1, files=stores[1])
    cluster.run_until(lambda: cluster.follows(NAME, 1))
    assert master.offsets.query("G", "Topic", 0) == 2
    send_some(master, "3")
    producer = connect(master)
    cluster.run(60)
    kinds = (plain, delayed, timed)
    expected = Counter(body(number) for number in "123" for body in kinds)
    assert Counter(message.body for message in master.consume()) == expected
    halves = {f"ID-half {number}" for number in "123"}
    assert {asked.transaction_id for asked in questions(producer)} == halves
    cluster.kill(NAME, 0)
    cluster.run_until(lambda: cluster.acts(NAME, 1))
    slave = cluster.broker(NAME, 1)
    assert Counter(message.body for message in slave.consume()) == expected
    assert slave.offsets.query("G", "Topic", 0) == 3


def stop(cluster: ActingCluster) -> list[MemoryFiles]:
    """Stops slave and master; returns their files, the master's first."""
    stores = []
    for number in (1, 0):
        cluster.broker(NAME, number).stop()
        cluster.kill(NAME, number)
        stores.insert(0, cluster.processes[NAME, number].files)
    return stores


def send_some(broker: BrokerInMemory, kind: str) -> None:
    ok(broker.send(plain(kind)))
    ok(broker.send(delayed(kind), properties={"DELAY": "3"}))
    at = {"TIMER_DELIVER_MS": str(broker.now_ms() + 12_000)}
    ok(broker.send(timed(kind), properties=at))
    begin(broker, f"half {kind}".encode())
    broker.offsets.commit("G", "Topic", 0, int(kind))


def plain(kind: str) -> bytes:
    return f"plain {kind}".encode()


def delayed(kind: str) -> bytes:
    return f"delayed {kind}".encode()


def timed(kind: str) -> bytes:
    return f"timed {kind}".encode()
