"""Writes the wheel, the timer log, the checkpoint and the counts together.

The commit log is made durable first, so that it has what the files say waits or is delivered.
Nothing of the timer's files is written before that: a kill leaves them behind the log, never ahead.
Rules: docs/formats/timers.md, "The order of things".
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.timer.books import TimerBooks
from rocketmq_tw.broker.timer.progress import TimerCheckpoint
from rocketmq_tw.broker.writing.commit import Commit
from rocketmq_tw.runtime.fairness import Serial
from rocketmq_tw.store.errors import NotWritableError
from rocketmq_tw.store.timer.timer_files import TimerChanges

#: Milliseconds of delivered slots that are kept in memory: a master may be followed a little back.
KEPT_MS = 15 * 60_000
#: What is written, by name, in the log of a broker.
PROGRESS_TABLE = "the timer progress"


class TimerKeeper:
    """Writes the files of the timer, one write after the other; what failed is written with the
    next one."""

    def __init__(self, host: Host, commit: Commit, books: TimerBooks) -> None:
        self._host = host
        self._commit = commit
        self._books = books
        self._writing = Serial()

    def checkpoint(self) -> TimerCheckpoint:
        """Returns how far the timer is now, with the log position and version that were written
        last."""
        known = self._books.progress.checkpoint or TimerCheckpoint()
        return self._books.position()._replace(
            log_position=known.log_position,
            state_version=known.state_version,
            timestamp=known.timestamp,
            counter=known.counter,
        )

    def save(self, *, always: bool = False) -> Deferred[None]:
        """Writes what changed, or with `always` also a checkpoint that differs only by the time.
        Fires once it is durable; fails with `NotWritableError` or `OSError`."""
        return self._writing.run(self._save, always)

    def alone(self, work: Callable[[], Deferred[Any]]) -> Deferred[Any]:
        """Calls `work` and waits for its Deferred while nothing is written; fires as that does."""
        return self._writing.run(work)

    @inlineCallbacks
    def save_followed(self) -> Generator[Deferred[Any], Any, None]:
        """Writes the checkpoint alone, where a master's was followed: for a broker that has no
        timer of its own. Fires and fails as `save` does."""
        progress = self._books.progress
        checkpoint = progress.checkpoint
        if checkpoint is not None and progress.is_dirty:
            yield self._commit.make_durable()
            yield self._host.in_thread(lambda: progress.write(checkpoint))
            progress.take(checkpoint)

    @inlineCallbacks
    def _save(self, always: bool) -> Generator[Deferred[Any], Any, None]:
        books = self._books
        changes = books.files.take_changes()
        checkpoint = self._next_checkpoint(changes)
        counts = books.counts.pending_write()
        if not (always or changes or counts or self._is_further(checkpoint)):
            return
        try:
            if not (yield self._commit.flushed()):
                raise NotWritableError("the log could not be made durable")
            yield self._host.in_thread(lambda: self._write(changes, checkpoint, counts))
        except Exception:
            books.files.not_written(changes)
            if counts is not None:
                books.counts.write_soon()
            raise
        books.files.written(changes, checkpoint.read_ms - KEPT_MS)
        books.progress.take(checkpoint)

    def _next_checkpoint(self, changes: TimerChanges) -> TimerCheckpoint:
        known = self._books.progress.checkpoint or TimerCheckpoint()
        position = self._books.position()._replace(
            log_position=changes.log_end,
            state_version=known.state_version,
            timestamp=known.timestamp,
            counter=known.counter,
        )
        if self._books.master_queue_offset is not None:
            # A slave has its master's version: by it a master that lost its file is known.
            return position
        return position._replace(timestamp=self._host.now_ms(), counter=known.counter + 1)

    def _is_further(self, checkpoint: TimerCheckpoint) -> bool:
        """Returns whether it differs from the one written last by more than the time."""
        progress = self._books.progress
        written = progress.checkpoint
        return (
            progress.is_dirty
            or written is None
            or checkpoint.master_queue_offset != written.master_queue_offset
            or checkpoint.queue_offset != written.queue_offset
            or self._books.files.wheel.next_time(written.read_ms, checkpoint.read_ms) is not None
        )

    def _write(
        self,
        changes: TimerChanges,
        checkpoint: TimerCheckpoint,
        counts: Callable[[], bytes] | None,
    ) -> None:
        self._books.files.write(changes)
        self._books.progress.write(checkpoint)
        if counts is not None:
            self._books.counts.write(counts())
