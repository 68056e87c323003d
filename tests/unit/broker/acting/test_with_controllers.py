"""Acting masters beside controllers, and a group that changes from one to the other and back."""

from __future__ import annotations

from collections import Counter

from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.files.memory import MemoryFiles
from tests.support.broker import BrokerInMemory, ok
from tests.support.sim.acting import BEAT_MS, NOT_ACTIVE_MS, ActingCluster
from tests.support.sim.brokers import NAME
from tests.support.sim.group import ElectedGroup

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


def test_a_group_changes_to_controllers_and_back_and_loses_nothing() -> None:
    cluster = ActingCluster()
    send_some(cluster.start_group(NAME), "1")
    cluster.run_until(lambda: cluster.follows(NAME, 1))
    stores = stop(cluster)

    group = ElectedGroup()
    first = group.start(1, stores[0])
    group.run_until(lambda: group.masters() == [1])
    group.start(2, stores[1])
    group.run_until(lambda: len(group.in_sync()) == 2)
    send_some(first, "2")
    group.run(15)
    stores = []
    for number in (2, 1):
        group.brokers[number].stop()
        group.kill(number)
        stores.insert(0, group.processes[number].files)

    cluster = ActingCluster()
    master = cluster.start(NAME, 0, files=stores[0])
    cluster.start(NAME, 1, files=stores[1])
    cluster.run_until(lambda: cluster.follows(NAME, 1))
    send_some(master, "3")
    cluster.run(15)
    expected = Counter(body for kind in "123" for body in (plain(kind), delayed(kind)))
    assert Counter(message.body for message in master.consume()) == expected
    cluster.kill(NAME, 0)
    cluster.run_until(lambda: cluster.acts(NAME, 1))
    slave = cluster.broker(NAME, 1)
    assert Counter(message.body for message in slave.consume()) == expected


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


def plain(kind: str) -> bytes:
    return f"plain {kind}".encode()


def delayed(kind: str) -> bytes:
    return f"delayed {kind}".encode()
