"""A slave acts behind another one that acted: it goes on from that one's progress."""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest.mock import patch

import pytest

from rocketmq_tw.broker.cluster.group_members import GroupMembers
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from tests.support.broker import ok
from tests.support.sim.acting import NOT_ACTIVE_MS, ActingCluster
from tests.support.sim.simulation import Process


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


def master_returns(cluster: ActingCluster) -> None:
    cluster.start("a", 0)
    cluster.run_until(lambda: cluster.role("a", 0) is Role.MASTER)


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
        cut_off(cluster, cluster.processes["a", 1])
    cluster.run_until(lambda: cluster.acts("a", 2))
    assert offsets(cluster, 2) == [10] * 4
    cluster.run(40)
    other = cluster.broker("b", 0)
    came = Counter(m.body for queue in range(4) for m in other.consume("Topic", queue))
    assert len(came) == 60 and came.total() == 60


def cut_off(cluster: ActingCluster, process: Process) -> None:
    host = process.host
    for other in [*cluster.name_servers, *cluster.processes.values()]:
        if other.host != host:
            cluster.network.cut |= {(other.host, host), (host, other.host)}


@pytest.mark.parametrize("how", ["paused", "cut off"])
def test_an_acting_slave_that_was_away_goes_on_where_the_next_one_was(how: str) -> None:
    """It would put group offsets back, and send again all that the other one sent."""
    cluster = cluster_of_three()
    cluster.kill("a", 0)
    cluster.run_until(lambda: cluster.acts("a", 1))
    process = cluster.processes["a", 1]
    process.pause() if how == "paused" else cut_off(cluster, process)
    cluster.run_until(lambda: cluster.acts("a", 2))
    for queue_id in range(4):
        cluster.broker("a", 2).offsets.commit("G", "Topic", queue_id, 10)
    cluster.run(40)
    process.go_on() if how == "paused" else cluster.network.heal()
    cluster.run_until(lambda: cluster.acts("a", 1) and not cluster.acts("a", 2))
    assert offsets(cluster, 1) == [10] * 4
    cluster.run(40)
    other = cluster.broker("b", 0)
    came = Counter(m.body for queue in range(4) for m in other.consume("Topic", queue))
    assert len(came) == 60
    # One that was paused has some in its hands before it can ask anybody.
    assert came.total() == 60 or how == "paused"


def test_what_name_servers_said_before_a_pause_is_no_news() -> None:
    """Their answers wait in the socket of a process that stands still behind its question."""
    cluster = cluster_of_three()
    cluster.kill("a", 0)
    cluster.run_until(lambda: cluster.acts("a", 1))
    process, ask = cluster.processes["a", 1], GroupMembers.ask
    who = cluster.broker("a", 1).config

    def ask_and_pause(members: GroupMembers) -> Any:
        asked = ask(members)
        if members._config is who and not process.is_paused:
            process.pause()
        return asked

    with patch.object(GroupMembers, "ask", ask_and_pause):
        cluster.run_until(lambda: process.is_paused)
    cluster.run_until(lambda: cluster.acts("a", 2))
    for queue_id in range(4):
        cluster.broker("a", 2).offsets.commit("G", "Topic", queue_id, 10)
    cluster.run(40)
    process.go_on()
    cluster.run_until(lambda: cluster.acts("a", 1) and not cluster.acts("a", 2))
    cluster.run(2)
    assert offsets(cluster, 1) == [10] * 4


def test_one_that_does_not_tell_keeps_nobody_from_acting_for_long() -> None:
    cluster = cluster_of_three()
    cluster.kill("a", 0)
    cluster.run_until(lambda: cluster.acts("a", 1))
    first, second = (cluster.processes["a", number] for number in (1, 2))
    cut_off(cluster, first)
    cluster.run_until(lambda: cluster.acts("a", 2))
    cluster.network.heal()
    cluster.network.cut |= {(first.host, second.host), (second.host, first.host)}
    cluster.run_until(lambda: not cluster.acts("a", 2))
    cluster.run(NOT_ACTIVE_MS / 1000 + 10)
    assert cluster.acts("a", 1) and not cluster.acts("a", 2)


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
    master_returns(cluster)
    assert offsets(cluster, 0) == [1, 2, 2, 2]


def test_what_the_group_did_later_counts_more_than_that_it_was_put_back() -> None:
    """A client went back a little at the first slave; the second one went on for long."""
    cluster = cluster_of_three()
    cluster.kill("a", 0)
    cluster.run_until(lambda: cluster.acts("a", 1))
    for offset in (4, 3, 5):
        cluster.broker("a", 1).offsets.commit("G", "Topic", 0, offset)
    cluster.run(22)
    cluster.kill("a", 1)
    cluster.run_until(lambda: cluster.acts("a", 2))
    cluster.broker("a", 2).offsets.commit("G", "Topic", 0, 9)
    cluster.run(1)
    cluster.start("a", 1)
    cluster.run_until(lambda: cluster.acts("a", 1))
    assert offsets(cluster, 1)[0] == 9
    master_returns(cluster)
    assert offsets(cluster, 0)[0] == 9


def put_back_while_alone(cluster: ActingCluster, *, rewind: bool) -> None:
    """The second slave acts alone and the group goes back from 8 to 1; then the first one acts."""
    cluster.broker("a", 0).offsets.commit("G", "Topic", 0, 8)
    # Until all is delivered: nothing is taken from a slave whose log is longer.
    cluster.run(30)
    cluster.kill("a", 1)
    cluster.run(4)
    cluster.kill("a", 0)
    cluster.run_until(lambda: cluster.acts("a", 2))
    acting = cluster.broker("a", 2)
    if rewind:
        acting.offsets.commit("G", "Topic", 0, 1)
    else:
        acting.offsets.reset("G", "Topic", 0, 1)
        acting.offsets.take_reset("G", "Topic", 0)
    cluster.run(12)
    cluster.start("a", 1)
    cluster.run_until(lambda: cluster.acts("a", 1))
    assert offsets(cluster, 1)[0] == 1


@pytest.mark.parametrize("rewind", [False, True])
@pytest.mark.parametrize("seconds", [0, 12])
def test_a_group_that_was_put_back_goes_on_from_there(rewind: bool, seconds: int) -> None:
    cluster = cluster_of_three()
    put_back_while_alone(cluster, rewind=rewind)
    cluster.broker("a", 1).offsets.commit("G", "Topic", 0, 5)
    cluster.run(seconds)
    if seconds:
        cluster.kill("a", 1)
        cluster.run_until(lambda: cluster.acts("a", 2))
        assert offsets(cluster, 2)[0] == 5
    master_returns(cluster)
    assert offsets(cluster, 0)[0] == 5


@pytest.mark.parametrize("left", [1, 2])
def test_that_a_group_was_put_back_is_told_by_whoever_is_left(left: int) -> None:
    cluster = cluster_of_three()
    put_back_while_alone(cluster, rewind=False)
    cluster.run(12)
    cluster.kill("a", 3 - left)
    cluster.run(4)
    master_returns(cluster)
    assert offsets(cluster, 0)[0] == 1


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
