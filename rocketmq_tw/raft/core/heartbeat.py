"""Heartbeats: the leader's rounds and their quorum, the follower's answers and its patience."""

from enum import Enum

from rocketmq_tw.raft.core.codes import Code, RaftRole
from rocketmq_tw.raft.core.election import Election
from rocketmq_tw.raft.core.member_state import MemberState
from rocketmq_tw.raft.core.membership import is_quorum, quorum_index
from rocketmq_tw.raft.core.messages import HeartbeatRequest, HeartbeatResponse
from rocketmq_tw.structs import msgspec


def decide_heartbeat(state: MemberState, request: HeartbeatRequest) -> Code:
    """Returns the answer to a leader's heartbeat; changes nothing."""
    code = state.check_source(request)
    if code is Code.SUCCESS and state.leader_id not in (None, request.source):
        return Code.INCONSISTENT_LEADER
    return code


class BeatTally(msgspec.Struct):
    """Counts the answers of one round of heartbeats; this member's own success counts from the
    start."""

    term: int
    members: int
    answered: int = 1
    success: int = 1
    not_ready: int = 0
    max_term: int = -1
    inconsistent_leader: bool = False

    def add(self, code: Code, term: int) -> None:
        self.answered += 1
        if code is Code.SUCCESS:
            self.success += 1
        elif code is Code.EXPIRED_TERM:
            self.max_term = max(self.max_term, term)
        elif code is Code.INCONSISTENT_LEADER:
            self.inconsistent_leader = True
        elif code is Code.TERM_NOT_READY:
            self.not_ready += 1

    @property
    def decided(self) -> bool:
        return self.answered >= self.members or is_quorum(
            self.success + self.not_ready, self.members
        )


class Verdict(Enum):
    """What a leader does after a round."""

    KEEP = "KEEP"
    SEND_AT_ONCE = "SEND_AT_ONCE"
    EXPIRED = "EXPIRED"
    INCONSISTENT = "INCONSISTENT"
    LOST_QUORUM = "LOST_QUORUM"
    WAIT = "WAIT"


def judge_beat(tally: BeatTally, silent_ms: int, patience_ms: int) -> Verdict:
    """Returns what a leader does after a round; `silent_ms` have passed since the last round that a
    quorum answered."""
    if is_quorum(tally.success, tally.members):
        return Verdict.KEEP
    if is_quorum(tally.success + tally.not_ready, tally.members):
        return Verdict.SEND_AT_ONCE
    if tally.max_term > tally.term:
        return Verdict.EXPIRED
    if tally.inconsistent_leader:
        return Verdict.INCONSISTENT
    if silent_ms > patience_ms:
        return Verdict.LOST_QUORUM
    return Verdict.WAIT


class Heartbeats:
    """Both sides of the heartbeat of one member."""

    def __init__(self, state: MemberState, election: Election) -> None:
        self._state = state
        self._election = election
        self.last_from_leader = 0
        self.last_success = 0
        self._send_at = 0
        self._tally: BeatTally | None = None
        self._asked: dict[int, tuple[str, int]] = {}
        self._round = 0
        self._round_ends = 0
        self._acks: dict[str, int] = {}
        self._expired: dict[str, int] = {}
        self.live: dict[str, bool] = {}
        state.role_listeners.append(self._role_changed)

    def _role_changed(self, role: RaftRole) -> None:
        now = self._state.now
        self._tally = None
        self._asked.clear()
        if role is RaftRole.FOLLOWER:
            self.last_from_leader = now
        elif role is RaftRole.LEADER:
            self.live.clear()
            self._acks.clear()
            self._expired.clear()
            # A quorum answered just now, with its votes.
            self.last_success = now
            self._send_at = now

    @property
    def _patience(self) -> int:
        config = self._state.config
        return config.heartbeat_interval_ms * config.max_heartbeat_leak

    @property
    def leader_deadline(self) -> int:
        silence_ends = self.last_success + self._patience + self._state.config.heartbeat_interval_ms
        return min(self._send_at, silence_ends)

    @property
    def follower_deadline(self) -> int:
        # A leader that sends once in an interval must have had time for two.
        interval = self._state.config.heartbeat_interval_ms
        return self.last_from_leader + max(self._patience, 2 * interval) + 1

    def maintain_leader(self) -> None:
        """Judges a round whose time is over and starts the next one."""
        state = self._state
        if self._tally is not None and state.now >= self._round_ends:
            self._finish(self._tally)
        silence = state.now - self.last_success - state.config.heartbeat_interval_ms
        if state.role is RaftRole.LEADER and silence >= self._patience and state.peers:
            # Rounds for reads may follow each other so fast that none is ever judged.
            state.become_candidate(state.term)
        if state.role is RaftRole.LEADER and state.now >= self._send_at:
            self.send_round()

    def maintain_follower(self) -> None:
        """Gives up a leader that is silent for too long."""
        if self._state.now >= self.follower_deadline:
            self._state.become_candidate(self._state.term)

    def send_round(self) -> int:
        """Starts a round and returns its number; `confirmed` tells how far a quorum answered."""
        state = self._state
        interval = state.config.heartbeat_interval_ms
        self._round += 1
        self._send_at = self._round_ends = state.now + interval
        self._tally = BeatTally(state.term, len(state.config.members))
        if len(self._asked) > 4 * len(state.config.members):
            self._asked.clear()
        for peer in state.peers:
            rpc = state.next_rpc()
            self._asked[rpc] = (peer, self._round)
            state.send(
                HeartbeatRequest(source=state.self_id, target=peer, term=state.term, rpc=rpc)
            )
        if self._tally.decided:
            self._finish(self._tally)
        return self._round

    @property
    def confirmed_round(self) -> int:
        """The latest round that a quorum answered with success: this member led when it was
        sent."""
        return quorum_index([self._round, *(self._acks.get(p, 0) for p in self._state.peers)])

    def on_response(self, response: HeartbeatResponse) -> None:
        peer, number = self._asked.pop(response.rpc, (None, 0))
        if peer != response.source or self._state.role is not RaftRole.LEADER:
            return
        self.live[response.source] = response.code is not Code.NETWORK_ERROR
        if response.code is Code.SUCCESS:
            before = self.confirmed_round
            self._acks[response.source] = max(number, self._acks.get(response.source, 0))
            if self.confirmed_round > before:
                self.last_success = self._state.now
        self._watch_expired(response)
        tally = self._tally
        if tally is None or number != self._round or self._state.role is not RaftRole.LEADER:
            return
        tally.add(response.code, response.term)
        if tally.decided:
            self._finish(tally)

    def _watch_expired(self, response: HeartbeatResponse) -> None:
        """Steps down for the sake of a peer that stays in a higher term and would never follow:
        after as many rounds as a leader may miss, a new election takes the peer along."""
        state = self._state
        if response.code is not Code.EXPIRED_TERM or response.term <= state.term:
            self._expired.pop(response.source, None)
            return
        seen = self._expired.get(response.source, 0) + 1
        self._expired[response.source] = seen
        if seen > state.config.max_heartbeat_leak:
            self._election.step_to_term(response.term)

    def _finish(self, tally: BeatTally) -> None:
        state = self._state
        self._tally = None
        verdict = judge_beat(tally, state.now - self.last_success, self._patience)
        if verdict is Verdict.KEEP:
            self.last_success = state.now
        elif verdict is Verdict.SEND_AT_ONCE:
            self._send_at = state.now + state.config.maintain_interval_ms
        elif verdict is Verdict.EXPIRED:
            self._election.give_way(tally.max_term)
        elif verdict is not Verdict.WAIT:
            state.become_candidate(tally.term)

    def on_request(self, request: HeartbeatRequest) -> None:
        """Answers a leader: follows it, or says why not."""
        state = self._state
        code = decide_heartbeat(state, request)
        if code is Code.SUCCESS:
            if state.leader_id is None:
                state.become_follower(request.source)
            self.last_from_leader = state.now
        elif code is Code.TERM_NOT_READY:
            self._election.step_to_term(request.term)
        state.send(
            HeartbeatResponse(
                source=state.self_id,
                target=request.source,
                term=state.term,
                rpc=request.rpc,
                code=code,
            )
        )
