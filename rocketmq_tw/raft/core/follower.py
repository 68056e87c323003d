"""The follower's side of the log: what a leader may append, compare, cut and replace."""

from typing import NamedTuple

from rocketmq_tw.raft.core.codes import Code, PushKind, RaftRole
from rocketmq_tw.raft.core.election import Election
from rocketmq_tw.raft.core.entry import ENTRY_HEADER_SIZE, Entry
from rocketmq_tw.raft.core.log import LogBase
from rocketmq_tw.raft.core.member_state import MemberState
from rocketmq_tw.raft.core.messages import PushRequest, PushResponse, RaftMessage, SnapshotRequest
from rocketmq_tw.raft.core.snapshot import SnapshotReceiver, snapshot_answer

#: Heartbeats for which a leader has to stay with it before a member gives up its log.
PATIENCE_BEATS = 2


class _NewBegin(NamedTuple):
    """The entry that is to replace the whole log (None for a snapshot), and when the leader first
    asked for that."""

    entry: Entry | None
    asked_at: int


class Follower:
    """Answers pushes. A push of DLedger's does not carry the term of the entry before its first
    one, so `matched_index` takes its place: the last entry known to be shared with the present
    leader. Entries are accepted only directly behind it, and nothing up to it is ever cut, however
    late a TRUNCATE arrives. Members are not authenticated, so a log is not given up for one request
    in the leader's name: the leader has to repeat it, and nothing else, for more than
    `PATIENCE_BEATS` heartbeats."""

    def __init__(self, state: MemberState, election: Election, snapshots: SnapshotReceiver) -> None:
        self._state = state
        self._election = election
        self._snapshots = snapshots
        self._new_begin: _NewBegin | None = None
        #: Up to where the present leader has said that entries are committed.
        self._told_commit = -1
        state.role_listeners.append(self._role_changed)

    def _role_changed(self, role: RaftRole) -> None:
        self._new_begin = None
        self._told_commit = -1

    def check_leader(self, request: RaftMessage) -> Code:
        """Returns whether `request` comes from the leader that we follow."""
        state = self._state
        code = state.check_source(request)
        if code is not Code.SUCCESS:
            return code
        if state.role is not RaftRole.FOLLOWER:
            return Code.NOT_FOLLOWER
        if request.source != state.leader_id:
            return Code.INCONSISTENT_LEADER
        return Code.SUCCESS

    def on_push(self, request: PushRequest) -> None:
        """Answers a push; the entries of an accepted one are stored before the answer leaves."""
        code = self.check_leader(request)
        if code is Code.TERM_NOT_READY:
            self._election.step_to_term(request.term)
        elif code is Code.SUCCESS:
            code = self._apply(request)
        state = self._state
        state.send(
            PushResponse(
                source=state.self_id,
                target=request.source,
                term=request.term
                if code in (Code.SUCCESS, Code.INCONSISTENT_STATE)
                else state.term,
                rpc=request.rpc,
                code=code,
                index=request.first_index,
                count=len(request.entries),
                begin_index=-1 if state.log.is_empty else state.log.begin_index,
                end_index=state.log.end_index,
            )
        )

    def _apply(self, request: PushRequest) -> Code:
        base = self._state.log.base
        self._told_commit = max(self._told_commit, request.commit_index)
        if request.kind is PushKind.COMMIT:
            code = Code.SUCCESS
        elif not request.entries or request.kind is PushKind.INSTALL_SNAPSHOT:
            return Code.UNEXPECTED_ARGUMENT
        elif request.kind is PushKind.APPEND:
            code = self._append(request.entries)
        elif request.kind is PushKind.COMPARE:
            return self._compare(request.entries[0])
        else:
            code = self._truncate(request.entries[0])
        if code is Code.SUCCESS:
            self._new_begin = None
            state = self._state
            # One entry in the place of a log says nothing of what is committed.
            if state.log.base is base:
                state.commit_to(min(request.commit_index, state.matched_index))
        return code

    def _append(self, entries: tuple[Entry, ...]) -> Code:
        state, log = self._state, self._state.log
        first = entries[0].index
        if first - 1 > state.matched_index or not _in_order(entries, state.term):
            return Code.INCONSISTENT_STATE
        for entry in entries:
            known_term = log.term_at(entry.index)
            if entry.index <= state.matched_index:
                if known_term not in (None, entry.term):
                    return Code.INCONSISTENT_STATE
                continue
            if known_term is not None:
                if log.matches(entry):
                    state.matched_index = entry.index
                    continue
                if known_term == state.term:
                    return Code.INCONSISTENT_STATE
                log.truncate_after(entry.index - 1)
            if not log.follows(entry):
                return Code.INCONSISTENT_STATE
            log.append(entry)
            state.matched_index = entry.index
        return Code.SUCCESS

    def _compare(self, entry: Entry) -> Code:
        state = self._state
        if not self._holds(entry):
            return Code.INCONSISTENT_STATE
        self._new_begin = None
        state.matched_index = max(state.matched_index, entry.index)
        return Code.SUCCESS

    def _holds(self, entry: Entry) -> bool:
        """Returns whether our log has `entry`, or had it: what is committed and compacted away is
        in the log of every leader."""
        state, log = self._state, self._state.log
        if entry.index < log.begin_index and entry.index <= state.commit_index:
            return True
        return log.matches(entry)

    def _truncate(self, entry: Entry) -> Code:
        state, log = self._state, self._state.log
        # Entries of the present term are the leader's own: a push that would cut them is late.
        late = log.end_term == state.term
        if self._holds(entry):
            state.matched_index = max(state.matched_index, entry.index)
            if state.matched_index == log.base.index and log.base.term < 0:
                # Without the term of its last entry this member could not judge candidates.
                return Code.INCONSISTENT_STATE
            if not late:
                log.truncate_after(state.matched_index)
            return Code.SUCCESS
        if late and entry.index > log.end_index:
            # The leader begins behind all that it gave us: nothing of its own is cut.
            late, state.matched_index = False, log.end_index
        if late or entry.index <= state.matched_index or entry.term > state.term:
            return Code.INCONSISTENT_STATE
        # A member that has nothing yet begins where the group does, which need not be at 0.
        is_new = log.is_empty and log.base == LogBase() and not state.config.state_machine
        if entry.index - 1 == state.matched_index and not (is_new and entry.pos):
            log.truncate_after(entry.index - 1)
        elif state.config.state_machine or not self._may_begin_at(entry):
            # The leader's log begins behind ours and no snapshot fills the gap.
            return Code.INCONSISTENT_STATE
        elif not log.is_empty and not self._is_meant(entry, entry.index):
            return Code.INCONSISTENT_STATE
        else:
            if not log.is_empty:
                state.notices.append(
                    f"drops entries {log.begin_index} to {log.end_index}: the log of"
                    f" {state.leader_id} begins with entry {entry.index}, and so does this one now"
                )
            log.restart(LogBase(entry.index - 1, -1, entry.pos))
        if not log.follows(entry):
            return Code.INCONSISTENT_STATE
        log.append(entry)
        state.matched_index = entry.index
        return Code.SUCCESS

    def _may_begin_at(self, entry: Entry) -> bool:
        """Returns whether the entries between what is committed here and `entry` can fill the room
        between them; committed ones are not given up for one that cannot be the group's."""
        state, log = self._state, self._state.log
        if log.is_empty or state.commit_index < log.begin_index:
            return True
        missing = entry.index - state.commit_index - 1
        room = entry.pos - log.read(state.commit_index).end_pos
        return missing * ENTRY_HEADER_SIZE <= room <= (missing + 1) * state.config.data_file_size

    def _is_meant(self, entry: Entry | None, first: int) -> bool:
        """Returns whether the leader has asked long enough for a log that begins with `first`."""
        state, log, asked = self._state, self._state.log, self._new_begin
        patience_ms = PATIENCE_BEATS * state.config.heartbeat_interval_ms
        if asked is None or asked.entry != entry:
            self._new_begin = _NewBegin(entry, state.now)
            state.notices.append(
                f"{state.leader_id} asks for a log that begins with entry {first}; the last one"
                f" here is {log.end_index}. If it goes on asking for {patience_ms} ms this member"
                " drops its log"
            )
            return False
        return state.now - asked.asked_at > patience_ms

    def on_snapshot(self, request: SnapshotRequest) -> None:
        """Takes a chunk of a snapshot."""
        code, received = self.check_leader(request), 0
        if code is Code.TERM_NOT_READY:
            self._election.step_to_term(request.term)
        elif code is Code.SUCCESS:
            code = Code.INCONSISTENT_STATE
            if self._follows(request):
                code, received = self._snapshots.receive(request)
        self._state.send(snapshot_answer(self._state, request, code, received))

    def _follows(self, request: SnapshotRequest) -> bool:
        """Returns whether a snapshot can be the leader's: of what it said was committed, behind
        what is committed here, and meant where it takes the place of anything."""
        state, log = self._state, self._state.log
        if request.last_index > self._told_commit:
            return False
        if request.last_index <= state.commit_index or log.end_index < 0:
            return True
        if request.last_term < (log.term_at(state.commit_index) or 0):
            return False
        if log.term_at(request.last_index) == request.last_term:
            return True
        return self._is_meant(None, request.last_index + 1)


def _in_order(entries: tuple[Entry, ...], term: int) -> bool:
    """Returns whether indexes follow each other and terms never fall nor pass the leader's."""
    previous = entries[0]
    for entry in entries[1:]:
        if entry.index != previous.index + 1 or entry.term < previous.term:
            return False
        previous = entry
    return previous.term <= term
