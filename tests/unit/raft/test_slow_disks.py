"""A group whose disks are slow: it goes on committing, and its leader stays the leader."""

from typing import Any

import pytest

from rocketmq_tw.raft.node import RaftNode
from tests.support.raft_kv import Put, encode_kv_command
from tests.unit.raft.conftest import PEERS, NodeGroup


def append(node: RaftNode) -> list[Any]:
    """Proposes an entry; what became of it."""
    outcomes: list[Any] = []
    for done in node.propose([encode_kv_command(Put("k", "v"))]):
        done.addBoth(outcomes.append)
    return outcomes


def append_for(group: NodeGroup, leader: str, seconds: int) -> list[int]:
    """An entry a second; the leader's commit index after each second."""
    found = []
    for _ in range(seconds):
        append(group.nodes[leader])
        group.run(1.0)
        found.append(group.nodes[leader].core.commit_index)
    return found


@pytest.mark.parametrize("seconds", [0.7, 1.5, 2.5, 4.0])
def test_a_group_commits_although_followers_answer_behind_the_time_out(
    group: NodeGroup, seconds: float
) -> None:
    leader = group.elect()
    group.disk_seconds = {member: seconds for member in PEERS if member != leader}
    found = append_for(group, leader, 60)
    assert group.nodes[leader].is_leader
    waits = [after - before for before, after in zip(found[:-12], found[12:], strict=True)]
    assert min(waits) > 0, f"nothing was committed for 12 s: {found}"
    group.run(20)
    assert group.nodes[leader].core.commit_index == 59


def test_a_leader_whose_disk_is_slow_stays_the_leader(group: NodeGroup) -> None:
    leader = group.elect()
    term = group.nodes[leader].core.term
    group.disk_seconds = {leader: 10.0}
    append(group.nodes[leader])
    group.run(11.0)
    assert group.nodes[leader].is_leader
    assert {node.core.term for node in group.nodes.values()} == {term}
    assert group.nodes[leader].core.commit_index == 0


def test_followers_whose_disks_are_slow_elect_nobody(group: NodeGroup) -> None:
    leader = group.elect()
    term = group.nodes[leader].core.term
    group.disk_seconds = {member: 15.0 for member in PEERS if member != leader}
    append(group.nodes[leader])
    group.run(14.0)
    assert group.nodes[leader].is_leader
    assert {node.core.term for node in group.nodes.values()} == {term}


def test_a_leader_whose_disk_hangs_is_replaced(group: NodeGroup) -> None:
    leader = group.elect()
    group.disk_seconds = {leader: 1e6}
    append(group.nodes[leader])
    assert group.run_until(
        lambda: any(node.is_leader for name, node in group.nodes.items() if name != leader),
        limit=40.0,
    )
    assert not group.nodes[leader].is_leader
