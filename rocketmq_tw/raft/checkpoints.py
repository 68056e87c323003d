"""A member's checkpoints: up to where its log is committed, so that a start looks less far back."""

from __future__ import annotations

from functools import partial

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rocketmq_tw.raft.core.raft_core import RaftCore
from rocketmq_tw.raft.disk_work import DiskWork
from rocketmq_tw.raft.store.member import MemberStore
from rocketmq_tw.raft.unstored import Unstored
from rocketmq_tw.runtime.alarm import Alarm
from rocketmq_tw.runtime.failures import FailuresInARow


class Checkpoints:
    """Writes one `seconds` after something was stored, but for the time in which the disk is busy
    or something is `unstored`. `name` is the member's in the server's log."""

    log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        name: str,
        core: RaftCore,
        store: MemberStore,
        disk: DiskWork,
        unstored: Unstored,
        seconds: float,
    ) -> None:
        self._core = core
        self._store = store
        self._disk = disk
        self._unstored = unstored
        self._seconds = seconds
        self._is_stopped = False
        self._alarm = Alarm(clock, self._write)
        self._failures = FailuresInARow(
            self.log, f"{name}: no checkpoint, which only makes the next start longer"
        )

    @property
    def due(self) -> float | None:
        """The clock's seconds at the next one; None while there is nothing for it."""
        return self._alarm.due

    def stored(self) -> None:
        """Notes that there is something new for a checkpoint."""
        if not self._is_stopped:
            self._alarm.set_if_unset(self._seconds)

    def stop(self) -> None:
        """Writes no more, but for the last one."""
        self._is_stopped = True
        self._alarm.cancel()

    def write_last(self) -> None:
        """Writes what is committed now, at once. Raises `OSError` and `StoreError`."""
        self._store.write_checkpoint(self._core.stored_commit_index)

    def _write(self) -> None:
        if self._disk.is_busy or self._unstored.is_kept:
            self.stored()
            return
        committed = self._core.stored_commit_index
        if committed < self._core.log.end_index:
            # The rest may be committed without anything more being stored.
            self.stored()
        self._disk.attempt(
            partial(self._store.write_checkpoint, committed), self._failures, again=self.stored
        )
