"""Writes the wheel, the timer log, the checkpoint and the counts together.

The commit log is made durable first: what the files say waits, or is delivered, it has. Nothing of
the timer's files is written before that, so that a kill leaves them behind the log, never ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from twisted.internet.defer import Deferred, DeferredLock, inlineCallbacks
from twisted.logger import Logger

from rocketmq_tw.broker.timer.counts import TimedCounts
from rocketmq_tw.broker.timer.progress import TimerCheckpoint, TimerProgress
from rocketmq_tw.broker.writing.commit import Commit
from rocketmq_tw.runtime.threads import InThread
from rocketmq_tw.store.errors import NotWritableError
from rocketmq_tw.store.timer.timer_files import Snapshot, TimerFiles

#: Milliseconds of delivered slots that are kept in memory: a master may be followed a little back.
KEPT_MS = 15 * 60_000

log = Logger()


class TimerKeeper:
    """One write at a time; what failed comes again with the next one."""

    def __init__(
        self,
        files: TimerFiles,
        progress: TimerProgress,
        counts: TimedCounts,
        commit: Commit,
        in_thread: InThread,
        now_ms: Callable[[], int],
        position: Callable[[], TimerCheckpoint],
    ) -> None:
        """`position` tells how far the broker is now; log position and version are filled in."""
        self._files = files
        self._progress = progress
        self._counts = counts
        self._commit = commit
        self._in_thread = in_thread
        self._now_ms = now_ms
        self._position = position
        self._writing = DeferredLock()

    def checkpoint(self) -> TimerCheckpoint:
        """How far the broker is now, as 60 tells it."""
        known = self._progress.checkpoint or TimerCheckpoint()
        return self._position()._replace(
            log_position=known.log_position,
            state_version=known.state_version,
            timestamp=known.timestamp,
            counter=known.counter,
        )

    def save(self, *, always: bool = False) -> Deferred[None]:
        """Writes what changed; fires once it is durable, and fails where it cannot be. What only
        time has changed is left out, unless `always`."""
        return self._writing.run(self._save, always)

    def alone(self, work: Callable[[], Deferred[Any]]) -> Deferred[Any]:
        """Does something while nothing is written."""
        return self._writing.run(work)

    @inlineCallbacks
    def _save(self, always: bool) -> Generator[Deferred[Any], Any, None]:
        changes = self._files.take_changes()
        checkpoint = self._next(changes)
        counts = self._counts.pending_write()
        if not (always or changes or counts or self._is_further(checkpoint)):
            return
        try:
            if not (yield self._commit.flushed()):
                raise NotWritableError("the log could not be made durable")
            yield self._in_thread(lambda: self._write(changes, checkpoint, counts))
        except Exception:
            self._files.not_written(changes)
            if counts is not None:
                self._counts.write_failed()
            raise
        self._files.written(changes, checkpoint.read_ms - KEPT_MS)
        self._progress.take(checkpoint)

    def _next(self, changes: Snapshot) -> TimerCheckpoint:
        checkpoint = self._position()
        known = self._progress.checkpoint
        counter = 0 if known is None else known.counter
        return checkpoint._replace(
            log_position=changes.log_end,
            state_version=0 if known is None else known.state_version,
            timestamp=self._now_ms(),
            counter=counter + 1,
        )

    def _is_further(self, checkpoint: TimerCheckpoint) -> bool:
        """Whether more than time has changed it."""
        written = self._progress.checkpoint
        return (
            self._progress.is_dirty
            or written is None
            or checkpoint.master_queue_offset != written.master_queue_offset
            or checkpoint.queue_offset != written.queue_offset
            or self._files.wheel.next_time(written.read_ms, checkpoint.read_ms) is not None
        )

    def _write(
        self,
        changes: Snapshot,
        checkpoint: TimerCheckpoint,
        counts: Callable[[], bytes] | None,
    ) -> None:
        self._files.write(changes)
        self._progress.write(checkpoint)
        if counts is not None:
            self._counts.write(counts())
