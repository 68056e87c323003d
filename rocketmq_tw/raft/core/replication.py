"""The leader's side of the log: it brings every follower's log to its own, and commits."""

from collections.abc import Callable

from rocketmq_tw.raft.core.codes import Code, PushKind, RaftRole
from rocketmq_tw.raft.core.entry import ENTRY_HEADER_SIZE, Entry
from rocketmq_tw.raft.core.member_state import MemberState
from rocketmq_tw.raft.core.membership import quorum_index
from rocketmq_tw.raft.core.messages import PushRequest, PushResponse, SnapshotResponse
from rocketmq_tw.raft.core.progress import PeerProgress, Pending, Phase
from rocketmq_tw.raft.core.snapshot import SnapshotSender

#: For how many pushes to a follower entries are read from the store in one call of `maintain`. To
#: read those of a whole window would take longer than others can wait.
READ_AT_ONCE = 1

#: Makes the body of a new leader's first entry, which is to begin at this position of the data
#: files. Its length is the same for all positions.
OpeningBody = Callable[[int], bytes]


def empty_body(position: int) -> bytes:
    """Makes an opening entry without content."""
    return b""


class Replication:
    """The progress of all followers; used only while this member leads."""

    def __init__(
        self, state: MemberState, snapshots: SnapshotSender, opening: OpeningBody = empty_body
    ) -> None:
        self._state = state
        self._opening = opening
        self._snapshots = snapshots
        self.progress: dict[str, PeerProgress] = {}
        #: The first index that a read may rely on: what our predecessors left is committed then.
        self.barrier_index = -1
        #: Whether pushes wait for the next call of `maintain`: their entries have to be read.
        self.has_more = False
        state.role_listeners.append(self._role_changed)

    def _role_changed(self, role: RaftRole) -> None:
        self.progress.clear()
        if role is not RaftRole.LEADER:
            return
        log = self._state.log
        if log.end_index > self._state.commit_index:
            # Entries of older terms are committed only by one of our own behind them.
            place = log.place_of(len(self._opening(0)))
            log.make(self._state.term, self._opening(place + ENTRY_HEADER_SIZE))
        self.barrier_index = log.end_index
        for peer in self._state.peers:
            progress = PeerProgress(peer, quiet_since=self._state.now)
            progress.compare_from(log.end_index)
            self.progress[peer] = progress
        self.advance_commit()

    @property
    def deadline(self) -> int | None:
        """When a push is to be sent or sent again, without anything else happening."""
        config = self._state.config
        times: list[int] = []
        for progress in self.progress.values():
            gives_up_at = progress.gives_up_at(config.push_timeout_ms)
            if gives_up_at is not None:
                times.append(gives_up_at)
            elif progress.phase is not Phase.APPEND:
                if not self._state.log.is_empty:
                    times.append(progress.retry_at)
            elif progress.next_index <= self._state.log.end_index:
                times.append(progress.retry_at)
            elif progress.told_commit < self._state.commit_index:
                due = progress.quiet_since + config.commit_interval_ms
                times.append(max(progress.retry_at, due))
        return min(times, default=None)

    def maintain(self) -> None:
        """Sends to every follower what is due, but for a part of what has to be read for that: the
        rest is due at once, `has_more`."""
        self.has_more = False
        for progress in self.progress.values():
            self._push(progress, READ_AT_ONCE)

    def _push(self, progress: PeerProgress, reads: int = 0) -> None:
        """Sends what is due; for `reads` pushes entries may be read from the store."""
        now, config = self._state.now, self._state.config
        gives_up_at = progress.gives_up_at(config.push_timeout_ms)
        if gives_up_at is not None and now >= gives_up_at:
            progress.timed_out()
        if now < progress.retry_at or self._state.log.is_empty:
            return
        if progress.phase is Phase.APPEND:
            self._append(progress, reads)
        elif progress.pending:
            return
        elif progress.phase is Phase.COMPARE:
            self._compare(progress, reads)
        elif progress.phase is Phase.SNAPSHOT:
            self._send_snapshot(progress)
        else:
            self._truncate(progress)

    def _send(
        self, progress: PeerProgress, kind: PushKind, entries: tuple[Entry, ...], last: int
    ) -> None:
        state = self._state
        rpc = state.next_rpc()
        progress.pending[rpc] = Pending(kind, last, state.commit_index, state.now)
        progress.quiet_since = state.now
        state.send(
            PushRequest(
                source=state.self_id,
                target=progress.peer,
                term=state.term,
                rpc=rpc,
                kind=kind,
                commit_index=state.commit_index,
                entries=entries,
            )
        )

    def _append(self, progress: PeerProgress, reads: int) -> None:
        log, config = self._state.log, self._state.config
        if progress.next_index < log.begin_index:
            self._compare_again(progress)
            return
        while (
            progress.next_index <= log.end_index
            and len(progress.pending) < config.max_inflight_pushes
        ):
            if not log.is_recent(progress.next_index):
                if not reads:
                    self.has_more = True
                    return
                reads -= 1
            entries = log.slice(
                progress.next_index, config.max_batch_entries, config.max_batch_bytes
            )
            progress.next_index = entries[-1].index + 1
            self._send(progress, PushKind.APPEND, tuple(entries), entries[-1].index)
        if progress.pending:
            return
        quiet = self._state.now - progress.quiet_since
        news = progress.told_commit < self._state.commit_index
        # Said again with the heartbeats: the follower may have started anew, without its log even.
        if quiet >= (config.commit_interval_ms if news else config.heartbeat_interval_ms):
            self._send(progress, PushKind.COMMIT, (), progress.match_index)

    def _compare_again(self, progress: PeerProgress) -> None:
        progress.compare_from(self._state.log.end_index)
        self._compare(progress)

    def _compare(self, progress: PeerProgress, reads: int = 0) -> None:
        """Sends the next comparison, or goes on from the last common entry."""
        log = self._state.log
        index = progress.next_probe(log.begin_index)
        if index is not None:
            self._send(progress, PushKind.COMPARE, (log.read(index),), index)
            return
        common = progress.common_index
        if (
            common < log.begin_index
            and not progress.snapshot_unsupported
            and self._snapshots.covers(log.begin_index - 1)
        ):
            progress.phase = Phase.SNAPSHOT
            progress.snapshot_offset = 0
            self._send_snapshot(progress)
            return
        if common >= log.begin_index and progress.peer_end == common:
            progress.append_from(common)
            self._append(progress, reads)
            return
        progress.phase = Phase.TRUNCATE
        self._truncate(progress)

    def _truncate(self, progress: PeerProgress) -> None:
        """Cuts the follower's log behind the last common entry; where there is none it starts with
        this log's first one."""
        log = self._state.log
        index = max(progress.common_index, log.begin_index)
        self._send(progress, PushKind.TRUNCATE, (log.read(index),), index)

    def _send_snapshot(self, progress: PeerProgress) -> None:
        request = self._snapshots.chunk(progress.peer, progress.snapshot_offset)
        if request is None:
            self._compare_again(progress)
            return
        progress.pending[request.rpc] = Pending(
            PushKind.INSTALL_SNAPSHOT, request.last_index, request.last_index, self._state.now
        )
        progress.quiet_since = self._state.now
        self._state.send(request)

    def on_response(self, response: PushResponse) -> None:
        """Moves a follower on; answers of other terms and repeated ones are passed over."""
        progress = self.progress.get(response.source)
        if progress is None:
            return
        pending = progress.answered(response.rpc)
        if pending is None:
            return
        code = response.code
        if code not in (Code.SUCCESS, Code.INCONSISTENT_STATE):
            self._retry_later(progress)
            return
        progress.failures = 0
        self._look_at_time(progress, pending)
        if progress.phase is Phase.COMPARE:
            self._compared(progress, response)
        elif progress.phase is Phase.TRUNCATE and code is Code.INCONSISTENT_STATE:
            # It cannot go on from there: asked at once again and again it would say the same.
            self._retry_later(progress)
            return
        elif code is Code.INCONSISTENT_STATE or (
            pending.kind is PushKind.COMMIT and response.end_index < pending.last_index
        ):
            progress.compare_from(self._state.log.end_index)
        else:
            self._accepted(progress, pending)
        self._push(progress)

    def _look_at_time(self, progress: PeerProgress, pending: Pending) -> None:
        """Has the usual time-out again for a follower that answers within it. One that always
        answers, but later, keeps the longer one."""
        if self._state.now - pending.sent_at <= self._state.config.push_timeout_ms:
            progress.doublings = 0

    def _retry_later(self, progress: PeerProgress) -> None:
        config = self._state.config
        wait = min(config.push_retry_ms << min(progress.failures, 10), config.push_timeout_ms)
        progress.failures += 1
        progress.retry_at = self._state.now + wait
        if progress.phase is not Phase.COMPARE:
            progress.compare_from(self._state.log.end_index)

    def _compared(self, progress: PeerProgress, response: PushResponse) -> None:
        progress.compared(response.end_index)
        if response.code is Code.SUCCESS:
            progress.probe_matched()
            if progress.probe_index == response.end_index:
                progress.append_from(progress.probe_index)
        else:
            progress.probe_mismatched(response.end_index)
        self.advance_commit()

    def _accepted(self, progress: PeerProgress, pending: Pending) -> None:
        if progress.phase is Phase.TRUNCATE:
            progress.append_from(pending.last_index)
        else:
            progress.match_index = max(
                progress.match_index, min(pending.last_index, self._state.log.end_index)
            )
            # A late answer may be to more than what was sent again.
            progress.next_index = max(progress.next_index, progress.match_index + 1)
        told = min(pending.commit_index, progress.match_index)
        progress.told_commit = max(progress.told_commit, told)
        self.advance_commit()

    def on_snapshot_response(self, response: SnapshotResponse) -> None:
        """Takes a follower's answer to a chunk; UNSUPPORTED says that it cannot take snapshots at
        all."""
        code, received = response.code, response.received
        progress = self.progress.get(response.source)
        pending = progress.answered(response.rpc) if progress is not None else None
        if progress is None or pending is None or progress.phase is not Phase.SNAPSHOT:
            return
        if code is Code.SUCCESS:
            self._look_at_time(progress, pending)
        if code is Code.UNSUPPORTED:
            progress.snapshot_unsupported = True
            self._compare_again(progress)
        elif code is not Code.SUCCESS:
            progress.snapshot_offset = 0
            self._retry_later(progress)
        elif self._snapshots.is_complete(pending.last_index, received):
            progress.append_from(pending.last_index)
            self.advance_commit()
        else:
            progress.snapshot_offset = received
        self._push(progress)

    def advance_commit(self) -> None:
        """Commits entries of this leader's term that a quorum has stored, with all before them."""
        state = self._state
        if state.role is not RaftRole.LEADER:
            return
        indexes = [progress.match_index for progress in self.progress.values()]
        indexes.append(state.log.stable_index)
        index = quorum_index(indexes)
        if index > state.commit_index and state.log.term_at(index) == state.term:
            state.commit_to(index)

    def is_compared(self, peer: str) -> bool:
        """Returns whether a follower's log is known to have nothing that this leader's has not. An
        empty log is compared with none."""
        progress = self.progress.get(peer)
        is_like_ours = progress is not None and progress.phase is Phase.APPEND
        return is_like_ours or self._state.log.is_empty

    def fall_behind(self, peer: str) -> int:
        """Returns by how many entries a follower is behind, as far as is known."""
        progress = self.progress.get(peer)
        known = -1 if progress is None else progress.match_index
        return self._state.log.end_index - known
