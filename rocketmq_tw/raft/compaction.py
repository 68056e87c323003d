"""Lets a member's log begin further on: by snapshots of its state, or once its reader is done."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from twisted.logger import Logger

from rocketmq_tw.raft.core.raft_core import RaftCore
from rocketmq_tw.raft.core.snapshot import Snapshot, SnapshotMeta
from rocketmq_tw.raft.disk_work import DiskWork
from rocketmq_tw.raft.state_machine import IStateMachine
from rocketmq_tw.raft.store.member import MemberStore
from rocketmq_tw.runtime.failures import FailuresInARow


class Compaction:
    """Takes a snapshot of `machine` once `every` entries were applied since the last one (0:
    never), and removes the data files that nobody needs any more. `name` is the member's in the
    server's log."""

    log = Logger()

    def __init__(
        self,
        name: str,
        core: RaftCore,
        store: MemberStore,
        disk: DiskWork,
        machine: IStateMachine | None,
        every: int,
    ) -> None:
        self._core = core
        self._store = store
        self._disk = disk
        self._machine = machine
        self._every = every
        self._since_snapshot = 0
        #: Data files in front of this position are to go.
        self._drop_before = 0
        self._snapshot_failures = FailuresInARow(
            self.log, f"{name}: no snapshot, so the log is kept whole until the next one"
        )
        self._drop_failures = FailuresInARow(
            self.log, f"{name}: files that are not needed any more could not be removed"
        )

    def loaded_snapshot(self) -> None:
        """Notes that the state machine has the state of a leader's snapshot."""
        self._since_snapshot = 0

    def applied(self, entries: int) -> None:
        """Notes how many more entries were applied."""
        self._since_snapshot += entries

    def snapshot_if_due(self) -> None:
        """Takes a snapshot where enough was applied. The disk must not be busy."""
        if self._machine is None or not self._every or self._since_snapshot < self._every:
            return
        place = self._core.snapshot_place()
        if place is None:
            return
        self._since_snapshot = 0
        data = self._machine.take_snapshot()
        meta = SnapshotMeta(place.index, place.term, place.next_pos, len(data))
        self._disk.attempt(
            partial(self._store.save_snapshot, Snapshot(meta, data)),
            self._snapshot_failures,
            self._snapshot_saved,
        )

    def _snapshot_saved(self) -> None:
        # The core reads the log and the snapshot on this thread: only what it no longer asks for
        # may go.
        self._store.use_snapshot()
        self._core.compacted()
        self._disk.attempt(self._store.drop_covered, self._drop_failures)

    def ask(self, position: int) -> None:
        """Notes that the data files may go that end at or before `position`."""
        self._drop_before = max(self._drop_before, position)

    @property
    def is_asked(self) -> bool:
        """Whether there may be files that may go: `drop_asked` looks."""
        return self._drop_before > 0

    def drop_asked(self, over: Callable[[], None]) -> None:
        """Lets the log begin where it was asked to, and removes the files in front of that, if
        there are any; `over` follows, whether they could be removed or not. The disk must not be
        busy."""
        position, self._drop_before = self._drop_before, 0
        if self._store.begin_behind(position):
            self._core.compacted()
            self._disk.attempt(self._store.drop_covered, self._drop_failures, over, over)
