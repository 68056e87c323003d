"""A master that was paused or cut off, and was not started again, takes over what its slave did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import permutations

import pytest
from twisted.internet.defer import Deferred

from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.codes import RequestCode
from tests.support.broker import ok
from tests.support.sim.acting import NOT_ACTIVE_MS, ActingCluster
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


def comes_back_at_40(cluster: ActingCluster, *, seconds: int = 15) -> None:
    """The master is back by then, and with the slave's offset from when it is found on."""
    for _ in range(seconds * 100):
        cluster.run(0.01)
        if 0 in cluster.members("a"):
            assert offset(cluster, 0) == 40, "clients find it"
    assert is_back(cluster)


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
    comes_back_at_40(cluster)
    assert cluster.role("a", 1) is Role.SLAVE
    assert (offset(cluster, 0), offset(cluster, 1)) == (40, 40)


@pytest.mark.parametrize("lose", [pause, cut_off])
@pytest.mark.parametrize("later", [0.0, 1.5, 3.02, 3.3])
def test_offsets_do_not_go_back_where_the_slave_was_paused_too(
    lose: Callable[[ActingCluster], Callable[[], None]], later: float
) -> None:
    """Name servers have forgotten both, and hear of the master first; the slave is back at the
    latest as they would have forgotten one that was there."""
    cluster = groups()
    give_back = lose(cluster)
    cluster.run_until(lambda: cluster.acts("a", 1))
    cluster.broker("a", 1).offsets.commit("G", "Topic", 0, 40)
    cluster.processes["a", 1].pause()
    cluster.run_until(lambda: not cluster.members("a"))
    give_back()
    cluster.run(later)
    cluster.processes["a", 1].go_on()
    comes_back_at_40(cluster)
    assert (offset(cluster, 0), offset(cluster, 1)) == (40, 40)


def start_name_server(cluster: ActingCluster) -> None:
    """The name server is there again, and the slave does not reach it yet."""
    (name_server,) = cluster.name_servers
    between = name_server.host, cluster.processes["a", 1].host
    cluster.network.cut |= set(permutations(between))
    name_server.start()


@pytest.mark.parametrize("lose", [pause, cut_off])
@pytest.mark.parametrize("times", [1, 3])
def test_offsets_do_not_go_back_where_name_servers_are_started_again(
    lose: Callable[[ActingCluster], Callable[[], None]], times: int
) -> None:
    """They end as the master comes back, for longer than they take to forget a broker. When they
    are there again they know nobody, and the slave reaches them later than the master."""
    cluster = groups()
    give_back = lose(cluster)
    cluster.run_until(lambda: cluster.acts("a", 1))
    cluster.broker("a", 1).offsets.commit("G", "Topic", 0, 40)
    give_back()
    cluster.run_until(lambda: cluster.role("a", 0) is Role.ISOLATED)
    for _ in range(times):
        cluster.name_servers[0].end()
        cluster.run(2 * NOT_ACTIVE_MS / 1000)
        start_name_server(cluster)
        cluster.run(0.6 * NOT_ACTIVE_MS / 1000)
    cluster.network.heal()
    comes_back_at_40(cluster, seconds=50)
    assert (offset(cluster, 0), offset(cluster, 1)) == (40, 40)


def start_with_name_server(cluster: ActingCluster) -> None:
    """Name server and master are started again at once, as after a power cut of their rack; the
    slave does not reach the name server yet."""
    start_name_server(cluster)
    cluster.start("a", 0)


def test_offsets_do_not_go_back_where_all_but_the_slave_lose_their_power() -> None:
    cluster = groups()
    cluster.run(2)
    cluster.kill("a", 0)
    cluster.run_until(lambda: cluster.acts("a", 1))
    cluster.broker("a", 1).offsets.commit("G", "Topic", 0, 40)
    cluster.name_servers[0].end()
    start_with_name_server(cluster)
    cluster.run(0.6 * NOT_ACTIVE_MS / 1000)
    assert not cluster.members("a"), "it waits for its slave"
    cluster.network.heal()
    comes_back_at_40(cluster, seconds=50)
    assert (offset(cluster, 0), offset(cluster, 1)) == (40, 40)


@pytest.mark.parametrize("gone", ["before", "with it"])
def test_a_start_waits_for_slaves_that_were_there_last_and_no_longer(gone: str) -> None:
    cluster = groups()
    cluster.run(2)
    cluster.kill("a", 1)
    if gone == "before":
        cluster.run_until(lambda: cluster.members("a").keys() == {0})
        cluster.run(2)
    cluster.kill("a", 0)
    cluster.name_servers[0].end()
    start_with_name_server(cluster)
    took = cluster.run_until(lambda: is_back(cluster))
    seconds = NOT_ACTIVE_MS / 1000
    assert took < 1 if gone == "before" else seconds < took < 2 * seconds


@pytest.mark.parametrize("lose", [pause, cut_off])
def test_a_slave_that_is_gone_for_good_is_not_waited_for_longer_than_name_servers_do(
    lose: Callable[[ActingCluster], Callable[[], None]],
) -> None:
    cluster = groups()
    give_back = lose(cluster)
    cluster.run_until(lambda: cluster.acts("a", 1))
    cluster.kill("a", 1)
    cluster.run_until(lambda: not cluster.members("a"))
    give_back()
    took = cluster.run_until(lambda: is_back(cluster))
    assert took < 2 * NOT_ACTIVE_MS / 1000


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


@pytest.mark.parametrize("lost", [{0, 1}, {0}, {1}], ids=["both", "to the slave", "to the master"])
def test_a_master_that_cannot_ask_its_slave_does_not_deliver_beside_it(lost: set[int]) -> None:
    """The only name server was started again, and what the two say to each other is lost, of both
    or of one: the slave acts, and the master cannot know what it did."""
    cluster = groups()
    (name_server,) = cluster.name_servers
    hosts = [cluster.processes["a", number].host for number in range(2)]
    name_server.end()
    cluster.run(3 * NOT_ACTIVE_MS / 1000)
    cluster.network.cut |= {(hosts[speaker], hosts[1 - speaker]) for speaker in lost}
    name_server.start()
    cluster.run_until(lambda: cluster.acts("a", 1))
    assert cluster.run_until(lambda: not cluster.role("a", 0).delivers) < NOT_ACTIVE_MS / 1000
    cluster.broker("a", 1).offsets.commit("G", "Topic", 0, 40)
    for _ in range(200):
        cluster.run(0.1)
        assert not cluster.role("a", 0).delivers and cluster.acts("a", 1)
    cluster.network.heal()
    comes_back_at_40(cluster, seconds=50)


def test_a_master_whose_slave_is_slow_to_answer_works_on() -> None:
    """The slave copies its log, so that it does not act."""
    cluster = groups()
    (name_server,) = cluster.name_servers
    name_server.end()
    cluster.run(3 * NOT_ACTIVE_MS / 1000)
    broker = cluster.broker("a", 1)
    broker.handlers[RequestCode.GET_ALL_CONSUMER_OFFSET] = lambda request, peer: Deferred()
    name_server.start()
    for _ in range(200):
        cluster.run(0.1)
        assert cluster.role("a", 0) is Role.MASTER and not cluster.acts("a", 1)


def test_a_name_server_that_forgot_a_broker_has_it_again_soon() -> None:
    """Nothing tells the broker that its registration is gone, and the next is due in 30 s."""
    cluster = groups()
    server = cluster.name_servers[0].server
    assert server is not None
    for address in cluster.members("a").values():
        server.table.unregister(CLUSTER, address, "a")
    assert not cluster.members("a")
    assert cluster.run_until(lambda: set(cluster.members("a")) == {0, 1}) < 5
