"""Elections: whether a member gives its vote, and a candidate's rounds.

A vote is given on the conditions of `decide_vote`, in the order of the protocol (the documents,
"DLedger election"). A candidate's round starts when its timer is due; what its answers mean says
when the next one is.
"""

from enum import Enum
from typing import NamedTuple

from rocketmq_tw.raft.core.codes import ParseResult, RaftRole, VoteResult
from rocketmq_tw.raft.core.config import RaftConfig
from rocketmq_tw.raft.core.member_state import MemberState
from rocketmq_tw.raft.core.membership import is_quorum
from rocketmq_tw.raft.core.messages import VoteRequest, VoteResponse
from rocketmq_tw.structs import msgspec


class VoteDecision(NamedTuple):
    """The result of a request for a vote, and the term that the answer carries."""

    result: VoteResult
    term: int


def decide_vote(state: MemberState, request: VoteRequest, *, own: bool) -> VoteDecision:
    """Returns the answer to `request`; changes nothing. `own` marks this member's vote for itself.
    Logs are compared before terms, so a member with an old log cannot disturb the group by a higher
    term. Logs are compared by the term of the last entry first, then by its index."""
    result = (
        _check_candidate(state, request, own=own)
        or _check_log(state, request)
        or _check_term(state, request)
    )
    if result is not None:
        return VoteDecision(result, state.term)
    end_term = state.log.end_term
    if request.term < end_term:
        return VoteDecision(VoteResult.REJECT_TERM_SMALL_THAN_LEDGER, end_term)
    if (
        not own
        and state.taking_leadership
        and (end_term, state.log.end_index) >= (request.end_term, request.end_index)
    ):
        return VoteDecision(VoteResult.REJECT_TAKING_LEADERSHIP, state.term)
    return VoteDecision(VoteResult.ACCEPT, state.term)


def _check_candidate(state: MemberState, request: VoteRequest, *, own: bool) -> VoteResult | None:
    if not state.is_member(request.source):
        return VoteResult.REJECT_UNKNOWN_LEADER
    if not own and request.source == state.self_id:
        return VoteResult.REJECT_UNEXPECTED_LEADER
    return None


def _check_log(state: MemberState, request: VoteRequest) -> VoteResult | None:
    if request.end_term < state.log.end_term:
        return VoteResult.REJECT_EXPIRED_LEDGER_TERM
    if request.end_term == state.log.end_term and request.end_index < state.log.end_index:
        return VoteResult.REJECT_SMALL_LEDGER_END_INDEX
    return None


def _check_term(state: MemberState, request: VoteRequest) -> VoteResult | None:
    if request.term < state.term:
        return VoteResult.REJECT_EXPIRED_VOTE_TERM
    if request.term > state.term:
        return VoteResult.REJECT_TERM_NOT_READY
    if state.vote_for is None or state.vote_for == request.source:
        return None
    if state.leader_id is not None:
        return VoteResult.REJECT_ALREADY_HAS_LEADER
    return VoteResult.REJECT_ALREADY_VOTED


class VoteTally(msgspec.Struct):
    """Counts the answers of one round. `valid` counts all but UNKNOWN."""

    term: int
    members: int
    answered: int = 0
    valid: int = 0
    accepted: int = 0
    not_ready: int = 0
    bigger_ledger: int = 0
    already_has_leader: bool = False
    known_max_term: int = -1

    def add(self, result: VoteResult, term: int) -> None:
        self.answered += 1
        if result is not VoteResult.UNKNOWN:
            self.valid += 1
        if result is VoteResult.ACCEPT:
            self.accepted += 1
        elif result is VoteResult.REJECT_ALREADY_HAS_LEADER:
            self.already_has_leader = True
        elif result in (
            VoteResult.REJECT_EXPIRED_VOTE_TERM,
            VoteResult.REJECT_TERM_SMALL_THAN_LEDGER,
        ):
            self.known_max_term = max(self.known_max_term, term)
        elif result in (
            VoteResult.REJECT_EXPIRED_LEDGER_TERM,
            VoteResult.REJECT_SMALL_LEDGER_END_INDEX,
        ):
            self.bigger_ledger += 1
        elif result is VoteResult.REJECT_TERM_NOT_READY:
            self.not_ready += 1

    @property
    def decided(self) -> bool:
        """Whether no further answer can change the outcome, or none is to come."""
        return (
            self.answered >= self.members
            or self.already_has_leader
            or is_quorum(self.accepted + self.not_ready, self.members)
        )


class Outcome(Enum):
    """The seven outcomes of a round, in the order in which they are checked."""

    HIGHER_TERM_SEEN = 1
    OTHER_HAS_LEADER = 2
    TOO_FEW_ANSWERS = 3
    BIGGER_LEDGERS = 4
    ELECTED = 5
    PEERS_NOT_READY = 6
    UNDECIDED = 7


_PARSED = {
    Outcome.HIGHER_TERM_SEEN: ParseResult.WAIT_TO_VOTE_NEXT,
    Outcome.OTHER_HAS_LEADER: ParseResult.WAIT_TO_REVOTE,
    Outcome.TOO_FEW_ANSWERS: ParseResult.WAIT_TO_REVOTE,
    Outcome.BIGGER_LEDGERS: ParseResult.WAIT_TO_REVOTE,
    Outcome.ELECTED: ParseResult.PASSED,
    Outcome.PEERS_NOT_READY: ParseResult.REVOTE_IMMEDIATELY,
    Outcome.UNDECIDED: ParseResult.WAIT_TO_VOTE_NEXT,
}


def judge_round(tally: VoteTally) -> tuple[Outcome, ParseResult]:
    """Returns the outcome of a finished round."""
    members = tally.members
    if tally.known_max_term > tally.term:
        outcome = Outcome.HIGHER_TERM_SEEN
    elif tally.already_has_leader:
        outcome = Outcome.OTHER_HAS_LEADER
    elif not is_quorum(tally.valid, members):
        outcome = Outcome.TOO_FEW_ANSWERS
    elif not is_quorum(tally.valid - tally.bigger_ledger, members):
        outcome = Outcome.BIGGER_LEDGERS
    elif is_quorum(tally.accepted, members):
        outcome = Outcome.ELECTED
    elif is_quorum(tally.accepted + tally.not_ready, members):
        outcome = Outcome.PEERS_NOT_READY
    else:
        outcome = Outcome.UNDECIDED
    return outcome, _PARSED[outcome]


def extra_wait(outcome: Outcome, config: RaftConfig) -> int:
    """Returns the milliseconds that an outcome adds to the random wait for the next round."""
    if outcome is Outcome.OTHER_HAS_LEADER:
        return config.heartbeat_interval_ms * config.max_heartbeat_leak
    if outcome is Outcome.BIGGER_LEDGERS:
        return config.max_vote_interval_ms
    return 0


class Election:
    """The candidate's side of an election, and the answers to other candidates."""

    def __init__(self, state: MemberState) -> None:
        self._state = state
        self.next_vote_at = 0
        self.increase_term_at_once = False
        # A member that may have led in the stored term must not lead in it again: what it had not
        # stored of its log is forgotten here, but perhaps not elsewhere.
        self.last_parse_result = (
            ParseResult.WAIT_TO_VOTE_NEXT
            if state.vote_for == state.self_id
            else ParseResult.WAIT_TO_REVOTE
        )
        self.last_outcome: Outcome | None = None
        self._tally: VoteTally | None = None
        self._asked: dict[int, str] = {}
        self._round_ends = 0
        state.role_listeners.append(self._role_changed)

    def _role_changed(self, role: RaftRole) -> None:
        self._tally = None
        self._asked.clear()
        if role is RaftRole.FOLLOWER:
            self.last_parse_result = ParseResult.WAIT_TO_REVOTE

    @property
    def deadline(self) -> int:
        """The time in ms when a candidate has to act."""
        if self.increase_term_at_once:
            return 0
        return self.next_vote_at if self._tally is None else self._round_ends

    def step_to_term(self, term: int) -> None:
        """Becomes a candidate because a higher term was seen; the term changes with the next
        `maintain`."""
        self._state.become_candidate(term)
        self.increase_term_at_once = True

    def give_way(self, term: int) -> None:
        """Steps down as a leader whose term has expired: the next round is in `term`."""
        self._state.become_candidate(term)
        self.last_parse_result = ParseResult.WAIT_TO_VOTE_NEXT

    def withdraw(self) -> None:
        """Ends a round that is under way, and this member's leadership; nothing follows while it
        does not stand."""
        state = self._state
        if state.role is RaftRole.LEADER:
            self.give_way(state.term)
        self._tally = None
        self._asked.clear()

    def maintain(self) -> None:
        """Finishes a candidate's round that is over and starts the next when it is due."""
        state = self._state
        if self._tally is not None and not self.increase_term_at_once:
            if state.now >= self._round_ends:
                self._finish(self._tally)
            return
        if self.increase_term_at_once:
            state.next_term()
            self.last_parse_result = ParseResult.WAIT_TO_REVOTE
            self.increase_term_at_once = False
            self._tally = None
            self._asked.clear()
            self.next_vote_at = self._random_vote_time()
            return
        if state.now < self.next_vote_at or not state.stands:
            return
        if self.last_parse_result is ParseResult.WAIT_TO_VOTE_NEXT:
            state.next_term()
            self.last_parse_result = ParseResult.WAIT_TO_REVOTE
        self._start_round()

    def _start_round(self) -> None:
        state, config = self._state, self._state.config
        tally = VoteTally(state.term, len(config.members))
        self._tally = tally
        self._round_ends = (
            state.now + config.vote_round_ms + state.random.randrange(config.max_vote_interval_ms)
        )
        for member in config.members:
            request = VoteRequest(
                source=state.self_id,
                target=member,
                term=state.term,
                rpc=state.next_rpc(),
                end_index=state.log.end_index,
                end_term=state.log.end_term,
            )
            if member == state.self_id:
                decision = decide_vote(state, request, own=True)
                if decision.result is VoteResult.ACCEPT:
                    state.set_vote(state.self_id)
                tally.add(decision.result, decision.term)
            else:
                self._asked[request.rpc] = member
                state.send(request)
        if tally.decided:
            self._finish(tally)

    def on_response(self, response: VoteResponse) -> None:
        """Counts an answer of the running round; an old or repeated one is passed over."""
        if self._tally is None or self._asked.pop(response.rpc, None) != response.source:
            return
        self._tally.add(response.result, response.term)
        if self._tally.decided:
            self._finish(self._tally)

    def _finish(self, tally: VoteTally) -> None:
        state = self._state
        self._tally = None
        self._asked.clear()
        outcome, parsed = judge_round(tally)
        self.last_outcome = outcome
        self.last_parse_result = parsed
        if outcome is Outcome.PEERS_NOT_READY:
            self.next_vote_at = state.now + state.config.maintain_interval_ms
        elif outcome is not Outcome.ELECTED:
            self.next_vote_at = self._random_vote_time() + extra_wait(outcome, state.config)
        if outcome is Outcome.HIGHER_TERM_SEEN:
            state.become_candidate(tally.known_max_term)
        elif outcome is Outcome.ELECTED:
            state.become_leader()

    def _random_vote_time(self) -> int:
        state, config = self._state, self._state.config
        if state.taking_leadership:
            low = config.min_take_leadership_vote_interval_ms
            high = config.max_take_leadership_vote_interval_ms
        else:
            low, high = config.min_vote_interval_ms, config.max_vote_interval_ms
        return state.now + state.random.randrange(low, high)

    def on_request(self, request: VoteRequest) -> None:
        """Answers a candidate; a vote that is given is in the hard state before it is sent."""
        state = self._state
        decision = decide_vote(state, request, own=False)
        if decision.result is VoteResult.ACCEPT:
            state.set_vote(request.source)
        elif decision.result is VoteResult.REJECT_TERM_NOT_READY:
            self.step_to_term(request.term)
        state.send(
            VoteResponse(
                source=state.self_id,
                target=request.source,
                term=decision.term,
                rpc=request.rpc,
                result=decision.result,
            )
        )
