"""Whether a member gives its vote: the conditions in the order of the protocol."""

from typing import NamedTuple

from rocketmq_tw.raft.core.codes import VoteResult
from rocketmq_tw.raft.core.member_state import MemberState
from rocketmq_tw.raft.core.messages import VoteRequest


class VoteDecision(NamedTuple):
    """The result, and the term that the answer carries."""

    result: VoteResult
    term: int


def decide_vote(state: MemberState, request: VoteRequest, *, own: bool) -> VoteDecision:
    """The answer to `request`; changes nothing. `own` marks our vote for ourselves.

    The comparison of logs comes before that of terms, so a member with an old log disturbs nobody
    by its term. It compares the term of the last entry first, then its index.
    """
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
