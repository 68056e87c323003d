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
