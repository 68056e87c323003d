"""What was under way when a master died comes once, though it returns in the middle of it."""

from __future__ import annotations

from collections import Counter

import pytest

from rocketmq_tw.broker.role.state import Role
from tests.support.broker import ok
from tests.support.sim.acting import ActingCluster
from tests.support.transactions import begin, connect, questions


def came(cluster: ActingCluster, name: str) -> Counter[bytes]:
    """What consumers of a master see."""
    broker = cluster.broker(name, 0)
    return Counter(message.body for queue in range(4) for message in broker.consume("Topic", queue))


@pytest.mark.parametrize("away", [6.0, 11.5])
def test_nothing_comes_twice_when_the_master_returns(away: float) -> None:
    cluster = ActingCluster(total_replicas=2, message_delay_level="1s 15s 25s")
    for name in ("a", "b"):
        master = cluster.start_group(name)
        master.add_topic("Topic", read_queue_nums=4, write_queue_nums=4)
    cluster.run(8)
    master, sent = cluster.broker("a", 0), []
    now = master.now_ms()
    for number in range(60):
        body = b"delayed%d" % number
        wanted = {"DELAY": str(2 + number % 2), "UNIQ_KEY": body.decode()}
        ok(master.send(body, queue_id=number % 4, properties=wanted))
        sent.append(body)
    for number in range(60):
        body = b"timed%d" % number
        due = now + 12_000 + 1_000 * (number // 4)
        wanted = {"TIMER_DELIVER_MS": str(due), "UNIQ_KEY": body.decode()}
        ok(master.send(body, queue_id=number % 4, properties=wanted))
        sent.append(body)
    for number in range(20):
        begin(master, b"half%d" % number)
    cluster.run(6)
    cluster.run_until(lambda: cluster.follows("a", 1))
    cluster.kill("a", 0)
    cluster.run_until(lambda: cluster.acts("a", 1))
    cluster.run(away)
    cluster.start("a", 0)
    cluster.run_until(lambda: cluster.role("a", 0) is Role.MASTER)
    producer = connect(cluster.broker("a", 0))
    cluster.run(40)
    meanwhile, later = came(cluster, "b"), came(cluster, "a")
    assert meanwhile and later, "some came through the other group, and some afterwards"
    found = meanwhile + later
    assert found.keys() == set(sent)
    again = {body for body, count in found.items() if count > 1}
    # Of timed messages those of the slot that was being delivered: a checkpoint names slots.
    assert len(again) <= 4 and all(body.startswith(b"timed") for body in again), sorted(again)
    assert questions(producer) == [], "the other group asks about them"
