"""A master that was paused or cut off, and was not started again, takes over what its slave did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import permutations

import pytest

from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from tests.support.broker import ok
from tests.support.sim.acting import ActingCluster
from tests.support.sim.brokers import CLUSTER

QUEUES = 2
#: What the master had in its hands when it stood still.
MOST_AGAIN = 10


def groups(*, period: int = 30_000) -> ActingCluster:
    """Two groups with `Topic`; the first has 100 messages, and consumers `G` at 10."""
    cluster = ActingCluster(
        total_replicas=2,
        settings={"register_name_server_period": period},
        message_delay_level="1s 12s",
        ha_send_heartbeat_interval=500,
    )
    for name in ("a", "b"):
        master = cluster.start_group(name)
        master.add_topic("Topic", read_queue_nums=QUEUES, write_queue_nums=QUEUES)
    master = cluster.broker("a", 0)
    master.groups.update(SubscriptionGroupConfig(group_name="G"))
    for number in range(100):
        ok(master.send(b"%d" % number, queue_id=number % QUEUES))
    for queue in range(QUEUES):
        master.offsets.commit("G", "Topic", queue, 10)
    cluster.run(12)
    assert offset(cluster, 1) == 10
    return cluster


def offset(cluster: ActingCluster, number: int) -> int:
    return cluster.broker("a", number).offsets.query("G", "Topic", 0)


def is_back(cluster: ActingCluster) -> bool:
    return cluster.role("a", 0) is Role.MASTER and 0 in cluster.members("a")


def pause(cluster: ActingCluster) -> Callable[[], None]:
    """The master stands still until what is returned is called."""
    process = cluster.processes["a", 0]
    process.pause()
    return process.go_on


def cut_off(cluster: ActingCluster) -> Callable[[], None]:
    """The master reaches nobody until what is returned is called."""
    own = cluster.processes["a", 0].host
    others = [each.host for each in cluster.processes.values() if each.host != own]
    hosts = [*others, *(each.host for each in cluster.name_servers)]
    cluster.network.cut |= {pair for other in hosts for pair in permutations((own, other))}
    return cluster.network.heal


def delayed(cluster: ActingCluster, name: str) -> Counter[bytes]:
    """The delayed messages that consumers of a group's master see."""
    broker = cluster.broker(name, 0)
    found = (message.body for queue in range(QUEUES) for message in broker.consume("Topic", queue))
    return Counter(body for body in found if body.startswith(b"late"))


@pytest.mark.parametrize("lose", [pause, cut_off])
@pytest.mark.parametrize("period", [500, 30_000])
def test_offsets_do_not_go_back(
    lose: Callable[[ActingCluster], Callable[[], None]], period: int
) -> None:
    cluster = groups(period=period)
    give_back = lose(cluster)
    cluster.run_until(lambda: cluster.acts("a", 1))
    slave = cluster.broker("a", 1)
    slave.offsets.commit("G", "Topic", 0, 40)
    cluster.run(20)
    give_back()
    for _ in range(1_500):
        cluster.run(0.01)
        if 0 in cluster.members("a"):
            assert offset(cluster, 0) == 40, "clients find it"
    assert is_back(cluster)
    assert cluster.role("a", 1) is Role.SLAVE
    assert (offset(cluster, 0), offset(cluster, 1)) == (40, 40)


def test_what_its_slave_delivered_is_not_delivered_again() -> None:
    """A delayed and a timed message fall due each 100 ms, most while the master stands still."""
    cluster = groups()
    master = cluster.broker("a", 0)
    for number in range(100):
        at = str(master.now_ms() + 12_000)
        wanted = {"late": {"DELAY": "2"}, "late timed": {"TIMER_DELIVER_MS": at}}
        for kind, properties in wanted.items():
            body = b"%b%d" % (kind.encode(), number)
            ok(master.send(body, queue_id=number % QUEUES, properties=properties))
        cluster.run(0.1)
    cluster.run_until(lambda: cluster.follows("a", 1))
    go_on = pause(cluster)
    cluster.run_until(lambda: cluster.acts("a", 1))
    cluster.run(4)
    assert not delayed(cluster, "a").keys() & delayed(cluster, "b").keys()
    assert sum(delayed(cluster, "b").values()) > 50
    go_on()
    cluster.run_until(lambda: is_back(cluster))
    cluster.run(15)
    found = delayed(cluster, "a") + delayed(cluster, "b")
    assert len(found) == 200
    again = [body for body, count in found.items() if count > 1]
    assert len(again) <= MOST_AGAIN and max(found.values()) <= 2, sorted(again)


def test_a_master_whose_name_servers_are_away_stays_the_master() -> None:
    cluster = groups()
    (name_server,) = cluster.name_servers
    name_server.end()
    for _ in range(400):
        cluster.run(0.1)
        assert cluster.role("a", 0) is Role.MASTER
    name_server.start()
    for _ in range(100):
        cluster.run(0.1)
        assert cluster.role("a", 0) is Role.MASTER and not cluster.acts("a", 1)
    assert set(cluster.members("a")) == {0, 1}


def test_a_name_server_that_forgot_a_broker_has_it_again_soon() -> None:
    """Nothing tells the broker that its registration is gone, and the next is due in 30 s."""
    cluster = groups()
    server = cluster.name_servers[0].server
    assert server is not None
    for address in cluster.members("a").values():
        server.table.unregister(CLUSTER, address, "a")
    assert not cluster.members("a")
    assert cluster.run_until(lambda: set(cluster.members("a")) == {0, 1}) < 5
