"""A row for every condition that the protocol's description names, with its paragraph.

The paragraphs are the headings of "DLedger leader election": candidate, vote request, vote
responses, heartbeat request, heartbeat responses, follower.
"""

from random import Random
from typing import Any

import pytest

from rocketmq_tw.raft.core.codes import Code, ParseResult, RaftRole, VoteResult
from rocketmq_tw.raft.core.config import RaftConfig
from rocketmq_tw.raft.core.election import (
    Outcome,
    VoteTally,
    extra_wait,
    judge_round,
)
from rocketmq_tw.raft.core.heartbeat import BeatTally, Verdict, judge_beat
from rocketmq_tw.raft.core.member_state import HardState
from rocketmq_tw.raft.core.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    VoteRequest,
    VoteResponse,
)
from rocketmq_tw.raft.core.raft_core import RaftCore
from rocketmq_tw.structs import msgspec
from tests.support.raft_store import MemoryStore, entries_of_terms

CONFIG = RaftConfig(self_id="n0", members=("n0", "n1", "n2"), preferred_leader_ids=("n0",))


def member(
    *,
    term: int = 5,
    vote: str | None = None,
    terms: tuple[int, ...] = (3, 4),
    config: RaftConfig = CONFIG,
) -> RaftCore:
    """A member in `term` whose log has an entry for each of `terms`."""
    store = MemoryStore(entries_of_terms(terms))
    core = RaftCore(config, store, HardState(term, vote), -1, Random(1))
    core._state.now = 10_000
    return core


def drain(core: RaftCore) -> None:
    """All that it wants done is done."""
    while core.ready() is not None:
        core.advance()


def vote_of(core: RaftCore, source: str, term: int, end: tuple[int, int]) -> VoteResponse:
    """The answer to a candidate whose last entry is `end` = (term, index)."""
    request = VoteRequest(
        source=source, target="n0", term=term, rpc=7, end_term=end[0], end_index=end[1]
    )
    core.step(request, 10_000)
    (answer,) = [one for one in core._state.outbox if isinstance(one, VoteResponse)]
    assert answer.rpc == 7
    return answer


V = VoteResult
OURS = (4, 1)
VOTES = [
    # paragraph, who asks, its term, its last entry, how we stand, answer
    ("vote request 1: not one of the group", "n9", 5, OURS, {}, V.REJECT_UNKNOWN_LEADER),
    ("vote request 1: ourselves from outside", "n0", 5, OURS, {}, V.REJECT_UNEXPECTED_LEADER),
    ("vote request 2: older last term", "n1", 5, (3, 9), {}, V.REJECT_EXPIRED_LEDGER_TERM),
    (
        "vote request 2: same last term, shorter",
        "n1",
        5,
        (4, 0),
        {},
        V.REJECT_SMALL_LEDGER_END_INDEX,
    ),
    ("vote request 2 before 3", "n1", 9, (3, 9), {}, V.REJECT_EXPIRED_LEDGER_TERM),
    ("vote request 3: smaller term", "n1", 4, OURS, {}, V.REJECT_EXPIRED_VOTE_TERM),
    ("vote request 3: equal, no vote yet", "n1", 5, OURS, {}, V.ACCEPT),
    ("vote request 3: equal, the same again", "n1", 5, OURS, {"vote": "n1"}, V.ACCEPT),
    (
        "vote request 3: equal, another has it and leads",
        "n1",
        5,
        OURS,
        {"vote": "n2", "leader": "n2"},
        V.REJECT_ALREADY_HAS_LEADER,
    ),
    (
        "vote request 3: equal, another has it",
        "n1",
        5,
        OURS,
        {"vote": "n2"},
        V.REJECT_ALREADY_VOTED,
    ),
    ("vote request 3: greater term", "n1", 6, OURS, {}, V.REJECT_TERM_NOT_READY),
    (
        "vote request 4: a term below our last entry's",
        "n1",
        4,
        (6, 1),
        {"term": 4, "terms": (3, 6)},
        V.REJECT_TERM_SMALL_THAN_LEDGER,
    ),
    ("vote request 5: newer last term", "n1", 5, (5, 0), {}, V.ACCEPT),
    ("vote request 5: same last term, longer", "n1", 5, (4, 9), {}, V.ACCEPT),
    (
        "vote request 5: a preferred leader that takes over",
        "n1",
        5,
        OURS,
        {"taking": True},
        V.REJECT_TAKING_LEADERSHIP,
    ),
    ("vote request 5: it gives way to a longer log", "n1", 5, (4, 2), {"taking": True}, V.ACCEPT),
]


@pytest.mark.parametrize(
    ("paragraph", "source", "term", "end", "standing", "expected"), VOTES, ids=[v[0] for v in VOTES]
)
def test_vote(
    paragraph: str,
    source: str,
    term: int,
    end: tuple[int, int],
    standing: dict[str, Any],
    expected: VoteResult,
) -> None:
    leader, taking = standing.get("leader"), standing.get("taking", False)
    vote, own_term = standing.get("vote"), standing.get("term", 5)
    core = member(term=own_term, vote=vote, terms=standing.get("terms", (3, 4)))
    if leader is not None:
        core.step(HeartbeatRequest(source=leader, target="n0", term=own_term), 10_000)
        drain(core)
    if taking:
        core._state.term_to_take = own_term
    answer = vote_of(core, source, term, end)
    assert answer.result is expected
    below = expected is V.REJECT_TERM_SMALL_THAN_LEDGER
    assert answer.term == (core.log.end_term if below else own_term)
    assert core.term == own_term and core.vote_for == (source if expected is V.ACCEPT else vote)
    ready = core.ready()
    assert ready is not None
    newly = expected is V.ACCEPT and vote is None
    assert ready.hard_state == (HardState(own_term, source) if newly else None)
    # A vote leaves only after it is stored.
    assert bool(ready.messages) == newly


def test_candidate_1_and_3_a_greater_term_is_gone_to_at_once() -> None:
    core = member()
    vote_of(core, "n1", 8, OURS)
    drain(core)
    assert core.role is RaftRole.CANDIDATE and core.term == 5
    assert core.election.increase_term_at_once
    core.tick(10_010)
    assert core.term == 8 and core.vote_for is None
    assert not core.election.increase_term_at_once
    # The next round is in that term, and due within the bounds.
    assert core._state.outbox == []
    wait = core.election.next_vote_at - 10_010
    assert CONFIG.min_vote_interval_ms <= wait < CONFIG.max_vote_interval_ms
    core.tick(core.election.next_vote_at)
    assert [one.term for one in core._state.outbox] == [8, 8]


R = ParseResult
WAIT_REVOTE, WAIT_NEXT = R.WAIT_TO_REVOTE, R.WAIT_TO_VOTE_NEXT
NO = V.UNKNOWN
ROUNDS = [
    # paragraph, answers of five members with their terms, outcome, parse result, extra wait
    (
        "vote responses, case 1: a higher term",
        [(V.ACCEPT, 5), (V.ACCEPT, 5), (V.ACCEPT, 5), (V.REJECT_EXPIRED_VOTE_TERM, 9)],
        (Outcome.HIGHER_TERM_SEEN, WAIT_NEXT, 0),
    ),
    (
        "vote responses, case 1: a term below a log",
        [(V.ACCEPT, 5), (V.REJECT_TERM_SMALL_THAN_LEDGER, 6)],
        (Outcome.HIGHER_TERM_SEEN, WAIT_NEXT, 0),
    ),
    (
        "vote responses, case 2: somebody has a leader",
        [(V.ACCEPT, 5), (V.REJECT_ALREADY_HAS_LEADER, 5)],
        (Outcome.OTHER_HAS_LEADER, WAIT_REVOTE, 6000),
    ),
    (
        "vote responses, case 3: too few answers",
        [(V.ACCEPT, 5), (V.ACCEPT, 5), (NO, 5), (NO, 5), (NO, 5)],
        (Outcome.TOO_FEW_ANSWERS, WAIT_REVOTE, 0),
    ),
    (
        "vote responses, case 4: too many longer logs",
        [(V.ACCEPT, 5), (V.ACCEPT, 5), (V.REJECT_SMALL_LEDGER_END_INDEX, 5), (NO, 5)],
        (Outcome.BIGGER_LEDGERS, WAIT_REVOTE, 1000),
    ),
    (
        "vote responses, case 4: too many newer logs",
        [(V.ACCEPT, 5), (V.ACCEPT, 5), (V.REJECT_EXPIRED_LEDGER_TERM, 5)],
        (Outcome.BIGGER_LEDGERS, WAIT_REVOTE, 1000),
    ),
    (
        "vote responses, case 5: a quorum accepts",
        [(V.ACCEPT, 5), (V.ACCEPT, 5), (V.ACCEPT, 5)],
        (Outcome.ELECTED, R.PASSED, 0),
    ),
    (
        "vote responses, case 5: few longer logs do not hinder",
        [(V.ACCEPT, 5), (V.ACCEPT, 5), (V.ACCEPT, 5), (V.REJECT_SMALL_LEDGER_END_INDEX, 5)],
        (Outcome.ELECTED, R.PASSED, 0),
    ),
    (
        "vote responses, case 6: a quorum with those not ready",
        [(V.ACCEPT, 5), (V.REJECT_TERM_NOT_READY, 3), (V.REJECT_TERM_NOT_READY, 3)],
        (Outcome.PEERS_NOT_READY, R.REVOTE_IMMEDIATELY, 0),
    ),
    (
        "vote responses, case 7: votes are split",
        [(V.ACCEPT, 5), (V.ACCEPT, 5), (V.REJECT_ALREADY_VOTED, 5)],
        (Outcome.UNDECIDED, WAIT_NEXT, 0),
    ),
    (
        "vote responses, case 7: a preferred leader takes over",
        [(V.ACCEPT, 5), (V.REJECT_TAKING_LEADERSHIP, 5), (V.REJECT_TAKING_LEADERSHIP, 5)],
        (Outcome.UNDECIDED, WAIT_NEXT, 0),
    ),
]


@pytest.mark.parametrize(
    ("paragraph", "answers", "expected"), ROUNDS, ids=[row[0] for row in ROUNDS]
)
def test_round(
    paragraph: str,
    answers: list[tuple[VoteResult, int]],
    expected: tuple[Outcome, ParseResult, int],
) -> None:
    tally = VoteTally(5, 5)
    for result, term in answers:
        tally.add(result, term)
    outcome, parsed = judge_round(tally)
    assert (outcome, parsed, extra_wait(outcome, CONFIG)) == expected


def test_what_each_answer_counts_as() -> None:
    """Vote responses, first list."""
    counted = {}
    for result in VoteResult:
        tally = VoteTally(5, 5)
        tally.add(result, 9)
        counted[result] = (
            tally.valid,
            tally.accepted,
            tally.not_ready,
            tally.bigger_ledger,
            tally.already_has_leader,
            tally.known_max_term,
        )
    nothing = (1, 0, 0, 0, False, -1)
    assert counted == {
        V.UNKNOWN: (0, 0, 0, 0, False, -1),
        V.ACCEPT: (1, 1, 0, 0, False, -1),
        V.REJECT_UNKNOWN_LEADER: nothing,
        V.REJECT_UNEXPECTED_LEADER: nothing,
        V.REJECT_EXPIRED_VOTE_TERM: (1, 0, 0, 0, False, 9),
        V.REJECT_ALREADY_VOTED: nothing,
        V.REJECT_ALREADY_HAS_LEADER: (1, 0, 0, 0, True, -1),
        V.REJECT_TERM_NOT_READY: (1, 0, 1, 0, False, -1),
        V.REJECT_TERM_SMALL_THAN_LEDGER: (1, 0, 0, 0, False, 9),
        V.REJECT_EXPIRED_LEDGER_TERM: (1, 0, 0, 1, False, -1),
        V.REJECT_SMALL_LEDGER_END_INDEX: (1, 0, 0, 1, False, -1),
        V.REJECT_TAKING_LEADERSHIP: nothing,
    }


def test_candidate_every_member_starts_as_one_and_votes_at_once() -> None:
    core = member()
    assert core.role is RaftRole.CANDIDATE and core.leader_id is None
    core.tick(0)
    ready = core.ready()
    assert ready is not None and ready.hard_state == HardState(5, "n0")
    assert [(one.target, one.term) for one in ready.messages] == [("n1", 5), ("n2", 5)]


def test_candidate_1_waits_for_the_next_vote_time_within_its_bounds() -> None:
    core = member()
    core.tick(10_000)
    for number, peer in enumerate(("n1", "n2"), start=1):
        request = core._state.outbox[number - 1]
        core.step(
            VoteResponse(
                source=peer,
                target="n0",
                term=5,
                rpc=request.rpc,
                result=VoteResult.REJECT_ALREADY_VOTED,
            ),
            10_100,
        )
    assert core.election.last_outcome is Outcome.UNDECIDED
    wait = core.election.next_vote_at - 10_100
    assert CONFIG.min_vote_interval_ms <= wait < CONFIG.max_vote_interval_ms
    core.tick(core.election.next_vote_at - 1)
    assert core.term == 5
    # Candidate 3 (1): after WAIT_TO_VOTE_NEXT the term rises.
    core.tick(core.election.next_vote_at)
    assert core.term == 6


def test_candidate_3_the_term_stays_after_wait_to_revote() -> None:
    core = member()
    core.tick(10_000)
    core.tick(core.next_deadline())
    assert core.election.last_outcome is Outcome.TOO_FEW_ANSWERS
    core.tick(core.election.next_vote_at)
    assert core.term == 5


def test_a_round_ends_after_its_time_or_with_its_last_answer() -> None:
    core = member()
    core.tick(10_000)
    assert 12_000 <= core.next_deadline() < 13_000


def test_a_member_that_may_have_led_in_its_term_goes_on_to_the_next() -> None:
    core = member(vote="n0")
    core.tick(0)
    assert core.term == 6


C = Code
BEATS = [
    # paragraph, who, its term, the leader that we follow, answer
    ("heartbeat request 1: not one of the group", "n9", 5, None, C.UNKNOWN_MEMBER),
    ("heartbeat request 2: ourselves", "n0", 5, None, C.UNEXPECTED_MEMBER),
    ("heartbeat request 3: smaller term", "n1", 4, None, C.EXPIRED_TERM),
    ("heartbeat request 3: equal, our leader", "n1", 5, "n1", C.SUCCESS),
    ("heartbeat request, again 2 (1): no leader yet", "n1", 5, None, C.SUCCESS),
    ("heartbeat request, again 2 (3): another leader", "n1", 5, "n2", C.INCONSISTENT_LEADER),
    ("heartbeat request, again 3: greater term", "n1", 6, None, C.TERM_NOT_READY),
    ("heartbeat request, again 3: from a follower", "n1", 6, "n2", C.TERM_NOT_READY),
]


@pytest.mark.parametrize(
    ("paragraph", "source", "term", "leader", "expected"), BEATS, ids=[b[0] for b in BEATS]
)
def test_heartbeat(
    paragraph: str, source: str, term: int, leader: str | None, expected: Code
) -> None:
    core = member()
    if leader is not None:
        core.step(HeartbeatRequest(source=leader, target="n0", term=5), 9_000)
        drain(core)
    core.step(HeartbeatRequest(source=source, target="n0", term=term, rpc=3), 10_500)
    (answer,) = core._state.outbox
    assert isinstance(answer, HeartbeatResponse)
    assert answer.code is expected
    if expected is C.SUCCESS:
        assert core.role is RaftRole.FOLLOWER and core.leader_id == source
        assert core.heartbeats.last_from_leader == 10_500
    elif expected is C.TERM_NOT_READY:
        assert core.role is RaftRole.CANDIDATE and core.election.increase_term_at_once
    else:
        assert core.leader_id == leader


VERDICTS = [
    # paragraph, answers of four followers, silence, verdict
    ("heartbeat responses 1: a quorum", [(C.SUCCESS, 5)] * 2 + [(C.EXPIRED_TERM, 9)], 0, "KEEP"),
    (
        "heartbeat responses 2 (1): a quorum with those not ready",
        [(C.SUCCESS, 5), (C.TERM_NOT_READY, 3), (C.EXPIRED_TERM, 9)],
        0,
        "SEND_AT_ONCE",
    ),
    (
        "heartbeat responses 2 (2): a higher term",
        [(C.SUCCESS, 5), (C.EXPIRED_TERM, 9), (C.INCONSISTENT_LEADER, 5)],
        0,
        "EXPIRED",
    ),
    (
        "heartbeat responses 2 (3): another leader",
        [(C.SUCCESS, 5), (C.INCONSISTENT_LEADER, 5)],
        0,
        "INCONSISTENT",
    ),
    ("heartbeat responses 2 (4): silence too long", [(C.NETWORK_ERROR, -1)], 6001, "LOST_QUORUM"),
    ("heartbeat responses 2 (4): silence not too long", [(C.NETWORK_ERROR, -1)], 6000, "WAIT"),
    ("heartbeat responses: unknown members do not count", [(C.UNKNOWN_MEMBER, 5)] * 4, 0, "WAIT"),
]


@pytest.mark.parametrize(
    ("paragraph", "answers", "silence", "expected"), VERDICTS, ids=[v[0] for v in VERDICTS]
)
def test_heartbeat_round(
    paragraph: str, answers: list[tuple[Code, int]], silence: int, expected: str
) -> None:
    tally = BeatTally(5, 5)
    for code, term in answers:
        tally.add(code, term)
    patience = CONFIG.heartbeat_interval_ms * CONFIG.max_heartbeat_leak
    assert judge_beat(tally, silence, patience) is Verdict(expected)


def test_what_each_answer_to_a_heartbeat_counts_as() -> None:
    """Heartbeat responses, first list."""
    counted = {}
    for code in Code:
        tally = BeatTally(5, 5)
        tally.add(code, 9)
        assert tally.answered == 2
        counted[code] = (
            tally.success,
            tally.not_ready,
            tally.inconsistent_leader,
            tally.max_term,
        )
    nothing = (1, 0, False, -1)
    assert {code: count for code, count in counted.items() if count != nothing} == {
        C.SUCCESS: (2, 0, False, -1),
        C.EXPIRED_TERM: (1, 0, False, 9),
        C.INCONSISTENT_LEADER: (1, 0, True, -1),
        C.TERM_NOT_READY: (1, 1, False, -1),
    }


PATIENCE = [
    # paragraph, heartbeat interval, leak, milliseconds that the leader may be silent
    ("follower: the leak, stock's default", 2000, 3, 6000),
    ("follower: the leak", 100, 7, 700),
    ("follower: but never before two intervals", 2000, 1, 4000),
]


@pytest.mark.parametrize(
    ("paragraph", "interval", "leak", "silence"), PATIENCE, ids=[p[0] for p in PATIENCE]
)
def test_follower_gives_a_silent_leader_up(
    paragraph: str, interval: int, leak: int, silence: int
) -> None:
    config = msgspec.structs.replace(
        CONFIG, heartbeat_interval_ms=interval, max_heartbeat_leak=leak
    )
    core = member(config=config)
    core.step(HeartbeatRequest(source="n1", target="n0", term=5), 10_000)
    assert core.next_deadline() == 10_001 + silence
    core.tick(10_000 + silence)
    assert core.role is RaftRole.FOLLOWER
    core.tick(10_001 + silence)
    assert core.role is RaftRole.CANDIDATE and core.leader_id is None and core.term == 5


def test_the_tables_have_every_answer_and_every_end() -> None:
    assert {row[5] for row in VOTES} == set(VoteResult) - {V.UNKNOWN}
    assert {row[2][0] for row in ROUNDS} == set(Outcome)
    assert {row[2][1] for row in ROUNDS} == set(ParseResult)
    assert {row[4] for row in BEATS} == {
        C.SUCCESS,
        C.UNKNOWN_MEMBER,
        C.UNEXPECTED_MEMBER,
        C.EXPIRED_TERM,
        C.INCONSISTENT_LEADER,
        C.TERM_NOT_READY,
    }
    assert {Verdict(row[3]) for row in VERDICTS} == set(Verdict)


def test_issue_52_of_dledger_the_last_entrys_term_counts_not_the_members() -> None:
    """A member that has seen high terms but stored nothing in them must not win over one that
    holds committed entries, nor the other way round."""
    core = member(term=9, terms=(1, 1, 1))
    assert vote_of(core, "n1", 9, (1, 1)).result is V.REJECT_SMALL_LEDGER_END_INDEX
    assert vote_of(member(term=9, terms=(1, 1, 1)), "n1", 9, (2, 0)).result is V.ACCEPT
