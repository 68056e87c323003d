"""A slave acts behind another one that acted: it goes on from that one's progress."""

from __future__ import annotations

from collections import Counter

import pytest

from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from tests.support.broker import ok
from tests.support.sim.acting import ActingCluster


def cluster_of_three() -> ActingCluster:
    """Group `a` with two slaves, and `b`; `Topic` has 40 messages in `a`, and `G` is at 2 in each
    queue; 40 delayed ones are due in 15 s, 20 timed ones in 20 s."""
    cluster = ActingCluster(total_replicas=3, message_delay_level="1s 15s 25s")
    for name, slaves in (("a", 2), ("b", 1)):
        master = cluster.start_group(name, slaves)
        master.add_topic("Topic", read_queue_nums=4, write_queue_nums=4)
        master.groups.update(SubscriptionGroupConfig(group_name="G"))
    cluster.run(8)
    master = cluster.broker("a", 0)
    due = str(master.now_ms() + 20_000)
    for number in range(40):
        ok(master.send(b"plain%d" % number, queue_id=number % 4))
        body, unique = b"delayed%d" % number, f"d{number}"
        ok(master.send(body, queue_id=number % 4, properties={"DELAY": "2", "UNIQ_KEY": unique}))
    for number in range(20):
        wanted = {"TIMER_DELIVER_MS": due, "UNIQ_KEY": f"t{number}"}
        ok(master.send(b"timed%d" % number, queue_id=number % 4, properties=wanted))
    for queue_id in range(4):
        master.offsets.commit("G", "Topic", queue_id, 2)
    cluster.run(7)
    cluster.run_until(lambda: cluster.follows("a", 1) and cluster.follows("a", 2))
    return cluster


def offsets(cluster: ActingCluster, number: int) -> list[int]:
    return [cluster.broker("a", number).offsets.query("G", "Topic", queue) for queue in range(4)]


@pytest.mark.parametrize("how", ["killed", "cut off"])
def test_the_next_slave_goes_on_where_the_acting_one_was(how: str) -> None:
    cluster = cluster_of_three()
    cluster.kill("a", 0)
    cluster.run_until(lambda: cluster.acts("a", 1))
    for queue_id in range(4):
        cluster.broker("a", 1).offsets.commit("G", "Topic", queue_id, 10)
    cluster.run(40)
    if how == "killed":
        cluster.kill("a", 1)
    else:
        host = cluster.processes["a", 1].host
        for process in [*cluster.name_servers, *cluster.processes.values()]:
            if process.host != host:
                cluster.network.cut |= {(process.host, host), (host, process.host)}
    cluster.run_until(lambda: cluster.acts("a", 2))
    assert offsets(cluster, 2) == [10] * 4
    cluster.run(40)
    other = cluster.broker("b", 0)
    came = Counter(m.body for queue in range(4) for m in other.consume("Topic", queue))
    assert len(came) == 60 and came.total() == 60


def test_a_reset_at_the_acting_slave_counts_at_the_other_one() -> None:
    cluster = cluster_of_three()
    cluster.kill("a", 0)
    cluster.run_until(lambda: cluster.acts("a", 1))
    acting = cluster.broker("a", 1)
    acting.offsets.commit("G", "Topic", 0, 10)
    cluster.run(12)
    assert offsets(cluster, 2) == [10, 2, 2, 2]
    acting.offsets.reset("G", "Topic", 0, 1)
    acting.offsets.take_reset("G", "Topic", 0)
    cluster.run(12)
    assert offsets(cluster, 2) == [1, 2, 2, 2]
    cluster.start("a", 0)
    cluster.run_until(lambda: cluster.role("a", 0) is Role.MASTER)
    assert offsets(cluster, 0) == [1, 2, 2, 2]


def test_nothing_is_taken_from_a_slave_whose_log_is_longer() -> None:
    cluster = cluster_of_three()
    pair = cluster.processes["a", 0].host, cluster.processes["a", 2].host
    cluster.network.cut |= {pair, pair[::-1]}
    ok(cluster.broker("a", 0).send(b"more", queue_id=0))
    cluster.run_until(lambda: cluster.follows("a", 1))
    cluster.kill("a", 0)
    cluster.run_until(lambda: cluster.acts("a", 1))
    cluster.broker("a", 1).offsets.commit("G", "Topic", 0, 21)
    cluster.run(12)
    assert offsets(cluster, 2) == [2] * 4
