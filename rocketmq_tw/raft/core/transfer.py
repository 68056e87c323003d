"""Leadership transfer: the leader hands over, the transferee takes, preferred leaders are asked."""

from rocketmq_tw.raft.core.codes import Code, RaftRole
from rocketmq_tw.raft.core.election import Election
from rocketmq_tw.raft.core.heartbeat import Heartbeats
from rocketmq_tw.raft.core.member_state import MemberState
from rocketmq_tw.raft.core.messages import TransferRequest, TransferResponse
from rocketmq_tw.raft.core.replication import Replication

#: How long a leader waits for its transferee: the time-out of the request between members.
HANDOVER_MS = 3000


class LeadershipTransfer:
    """Both sides of a transfer. While one runs, the leader takes no entries."""

    def __init__(
        self,
        state: MemberState,
        election: Election,
        heartbeats: Heartbeats,
        replication: Replication,
    ) -> None:
        self._state = state
        self._election = election
        self._heartbeats = heartbeats
        self._replication = replication
        self._asked_by: TransferRequest | None = None
        self._handover_rpc = 0
        self._handover_ends = 0
        self._taking: TransferRequest | None = None
        self._taking_ends = 0
        self._started = False
        self._preferred_at = 0
        state.role_listeners.append(self._role_changed)

    @property
    def deadline(self) -> int | None:
        state = self._state
        if self._handover_rpc:
            return self._handover_ends
        if self._taking is not None and not self._started:
            return min(self._taking_ends, state.now + state.config.maintain_interval_ms)
        if state.role is RaftRole.LEADER and self._wants_preferred:
            return self._preferred_at
        return None

    @property
    def _wants_preferred(self) -> bool:
        preferred = self._state.config.preferred_leader_ids
        return bool(preferred) and self._state.self_id not in preferred

    def maintain(self) -> None:
        """Gives up a transfer that takes too long; asks a preferred leader to take over."""
        state = self._state
        if self._taking is not None and not self._started:
            self._try_taking()
        if self._handover_rpc:
            if state.now >= self._handover_ends:
                self._handed_over(Code.TIMEOUT)
        elif (
            state.role is RaftRole.LEADER
            and self._wants_preferred
            and state.now >= self._preferred_at
        ):
            self._preferred_at = state.now + state.config.preferred_check_interval_ms
            self._ask_preferred()

    def on_request(self, request: TransferRequest) -> None:
        """Takes a client's order to the leader, or the leader's to its transferee."""
        state = self._state
        if request.transfer_id == state.self_id:
            code = self._check_handover(request)
            if code is Code.SUCCESS:
                self._hand_over(request.transferee_id, request)
                return
        elif request.transferee_id == state.self_id:
            if not state.stands:
                self._answer(request, Code.TAKE_LEADERSHIP_FAILED)
                return
            if request.transfer_id == state.leader_id:
                self._answer_taking(Code.TAKE_LEADERSHIP_FAILED)
                self._taking, self._started = request, False
                self._taking_ends = state.now + state.config.leadership_transfer_wait_timeout_ms
                self._try_taking()
                return
            code = Code.INCONSISTENT_LEADER
        else:
            code = Code.UNEXPECTED_ARGUMENT
        self._answer(request, code)

    def _check_handover(self, request: TransferRequest) -> Code:
        state = self._state
        if not state.is_member(request.transferee_id):
            return Code.UNKNOWN_MEMBER
        if request.transferee_id == state.self_id:
            return Code.UNEXPECTED_MEMBER
        if request.term != state.term:
            return Code.INCONSISTENT_TERM
        if state.role is not RaftRole.LEADER:
            return Code.NOT_LEADER
        behind = self._replication.fall_behind(request.transferee_id)
        if behind >= state.config.max_leadership_transfer_wait_index:
            return Code.FALL_BEHIND_TOO_MUCH
        if state.transferee is not None:
            return Code.LEADER_TRANSFERRING
        return Code.SUCCESS

    def _hand_over(self, transferee: str, asked_by: TransferRequest | None) -> None:
        state = self._state
        state.transferee = transferee
        self._asked_by = asked_by
        self._handover_rpc = state.next_rpc()
        self._handover_ends = state.now + HANDOVER_MS
        state.send(
            TransferRequest(
                source=state.self_id,
                target=transferee,
                term=state.term,
                rpc=self._handover_rpc,
                transfer_id=state.self_id,
                transferee_id=transferee,
                ledger_index=state.log.end_index,
            )
        )

    def on_response(self, response: TransferResponse) -> None:
        """Takes the transferee's answer: it leads now, or could not take over."""
        if self._handover_rpc and response.rpc == self._handover_rpc:
            self._handed_over(response.code)

    def _handed_over(self, code: Code) -> None:
        self._state.transferee = None
        self._handover_rpc = 0
        asked_by, self._asked_by = self._asked_by, None
        if asked_by is not None:
            self._answer(asked_by, code)

    def _try_taking(self) -> None:
        """Takes over as soon as the log is as long as the leader's was."""
        state, request = self._state, self._taking
        if request is None:
            return
        if state.log.end_index < request.ledger_index:
            if state.now >= self._taking_ends:
                self._answer_taking(Code.TAKE_LEADERSHIP_FAILED)
        elif request.term != state.term or state.role is not RaftRole.FOLLOWER:
            self._answer_taking(Code.INCONSISTENT_TERM)
        else:
            self._started = True
            state.term_to_take = state.term + 1
            self._election.step_to_term(state.term + 1)

    def _role_changed(self, role: RaftRole) -> None:
        if role is RaftRole.LEADER:
            self._preferred_at = self._state.now + self._state.config.preferred_check_interval_ms
            if self._handover_rpc:
                # We lead again, so nobody took over.
                self._handed_over(Code.TAKE_LEADERSHIP_FAILED)
        if self._taking is None or not self._started:
            return
        state = self._state
        target = state.term_to_take
        if role is RaftRole.CANDIDATE:
            if state.known_max_term > target:
                self._answer_taking(Code.EXPIRED_TERM)
        elif state.term > target:
            self._answer_taking(Code.EXPIRED_TERM)
        elif role is RaftRole.LEADER and state.term == target:
            self._answer_taking(Code.SUCCESS)
        else:
            self._answer_taking(Code.TAKE_LEADERSHIP_FAILED)

    def _answer_taking(self, code: Code) -> None:
        request, self._taking = self._taking, None
        self._started = False
        self._state.term_to_take = -1
        if request is not None:
            self._answer(request, code)

    def _answer(self, request: TransferRequest, code: Code) -> None:
        state = self._state
        state.send(
            TransferResponse(
                source=state.self_id,
                target=request.source,
                term=state.term,
                rpc=request.rpc,
                code=code,
            )
        )

    def _ask_preferred(self) -> None:
        """Hands over to the preferred leader that is live and least behind. One whose log is not
        compared yet may have other entries: it would not win, and be compared no further."""
        state = self._state
        behind = {
            peer: self._replication.fall_behind(peer)
            for peer in state.config.preferred_leader_ids
            if state.is_member(peer)
            and self._heartbeats.live.get(peer)
            and self._replication.is_compared(peer)
        }
        if not behind:
            return
        best = min(behind, key=behind.__getitem__)
        if behind[best] < state.config.max_leadership_transfer_wait_index:
            self._hand_over(best, None)
