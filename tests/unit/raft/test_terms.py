"""Terms and sizes that no honest peer sends change nothing."""

from __future__ import annotations

import base64
from random import Random
from typing import Any

import pytest

from rocketmq_tw.raft.bodies import MAX_BODY_VALUES, DLedgerRequestCode
from rocketmq_tw.raft.core import messages as m
from rocketmq_tw.raft.core.codes import Code, PushKind, RaftRole, Refused, VoteResult
from rocketmq_tw.raft.core.config import RaftConfig
from rocketmq_tw.raft.core.member_state import HardState
from rocketmq_tw.raft.core.membership import MAX_TERM_STEP
from rocketmq_tw.raft.core.raft_core import RaftCore
from tests.support.raft_store import MemoryStore, entries_of_terms

HUGE = 1 << 62
TERM = 5


def member() -> RaftCore:
    config = RaftConfig(self_id="n0", members=("n0", "n1", "n2"))
    store = MemoryStore(entries_of_terms((3, 4)))
    core = RaftCore(config, store, HardState(TERM, None), -1, Random(1))
    core._state.now = 10_000
    return core


def requests(term: int) -> list[m.RaftMessage]:
    base: dict[str, Any] = {"source": "n1", "target": "n0", "term": term, "rpc": 7}
    return [
        m.VoteRequest(**base, end_index=9, end_term=4),
        m.HeartbeatRequest(**base),
        m.PushRequest(**base, kind=PushKind.COMMIT, commit_index=1),
        m.SnapshotRequest(
            **base, last_index=9, last_term=4, next_pos=99, offset=0, data=b"", done=True
        ),
    ]


@pytest.mark.parametrize("message", requests(HUGE), ids=lambda one: type(one).__name__)
def test_a_request_from_beyond_changes_nothing(message: m.RaftMessage) -> None:
    core = member()
    with pytest.raises(Refused) as refused:
        core.check(message)
    assert refused.value.code is Code.UNEXPECTED_ARGUMENT
    core.step(message, 10_000)
    core.tick(10_000)
    assert (core.term, core._state.known_max_term) == (TERM, -1)
    assert not [one for one in core._state.outbox if one.rpc == 7]


@pytest.mark.parametrize(
    "message", requests(TERM + MAX_TERM_STEP), ids=lambda one: type(one).__name__
)
def test_one_from_a_group_that_elected_long_without_us_is_followed(message: m.RaftMessage) -> None:
    core = member()
    core.check(message)
    core.step(message, 10_000)
    core.tick(10_000)
    assert core.term == TERM + MAX_TERM_STEP


def test_the_step_ends_behind_it() -> None:
    core = member()
    for message in requests(TERM + MAX_TERM_STEP + 1):
        with pytest.raises(Refused):
            core.check(message)


def test_an_answer_from_beyond_counts_as_none() -> None:
    core = member()
    core.tick(20_000)
    (asked, _) = [one for one in core._state.outbox if isinstance(one, m.VoteRequest)]
    answer = m.VoteResponse(
        source=asked.target,
        target="n0",
        term=HUGE,
        rpc=asked.rpc,
        result=VoteResult.REJECT_EXPIRED_VOTE_TERM,
    )
    core.step(answer, 20_000)
    core.tick(60_000)
    assert core.term < TERM + 3


def test_a_leader_does_not_give_way_to_an_answer_from_beyond() -> None:
    core = member()
    core._state.become_leader()
    for now in range(10_000, 60_000, 100):
        core.tick(now)
        for beat in core._state.outbox:
            if isinstance(beat, m.HeartbeatRequest):
                code = Code.SUCCESS if beat.target == "n1" else Code.EXPIRED_TERM
                term = TERM if beat.target == "n1" else HUGE
                core.step(
                    m.HeartbeatResponse(
                        source=beat.target, target="n0", term=term, rpc=beat.rpc, code=code
                    ),
                    now,
                )
        core._state.outbox.clear()
    assert core.role is RaftRole.LEADER and core.term == TERM


def test_a_group_goes_on_electing(group: Any) -> None:
    leader = group.elect()
    other = next(member for member in group.nodes if member != leader)
    for target in group.nodes:
        answer = group.ask(
            target,
            DLedgerRequestCode.HEART_BEAT,
            {"group": "g", "remoteId": target, "leaderId": other, "term": HUGE},
        )
        assert answer["code"] in (Code.UNEXPECTED_ARGUMENT, Code.UNEXPECTED_MEMBER)
    group.run(1)
    assert group.nodes[leader].is_leader
    group.stop(leader)
    assert group.elect() != leader


def test_a_batch_of_more_entries_than_may_wait_is_refused(group: Any) -> None:
    leader = group.elect()
    most = group.nodes[leader].core.config.max_pending_requests
    bodies = [base64.b64encode(b"{}").decode()] * (most + 1)
    answer = group.ask(
        leader, DLedgerRequestCode.APPEND, {"group": "g", "remoteId": leader, "batchMsgs": bodies}
    )
    assert answer["code"] == Code.UNEXPECTED_ARGUMENT
    assert group.nodes[leader].core.log.end_index == -1


def test_a_push_of_very_many_entries_of_nothing_is_not_read(group: Any) -> None:
    leader = group.elect()
    body = b'{"batchEntry":[%b{}]}' % (b"{}," * (MAX_BODY_VALUES * 2))
    assert group.ask(leader, DLedgerRequestCode.PUSH, body)["code"] == Code.UNEXPECTED_ARGUMENT
