"""Rules of the protocol, left out one by one: the simulation must notice each."""

from collections.abc import Callable

import pytest

from rocketmq_tw.raft.core import election, follower, heartbeat, log, raft_core, replication
from rocketmq_tw.raft.core.codes import Code, RaftRole
from rocketmq_tw.raft.core.member_state import MemberState
from rocketmq_tw.raft.core.messages import PushResponse
from rocketmq_tw.raft.store import recovery
from rocketmq_tw.raft.store.ledger import Ledger
from rocketmq_tw.store.segments import Segments
from tests.support.raft_cluster import (
    Faults,
    SimCluster,
    SimMember,
    failing_disks,
    simulate,
)
from tests.support.raft_history import Operation
from tests.support.raft_invariants import Violation

Patch = Callable[[pytest.MonkeyPatch], None]


def votes_without_looking_at_the_log(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(election, "_check_log", lambda state, request: None)


def votes_for_everybody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(election, "_check_term", lambda state, request: None)


def elections_by_a_minority(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(election, "is_quorum", lambda count, members: count >= members // 2)


def commits_by_a_minority(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(replication, "quorum_index", lambda indexes: max(indexes))


def votes_that_are_not_stored(patch: pytest.MonkeyPatch) -> None:
    def set_vote(state: MemberState, candidate: str) -> None:
        state.vote_for = candidate

    patch.setattr(MemberState, "set_vote", set_vote)


def entries_that_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ledger, "sync", lambda self: None)
    patch.setattr(Segments, "sync", lambda self: None)


def commits_of_what_was_not_compared(patch: pytest.MonkeyPatch) -> None:
    def become_follower(state: MemberState, leader_id: str) -> None:
        state.matched_index = state.log.end_index
        state._become(RaftRole.FOLLOWER, leader_id)

    patch.setattr(MemberState, "become_follower", become_follower)


def late_truncations_that_cut(patch: pytest.MonkeyPatch) -> None:
    def truncate(self: follower.Follower, entry: log.Entry) -> Code:
        state = self._state
        if not state.log.matches(entry):
            return Code.INCONSISTENT_STATE
        state.log.truncate_after(entry.index)
        state.matched_index = entry.index
        return Code.SUCCESS

    patch.setattr(follower.Follower, "_truncate", truncate)


def checkpoints_of_what_is_not_stored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimMember, "write_checkpoint", write_the_commit_index)


def write_the_commit_index(member: SimMember) -> None:
    member.store.write_checkpoint(member.core.commit_index)


def answers_that_do_not_wait(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(raft_core, "_UNBOUND", (*raft_core._UNBOUND, PushResponse))


#: The seed that is tried first, where the first of all finds nothing: one that found it once.
FOUND_BY: dict[Patch, int] = {
    votes_without_looking_at_the_log: 4,
    commits_by_a_minority: 9,
    votes_that_are_not_stored: 2,
    checkpoints_of_what_is_not_stored: 1250,
}


@pytest.mark.parametrize(
    "leave_out",
    [
        votes_without_looking_at_the_log,
        votes_for_everybody,
        elections_by_a_minority,
        commits_by_a_minority,
        votes_that_are_not_stored,
        entries_that_are_not_synced,
        commits_of_what_was_not_compared,
        late_truncations_that_cut,
        checkpoints_of_what_is_not_stored,
        answers_that_do_not_wait,
    ],
    ids=lambda rule: rule.__name__,
)
def test_a_missing_rule_is_noticed(leave_out: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch)
    with pytest.raises(Violation, match="seed"):
        for seed in (FOUND_BY.get(leave_out, 0), *range(400)):
            simulate(seed)


def test_a_start_that_takes_what_it_reads_for_durable_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recovery, "_write_again", lambda segments, since, end: None)
    with pytest.raises(Violation, match="seed"):
        for seed in range(400):
            simulate(seed, faults=failing_disks(seed))


def read_from_an_old_leader() -> Operation:
    """A leader with a slow clock behind a partition, where the others have another one and a later
    value, is asked for the value; then all is healed and checked."""
    cluster = SimCluster(1, members=3, faults=Faults())

    def run_until(condition: Callable[[], object]) -> None:
        while not condition():
            assert cluster.step() and cluster.time < 60_000_000

    def leaders() -> list[SimMember]:
        members = cluster.members.values()
        return [one for one in members if one.up and one.core.role is RaftRole.LEADER]

    def write(member: SimMember, value: str) -> Operation:
        operation = Operation("k", cluster.time, value)
        cluster.operations.append(operation)
        cluster._write(member, operation)
        member.run(lambda: None)
        return operation

    run_until(leaders)
    (old,) = leaders()
    first = write(old, "first")
    run_until(lambda: first.ended)
    old.rate /= 100
    cluster._islands[old.id] = 1
    run_until(lambda: len(leaders()) == 2)
    second = write(next(one for one in leaders() if one is not old), "second")
    run_until(lambda: second.ended)
    cluster.run_until(cluster.time + 1)
    read = Operation("k", cluster.time)
    cluster.operations.append(read)
    old.core.request_read(1)
    old.reads[1] = read
    old.run(lambda: None)
    cluster.run_until(cluster.time + 10_000)
    old.rate *= 100
    cluster.heal()
    run_until(lambda: cluster.converged and cluster.last_write_done)
    cluster.check_end()
    return read


def test_a_read_from_an_old_leader_is_not_answered() -> None:
    assert read_from_an_old_leader().ended is None


def test_reads_that_no_quorum_confirms_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    newest = property(lambda beats: beats._round)
    monkeypatch.setattr(heartbeat.Heartbeats, "confirmed_round", newest)
    with pytest.raises(Violation, match="which had ended"):
        read_from_an_old_leader()
