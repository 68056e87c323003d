"""Timed messages while a slave acts for its master: they come through another group."""

from __future__ import annotations

import errno
from collections import Counter
from random import Random

import pytest

from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.broker.timer.part import Timer
from rocketmq_tw.files.faulty import Fault
from tests.support.broker import BrokerInMemory, ok
from tests.support.sim.acting import ActingCluster, RefusingSink


def cluster_of(*names: str, **keys: object) -> ActingCluster:
    """A group of two for each name, and `Topic` with four queues on each master."""
    cluster = ActingCluster(**keys)
    for name in names:
        cluster.start_group(name).add_topic("Topic", read_queue_nums=4, write_queue_nums=4)
    cluster.run(8)
    return cluster


def send(cluster: ActingCluster, name: str, body: bytes, due_ms: int, **properties: str) -> None:
    """Sends a message for a time to a master; like clients', it names its unique id."""
    broker = cluster.broker(name, 0)
    wanted = {"TIMER_DELIVER_MS": str(due_ms), "UNIQ_KEY": body.decode(), **properties}
    ok(broker.send(body, queue_id=len(body) % 4, properties=wanted))


def arrivals(broker: BrokerInMemory) -> list[tuple[bytes, int]]:
    """What consumers of a broker see, with when it was stored."""
    return [
        (m.body, m.store_timestamp) for queue in range(4) for m in broker.consume("Topic", queue)
    ]


def came(cluster: ActingCluster, name: str, broker_id: int = 0) -> Counter[bytes]:
    return Counter(body for body, _ in arrivals(cluster.broker(name, broker_id)))


def lose_master(cluster: ActingCluster, name: str) -> None:
    cluster.run_until(lambda: cluster.follows(name, 1))
    cluster.kill(name, 0)
    cluster.run_until(lambda: cluster.acts(name, 1))


def test_each_comes_once_and_in_time() -> None:
    cluster = cluster_of("a", "b")
    now = cluster.broker("a", 0).now_ms()
    dues = {b"%d" % number: now + 7_000 + 37 * number for number in range(400)}
    for body, due in dues.items():
        send(cluster, "a", body, due)
    cluster.run(6)
    slave = cluster.broker("a", 1)
    lose_master(cluster, "a")
    acts_since = slave.now_ms()
    end = slave.store.end_offset
    cluster.run(18)
    found = arrivals(slave) + arrivals(cluster.broker("b", 0))
    assert Counter(body for body, _ in found) == Counter(dues.keys())
    for body, stored in arrivals(cluster.broker("b", 0)):
        assert 0 <= stored - max(dues[body], acts_since) < 1_500
    assert slave.store.end_offset == end, "its log stays a copy"


def test_ten_thousand_come() -> None:
    cluster = cluster_of("a", "b")
    now, chance = cluster.broker("a", 0).now_ms(), Random(1)
    for number in range(10_000):
        send(cluster, "a", b"%d" % number, now + 20_000 + chance.randrange(10_000))
    cluster.run(6)
    lose_master(cluster, "a")
    cluster.run(40)
    assert came(cluster, "b") == Counter(b"%d" % number for number in range(10_000))


def test_a_message_that_waits_in_turns_waits_on_in_the_other_group() -> None:
    """Its time is beyond the wheel's window: it rolls, and the next turn is at another broker."""
    cluster = cluster_of("a", "b", timer_roll_window_slot=8)
    now = cluster.broker("a", 0).now_ms()
    send(cluster, "a", b"far", now + 25_000)
    cluster.run(3)
    lose_master(cluster, "a")
    cluster.run(12)
    assert not came(cluster, "b")
    cluster.run(15)
    assert came(cluster, "b") == Counter([b"far"])


def test_a_slave_follows_its_master_again() -> None:
    cluster = cluster_of("a", "b")
    now = cluster.broker("a", 0).now_ms()
    for number in range(60):
        send(cluster, "a", b"%d" % number, now + 8_000 + 500 * number)
    cluster.run(6)
    lose_master(cluster, "a")
    cluster.run(8)
    during = came(cluster, "b")
    assert during
    cluster.start("a", 0)
    cluster.run_until(lambda: cluster.role("a", 1) is Role.SLAVE and cluster.follows("a", 1))
    cluster.run(40)
    assert came(cluster, "b").total() - during.total() <= 6, "none once the master was heard"
    found = came(cluster, "a") + came(cluster, "b")
    assert found.keys() == {b"%d" % number for number in range(60)}
    timers = [cluster.broker("a", number).broker[Timer] for number in (0, 1)]
    assert abs(timers[0].books.read_ms - timers[1].books.read_ms) < 15_000
    # And it acts once more, with what the master has taken meanwhile.
    now = cluster.broker("a", 0).now_ms()
    for number in range(20):
        send(cluster, "a", b"again%d" % number, now + 9_000 + 100 * number)
    cluster.run(6)
    lose_master(cluster, "a")
    cluster.run(15)
    again = {body: count for body, count in came(cluster, "b").items() if b"again" in body}
    assert again == {b"again%d" % number: 1 for number in range(20)}


def test_one_whose_sender_left_no_room_comes_too() -> None:
    """The times at which it waited are left out: a send has to leave room for retries."""
    cluster = cluster_of("a", "b")
    master = cluster.broker("a", 0)
    wanted = {"TIMER_DELIVER_MS": str(master.now_ms() + 12_000), "UNIQ_KEY": "full"}
    size = 31_743
    while master.send(b"full", properties=wanted | {"x": "y" * size}).code:
        size -= 1
    cluster.run(6)
    lose_master(cluster, "a")
    cluster.run(10)
    assert came(cluster, "b") == Counter([b"full"])


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_an_acting_master_that_is_killed_goes_on(seed: int, power: bool) -> None:
    chance = Random(seed)
    cluster = cluster_of("a", "b", "c")
    now, sent = cluster.broker("a", 0).now_ms(), set[bytes]()
    for number in range(120):
        send(cluster, "a", b"%d" % number, now + 8_000 + chance.randrange(25_000))
        sent.add(b"%d" % number)
    cluster.run(6)
    lose_master(cluster, "a")
    for kill in range(2):
        cluster.run(chance.uniform(0, 6))
        cluster.processes["a", 1].end(power=power, seed=seed + kill)
        cluster.run(chance.uniform(0, 3))
        cluster.start("a", 1)
    cluster.run_until(lambda: cluster.acts("a", 1))
    cluster.run(40)
    found = came(cluster, "a", 1) + came(cluster, "b") + came(cluster, "c")
    assert found.keys() == sent
    # A kill gives back what was delivered since the last save, of a second and a slot.
    assert found.total() <= 120 + 2 * 20


def test_one_that_is_refused_is_tried_again_and_no_other_one_comes_twice() -> None:
    cluster = cluster_of("a", "b")
    now = cluster.broker("a", 0).now_ms()
    sent = [b"%d" % number for number in range(20)]
    for body in sent:
        send(cluster, "a", body, now + 12_000)
    cluster.run(6)
    lose_master(cluster, "a")
    refusing = RefusingSink(cluster.broker("a", 1), b"7")
    cluster.run(10)
    assert came(cluster, "b") == Counter(sent) - Counter([b"7"])
    refusing.refused.clear()
    cluster.run(3)
    assert came(cluster, "b") == Counter(sent)


def test_what_came_while_the_disk_of_the_slave_was_full_does_not_come_again() -> None:
    cluster = cluster_of("a", "b", total_replicas=2)
    now = cluster.broker("a", 0).now_ms()
    sent = [b"%d" % number for number in range(20)]
    for number, body in enumerate(sent):
        send(cluster, "a", body, now + 20_000 + 500 * number)
    cluster.run(7)
    cluster.processes["a", 1].disk.faults = [Fault("create", "", errno.ENOSPC)]
    lose_master(cluster, "a")
    cluster.run(40)
    assert came(cluster, "b") == Counter(sent)
    cluster.start("a", 0)
    cluster.run_until(lambda: cluster.role("a", 0) is Role.MASTER)
    cluster.run(40)
    assert came(cluster, "a") + came(cluster, "b") == Counter(sent)


def test_one_that_the_slave_never_had_comes_once_the_master_is_back() -> None:
    """Its time was while the slave acted: for the slave's place in time it is over."""
    cluster = cluster_of("a", "b", total_replicas=2, ha_send_heartbeat_interval=500)
    now = cluster.broker("a", 0).now_ms()
    for number in range(4):
        send(cluster, "a", b"copied%d" % number, now + 60_000 + 3_000 * number)
    cluster.run(12)
    link = cluster.processes["a", 0].host, cluster.processes["a", 1].host
    cluster.network.cut |= {link, link[::-1]}
    now = cluster.broker("a", 0).now_ms()
    send(cluster, "a", b"later", now + 70_000)
    send(cluster, "a", b"missed", now + 12_000)
    # The master has them in its wheel, and that in its files.
    cluster.run(8)
    cluster.kill("a", 0)
    cluster.network.heal()
    cluster.run_until(lambda: cluster.acts("a", 1))
    cluster.run(20)
    assert not came(cluster, "a", 1) + came(cluster, "b")
    cluster.start("a", 0)
    cluster.run_until(lambda: cluster.role("a", 0) is Role.MASTER)
    cluster.run(90)
    found = came(cluster, "a") + came(cluster, "b")
    assert found == Counter([b"missed", b"later", *(b"copied%d" % number for number in range(4))])


def test_one_that_another_acting_slave_never_had_comes() -> None:
    """The slave with the shorter log acts while the one with the smaller id is down."""
    cluster = ActingCluster(total_replicas=3, ha_send_heartbeat_interval=500)
    for name in "ab":
        cluster.start_group(name, 2).add_topic("Topic", read_queue_nums=4, write_queue_nums=4)
    now = cluster.broker("a", 0).now_ms()
    for number in range(4):
        send(cluster, "a", b"copied%d" % number, now + 50_000 + 3_000 * number)
    cluster.run(12)
    hosts = [cluster.processes["a", number].host for number in range(3)]
    cluster.network.cut |= {(hosts[0], hosts[2]), (hosts[2], hosts[0])}
    now = cluster.broker("a", 0).now_ms()
    send(cluster, "a", b"missed", now + 22_000)
    # Slave 1 has it in its wheel, slave 2 not in its log.
    cluster.run(12)
    cluster.kill("a", 1)
    cluster.kill("a", 0)
    cluster.network.heal()
    cluster.run_until(lambda: cluster.acts("a", 2))
    cluster.run(20)
    assert not came(cluster, "b")
    cluster.start("a", 1)
    cluster.run_until(lambda: cluster.acts("a", 1))
    cluster.run(60)
    bodies = [b"missed", *(b"copied%d" % number for number in range(4))]
    assert came(cluster, "b") == Counter(bodies)
