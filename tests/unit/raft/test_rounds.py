"""What a candidate does after each of the seven ends of a round, and a leader after each of its
rounds of heartbeats: a row each, with the paragraph of "DLedger leader election"."""

from random import Random

import pytest

from rocketmq_tw.raft.core.codes import Code, RaftRole, VoteResult
from rocketmq_tw.raft.core.config import RaftConfig
from rocketmq_tw.raft.core.member_state import HardState
from rocketmq_tw.raft.core.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    RaftMessage,
    VoteRequest,
    VoteResponse,
)
from rocketmq_tw.raft.core.raft_core import RaftCore
from tests.support.raft_store import MemoryStore, entries_of_terms

CONFIG = RaftConfig(self_id="n0", members=("n0", "n1", "n2"))
V, C = VoteResult, Code
NO = V.UNKNOWN
START = 10_000


def member() -> RaftCore:
    """Member n0 in term 5, with an entry of term 3 and one of term 4."""
    core = RaftCore(
        CONFIG, MemoryStore(entries_of_terms((3, 4))), HardState(5, None), -1, Random(1)
    )
    core.tick(START)
    return core


def said(core: RaftCore, kind: type[RaftMessage]) -> list[RaftMessage]:
    """What it has sent of one kind since the last look."""
    messages: list[RaftMessage] = []
    while (ready := core.ready()) is not None:
        messages += [*ready.immediate, *ready.messages]
        core.advance()
    return [one for one in messages if type(one) is kind]


def answer_votes(core: RaftCore, answers: list[tuple[VoteResult, int]], now: int) -> None:
    for request, (result, term) in zip(said(core, VoteRequest), answers, strict=True):
        core.step(
            VoteResponse(
                source=request.target, target="n0", term=term, rpc=request.rpc, result=result
            ),
            now,
        )


def answer_beats(core: RaftCore, answers: list[tuple[Code, int]], now: int) -> None:
    for request, (code, term) in zip(said(core, HeartbeatRequest), answers, strict=True):
        core.step(
            HeartbeatResponse(
                source=request.target, target="n0", term=term, rpc=request.rpc, code=code
            ),
            now,
        )


def elected() -> RaftCore:
    """The leader of term 5, whose first heartbeats were answered."""
    core = member()
    answer_votes(core, [(V.ACCEPT, 5), (V.ACCEPT, 5)], START)
    answer_beats(core, [(C.SUCCESS, 5), (C.SUCCESS, 5)], START)
    return core


def test_vote_dispatch_1_to_5() -> None:
    asked = said(member(), VoteRequest)
    assert [(one.source, one.target, one.term) for one in asked] == [
        ("n0", "n1", 5),
        ("n0", "n2", 5),
    ]
    assert all(isinstance(one, VoteRequest) for one in asked)
    assert {(one.end_index, one.end_term) for one in asked if isinstance(one, VoteRequest)} == {
        (1, 4)
    }


ENDS = [
    # paragraph, the answers of n1 and n2, bounds of the wait (ms), term of the next round
    ("case 1: a higher term is taken over", [(V.REJECT_EXPIRED_VOTE_TERM, 9)] * 2, (300, 999), 9),
    ("case 1: before any other", [(V.REJECT_EXPIRED_VOTE_TERM, 9), (V.ACCEPT, 5)], (300, 999), 9),
    ("case 2: wait for that leader", [(V.REJECT_ALREADY_HAS_LEADER, 5), (NO, -1)], (6300, 6999), 5),
    ("case 3: too few answers", [(NO, -1), (NO, -1)], (300, 999), 5),
    ("case 4: longer", [(V.REJECT_SMALL_LEDGER_END_INDEX, 5)] * 2, (1300, 1999), 5),
    ("case 4: newer", [(V.REJECT_EXPIRED_LEDGER_TERM, 5)] * 2, (1300, 1999), 5),
    ("case 6: again at once", [(V.REJECT_TERM_NOT_READY, 3), (NO, -1)], (10, 10), 5),
    ("case 7: split votes", [(V.REJECT_ALREADY_VOTED, 5), (NO, -1)], (300, 999), 6),
]


@pytest.mark.parametrize(("paragraph", "answers", "wait", "term"), ENDS, ids=[e[0] for e in ENDS])
def test_after_a_round_without_success(
    paragraph: str,
    answers: list[tuple[VoteResult, int]],
    wait: tuple[int, int],
    term: int,
) -> None:
    core = member()
    answer_votes(core, answers, START + 40)
    assert core.role is RaftRole.CANDIDATE and core.term == 5
    due = core.election.next_vote_at
    assert wait[0] <= due - START - 40 <= wait[1]
    core.tick(due - 1)
    assert said(core, VoteRequest) == []
    core.tick(due)
    assert {one.term for one in said(core, VoteRequest)} == {term}


def test_case_5_the_winner_leads_and_sends_heartbeats_at_once() -> None:
    core = member()
    answer_votes(core, [(V.ACCEPT, 5), (NO, -1)], START + 40)
    assert core.role is RaftRole.LEADER and core.leader_id == "n0" and core.term == 5
    assert [one.target for one in said(core, HeartbeatRequest)] == ["n1", "n2"]


def test_candidate_2_who_follows_or_leads_asks_for_no_votes() -> None:
    follower = member()
    said(follower, VoteRequest)
    follower.step(HeartbeatRequest(source="n1", target="n0", term=5), START)
    for core in (follower, elected()):
        core.tick(START + 5000)
        assert said(core, VoteRequest) == []


def test_sending_heartbeats_1_to_3_in_each_interval_to_all_others() -> None:
    core = elected()
    core.tick(START + 1999)
    assert said(core, HeartbeatRequest) == []
    core.tick(START + 2000)
    beats = said(core, HeartbeatRequest)
    assert [(one.source, one.target, one.term) for one in beats] == [
        ("n0", "n1", 5),
        ("n0", "n2", 5),
    ]


BEATS = [
    # paragraph, the answers of n1 and n2, role, when the next heartbeat leaves (None: never)
    ("1: a quorum", [(C.SUCCESS, 5), (C.NETWORK_ERROR, -1)], RaftRole.LEADER, 2000),
    ("2 (1): not ready", [(C.TERM_NOT_READY, 4), (C.TERM_NOT_READY, 4)], RaftRole.LEADER, 10),
    ("2 (2): a higher term", [(C.EXPIRED_TERM, 9), (C.EXPIRED_TERM, 7)], RaftRole.CANDIDATE, None),
    ("2 (3): inconsistent", [(C.INCONSISTENT_LEADER, 5)] * 2, RaftRole.CANDIDATE, None),
    ("2 (4): not silent long enough", [(C.NETWORK_ERROR, -1)] * 2, RaftRole.LEADER, 2000),
]


@pytest.mark.parametrize(
    ("paragraph", "answers", "role", "wait"), BEATS, ids=[beat[0] for beat in BEATS]
)
def test_after_a_round_of_heartbeats(
    paragraph: str, answers: list[tuple[Code, int]], role: RaftRole, wait: int | None
) -> None:
    core = elected()
    now = START + 2000
    core.tick(now)
    answer_beats(core, answers, now)
    assert core.role is role and core.term == 5
    if wait is None:
        assert core.leader_id is None
        core.tick(max(now, core.election.next_vote_at))
        assert said(core, VoteRequest)
        return
    core.tick(now + wait - 1)
    assert said(core, HeartbeatRequest) == []
    core.tick(now + wait)
    assert len(said(core, HeartbeatRequest)) == 2


def test_heartbeat_responses_2_2_the_higher_term_is_the_next_rounds() -> None:
    core = elected()
    core.tick(START + 2000)
    answer_beats(core, [(C.EXPIRED_TERM, 9), (C.EXPIRED_TERM, 7)], START + 2000)
    core.tick(START + 3000)
    assert {one.term for one in said(core, VoteRequest)} == {9}


def test_heartbeat_responses_2_4_silence_for_three_intervals_ends_a_leader() -> None:
    core = elected()
    for now in (START + 2000, START + 4000, START + 6000):
        core.tick(now)
        answer_beats(core, [(C.NETWORK_ERROR, -1)] * 2, now)
        assert core.role is RaftRole.LEADER
    core.tick(START + 8000)
    assert core.role is RaftRole.CANDIDATE and core.leader_id is None
