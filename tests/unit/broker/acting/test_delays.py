"""Delay levels while a slave acts for its master: each message comes through another group, once
where nothing crashed."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from rocketmq_tw.broker.delay.part import Delay
from rocketmq_tw.broker.role.state import Role
from tests.support.broker import ok
from tests.support.sim.acting import ActingCluster, RefusingSink

#: Seconds of the levels.
LEVELS = "1s 6s 20s"


def cluster_of(*names: str, **settings: object) -> ActingCluster:
    """A group of two for each name, and `Topic` with four queues on each master."""
    cluster = ActingCluster(settings=settings, message_delay_level=LEVELS)
    for name in names:
        cluster.start_group(name).add_topic("Topic", read_queue_nums=4, write_queue_nums=4)
    cluster.run(8)
    return cluster


def send(cluster: ActingCluster, name: str, numbers: range, level: int) -> list[bytes]:
    """Sends delayed messages to a master; like clients', they name their unique ids."""
    sent = [b"%d" % number for number in numbers]
    for number, body in zip(numbers, sent, strict=True):
        properties = {"DELAY": str(level), "UNIQ_KEY": f"id{number}"}
        ok(cluster.broker(name, 0).send(body, queue_id=number % 4, properties=properties))
    return sent


def came(cluster: ActingCluster, name: str, broker_id: int = 0) -> Counter[bytes]:
    """What consumers of a broker see, with how often."""
    broker = cluster.broker(name, broker_id)
    return Counter(m.body for queue in range(4) for m in broker.consume("Topic", queue))


def lose_master(cluster: ActingCluster, name: str) -> None:
    """Kills the master once its slave has all of its log; the slave acts then."""
    cluster.run_until(lambda: cluster.follows(name, 1))
    cluster.kill(name, 0)
    cluster.run_until(lambda: cluster.acts(name, 1))


def test_one_message_that_is_refused_makes_no_other_one_come_twice() -> None:
    cluster = cluster_of("a", "b")
    sent = send(cluster, "a", range(60), 2)
    lose_master(cluster, "a")
    refusing = RefusingSink(cluster.broker("a", 1), b"7", b"31")
    cluster.run(15)
    assert came(cluster, "b") == Counter(sent) - Counter([b"7", b"31"])
    refusing.refused.clear()
    cluster.run(3)
    assert came(cluster, "b") == Counter(sent)


@pytest.mark.parametrize("refused", [1, 20])
def test_what_is_refused_for_long_makes_few_others_come_twice(refused: int) -> None:
    """Those behind the first of them come again from the master that is back."""
    cluster = ActingCluster(message_delay_level=LEVELS, total_replicas=2)
    for name in ("a", "b"):
        cluster.start_group(name).add_topic("Topic", read_queue_nums=4, write_queue_nums=4)
    cluster.run(8)
    sent = send(cluster, "a", range(2_000), 1)
    lose_master(cluster, "a")
    RefusingSink(cluster.broker("a", 1), *sent[:refused])
    cluster.run(60)
    ahead = came(cluster, "b").total()
    assert ahead <= 1_000 + 256
    cluster.start("a", 0)
    cluster.run_until(lambda: cluster.role("a", 0) is Role.MASTER)
    cluster.run(5)
    found = came(cluster, "a") + came(cluster, "b")
    assert found.keys() == set(sent) and found.total() == 2_000 + ahead


def test_what_the_master_delivered_and_did_not_tell_is_not_sent_again() -> None:
    cluster = cluster_of("a", "b")
    cluster.run(3.5)
    sent = []
    for number in range(0, 60, 4):
        sent += send(cluster, "a", range(number, number + 4), 1)
        cluster.run(0.2)
    lose_master(cluster, "a")
    cluster.run(5)
    assert came(cluster, "a", 1) + came(cluster, "b") == Counter(sent)
    assert came(cluster, "a", 1) and came(cluster, "b"), "some before, some behind"


@pytest.mark.parametrize("ahead_ms", [-5_000, -500, 500, 5_000])
def test_what_was_sent_last_is_delayed_however_clocks_differ(ahead_ms: int) -> None:
    cluster = cluster_of("a", "b")
    cluster.broker("a", 1).shift_ms = ahead_ms
    send(cluster, "a", range(4), 3)
    sent_at = cluster.clock.seconds()
    lose_master(cluster, "a")
    cluster.run_until(lambda: came(cluster, "b"))
    assert cluster.clock.seconds() - sent_at == pytest.approx(20 - ahead_ms / 1_000, abs=0.5)


def test_a_slave_that_acts_again_sends_nothing_again() -> None:
    cluster = cluster_of("a", "b")
    sent = send(cluster, "a", range(40), 2)
    lose_master(cluster, "a")
    cluster.run(8)
    assert came(cluster, "b") == Counter(sent)
    cluster.start("a", 0)
    cluster.run_until(lambda: cluster.role("a", 1) is Role.SLAVE and cluster.follows("a", 1))
    sent += send(cluster, "a", range(40, 60), 2)
    lose_master(cluster, "a")
    cluster.run(8)
    assert came(cluster, "b") == Counter(sent)


def test_progress_is_kept_when_acting_ends_and_its_version_grew() -> None:
    cluster = cluster_of("a", "b", delay_offset_update_version_step=10)
    slave = cluster.broker("a", 1)
    send(cluster, "a", range(40), 2)
    lose_master(cluster, "a")
    former = slave.broker[Delay].offsets.data_version
    cluster.run(8)
    offsets = slave.broker[Delay].offsets
    assert offsets.get(2) == 40
    assert offsets.data_version.counter >= former.counter + 4
    # Without the saves of each ten seconds: acting ends as the broker stops being the smallest.
    cluster.start("a", 0)
    cluster.run_until(lambda: cluster.role("a", 1) is Role.SLAVE)
    assert b"2:40" in slave.files.read("/store/config/delayOffset.json")


def test_a_master_that_is_heard_again_does_not_take_progress_from_one_that_acts() -> None:
    """Its tables are those of before."""
    cluster = cluster_of("a", "b")
    send(cluster, "a", range(8), 1)
    lose_master(cluster, "a")
    cluster.run(3)
    slave = cluster.broker("a", 1)
    offsets, known = slave.broker[Delay].offsets, slave.broker[Delay].offsets.get(1)
    assert known == 8
    table = offsets.table()
    table.offset_table = {1: 3}
    slave.broker[Delay].follow(table, 0)
    assert offsets.get(1) == known


def test_a_slave_started_without_a_master_repeats_what_it_had_not_kept() -> None:
    """It copies progress every 5 s and keeps it every 10 s."""
    cluster = cluster_of("a", "b")
    sent, due = [], {}
    for number in range(60):
        sent += send(cluster, "a", range(number, number + 1), 2)
        due[b"%d" % number] = cluster.clock.seconds() + 6
        cluster.run(1)
    cluster.run_until(lambda: cluster.follows("a", 1))
    died_at = cluster.clock.seconds()
    for number in range(2):
        cluster.kill("a", number)
    cluster.start("a", 1)
    cluster.run_until(lambda: cluster.acts("a", 1))
    cluster.run(10)
    before, behind = came(cluster, "a", 1), came(cluster, "b")
    assert before | behind == Counter(sent), "none is missing, each comes once through each"
    again = before & behind
    assert again and min(due[body] for body in again) > died_at - 16


@pytest.mark.parametrize("power", [False, True])
def test_an_acting_master_that_is_killed_goes_on_and_loses_nothing(power: bool) -> None:
    cluster = cluster_of("a", "b")
    sent = send(cluster, "a", range(50), 2) + send(cluster, "a", range(50, 80), 3)
    lose_master(cluster, "a")
    cluster.run_until(lambda: came(cluster, "b"))
    cluster.processes["a", 1].end(power=power, seed=1)
    cluster.start("a", 1)
    cluster.run_until(lambda: cluster.acts("a", 1))
    cluster.run(30)
    found = came(cluster, "b")
    assert found.keys() == set(sent)
    assert max(found.values()) <= 2


@pytest.mark.parametrize("seed", range(3))
def test_whatever_dies_nothing_is_lost(seed: int) -> None:
    """Each message is in some log in the end, whoever was killed meanwhile."""
    chance = Random(seed)
    cluster = cluster_of("a", "b", "c")
    sent: list[bytes] = []
    for level in (1, 2, 3):
        sent += send(cluster, "a", range(len(sent), len(sent) + 30), level)
        cluster.run(chance.uniform(0, 1))
    lose_master(cluster, "a")
    for _ in range(4):
        cluster.run(chance.uniform(0, 6))
        name, broker_id = chance.choice([("a", 1), ("b", 0), ("c", 0)])
        cluster.kill(name, broker_id)
        cluster.run(chance.uniform(0, 5))
        cluster.start(name, broker_id)
    cluster.run(40)
    found = came(cluster, "a", 1) + came(cluster, "b") + came(cluster, "c")
    assert found.keys() == set(sent), seed
