"""Makes the log durable: group commit, the periodic flush, checkpoints.

Syncing blocks, so it runs in a thread, one round at a time: a round answers all callers that wait
when it starts, the next round those that came meanwhile. A checkpoint syncs queues and index beside
the rounds, so that no caller waits for it. It may have very many files to sync: a cut of the log,
or a stop, ends it after the file that it is at, and the next checkpoint syncs the others.

Rules: stock's `GroupCommitService` and `FlushRealTimeService`; docs/durability.md, "Answers that
wait for disk and replicas"; format of the checkpoint: docs/formats/checkpoint.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.runtime.failures import FailuresInARow
from rocketmq_tw.runtime.listeners import Listeners
from rocketmq_tw.runtime.periodic import PeriodicCall
from rocketmq_tw.runtime.slices import InSlices, all_steps
from rocketmq_tw.runtime.threads import InThread
from rocketmq_tw.runtime.waiters import Waiters
from rocketmq_tw.store.interface import ICheckpointWrite, IMessageStore

#: Told whether the log is durable up to where it was asked for.
Flushed = Callable[[bool], None]

#: A checkpoint comes when the log has grown by so much, whatever the interval says: after a crash
#: all behind the last one is read again, at some 10 us a record. Where thousands of queues are in
#: use it comes later, by so much for each file that it has to sync.
CHECKPOINT_BYTES = 64 << 20
FILE_BYTES = 64 << 10

log = Logger()


def _tell(flushed: Flushed, *, durable: bool) -> None:
    """Tells one caller; the others are told all the same where it fails."""
    try:
        flushed(durable)
    except Exception:
        log.failure("a caller that waited for a sync of the log failed as it was told")


class Flusher:
    """Syncs the log of one store. Every `flushIntervalCommitLog` it looks whether something is
    not durable yet; every `flushConsumeQueueThoroughInterval` and every `CHECKPOINT_BYTES` it
    writes a checkpoint."""

    def __init__(
        self,
        store: IMessageStore,
        config: MessageStoreConfig,
        clock: IReactorTime,
        in_thread: InThread,
        in_slices: InSlices = all_steps,
    ) -> None:
        self._store = store
        self._config = config
        self._clock = clock
        self._in_thread = in_thread
        self._in_slices = in_slices
        self._waiting: list[tuple[int, Flushed]] = []
        self._rounds = Listeners[()]("the log was made durable")
        self._running = False
        #: When the last thorough checkpoint began, and where the log ended at the last of any kind.
        self._checkpoint_at = 0.0
        self._checkpoint_end = 0
        #: The checkpoint that is being written, or waits for the log in front of it.
        self._checkpoint: ICheckpointWrite | None = None
        #: Queues are being written for the next one.
        self._is_preparing = False
        self._paused = False
        #: Why the last sync of the log failed; empty where it did not.
        self.failure = ""
        #: Why there was no checkpoint when one was due; empty where there was.
        self.checkpoint_failure = ""
        #: Deferreds that fire once nothing is being synced and no caller waits for a sync.
        self._paused_waiters = Waiters[None]()
        self._stopped_waiters = Waiters[None]()
        self._round_failures = FailuresInARow(log, "the log could not be made durable")
        self._checkpoint_failures = FailuresInARow(
            log, "no checkpoint; the next one is tried in its time"
        )
        seconds = config.flush_interval_commit_log / 1000
        self._ticker = PeriodicCall(clock, "the periodic flush", seconds, self._tick)

    def start(self) -> None:
        """Begins the periodic flush and its checkpoints."""
        self._checkpoint_at = self._clock.seconds()
        self._checkpoint_end = self._store.end_offset
        self._ticker.start()

    def stop(self) -> Deferred[None]:
        """Ends the periodic work; fires once no sync runs and no caller waits for one."""
        self._ticker.stop()
        self._stop_checkpoint()
        stopped = self._stopped_waiters.wait()
        self._report_idle()
        return stopped

    def pause(self) -> Deferred[None]:
        """Fires once nothing is being synced; then nothing is until `resume`."""
        self._paused = True
        self._stop_checkpoint()
        paused = self._paused_waiters.wait()
        self._report_idle()
        return paused

    def resume(self) -> None:
        """Goes on with the callers that wait."""
        self._paused = False
        self._next_round()

    def checkpoint_soon(self) -> None:
        """Has the next look make a thorough checkpoint."""
        self._checkpoint_at = -float("inf")

    def when_flushed(self, end_offset: int, callback: Flushed) -> None:
        """Calls `callback` once all up to `end_offset`, which is written, is durable (True) or a
        sync failed (False)."""
        self._waiting.append((end_offset, callback))
        self._next_round()

    def on_round(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls `callback` after each round that succeeded, before those who waited for it; what
        is returned ends that."""
        return self._rounds.add(callback)

    def _tick(self) -> None:
        self._checkpoint_if_due()
        self._next_round()

    def _next_round(self) -> None:
        # A checkpoint that has begun needs its round to end.
        if self._running or (self._paused and self._checkpoint is None):
            return
        store = self._store
        is_behind = store.flushed_offset < store.end_offset or store.has_unsynced_deletions
        if self._waiting or (self._ticker.is_running and is_behind):
            self._running = True
            self._in_thread(store.fsync).addCallbacks(self._round_ended, self._round_failed)

    def _round_ended(self, _result: Any) -> None:
        self._running = False
        self.failure = ""
        self._round_failures.succeeded()
        reached = self._store.flushed_offset
        self._rounds.tell()
        waiting, self._waiting = self._waiting, []
        for end_offset, flushed in waiting:
            if end_offset <= reached:
                _tell(flushed, durable=True)
            else:
                self._waiting.append((end_offset, flushed))
        if self._waiting:
            self._next_round()
        self._report_idle()

    def _round_failed(self, failure: Failure) -> None:
        self._running = False
        self.failure = f"the log cannot be made durable: {failure.getErrorMessage()}"
        self._round_failures.failed(failure)
        waiting, self._waiting = self._waiting, []
        for _, flushed in waiting:
            _tell(flushed, durable=False)
        self._report_idle()

    def _checkpoint_if_due(self) -> None:
        if self._checkpoint is not None or self._paused or self._is_preparing:
            return
        store, now, end = self._store, self._clock.seconds(), self._store.end_offset
        interval = self._config.flush_consume_queue_thorough_interval / 1000
        thorough = now - self._checkpoint_at >= interval
        if not thorough and end - self._checkpoint_end < (
            CHECKPOINT_BYTES + FILE_BYTES * store.unsynced_files
        ):
            return
        if thorough:
            self._checkpoint_at = now
        self._checkpoint_end = end
        self._is_preparing = True
        self._in_slices(self._write_queues()).addBoth(self._prepare, thorough)

    def _write_queues(self) -> Iterator[None]:
        for _ in self._store.write_queues():
            yield
            # Not beside a cut or the store's end, which write them in a thread or for themselves.
            if self._is_ending:
                return

    @property
    def _is_ending(self) -> bool:
        return self._paused or not self._ticker.is_running

    def _prepare(self, result: object, thorough: bool) -> None:
        self._is_preparing = False
        if isinstance(result, Failure):
            self._checkpoint_failed(result)
        elif self._is_ending:
            self.checkpoint_soon()
        else:
            self._begin_checkpoint(thorough)
        self._report_idle()

    def _begin_checkpoint(self, thorough: bool) -> None:
        store = self._store
        try:
            write = store.prepare_checkpoint(thorough=thorough)
        except Exception:
            self._checkpoint_failed(Failure())
            return
        if write is None:
            return
        self._checkpoint = write
        if store.flushed_offset < store.written_offset:
            self.when_flushed(store.written_offset, partial(self._write_checkpoint, write))
        else:
            self._write_checkpoint(write, durable=True)

    def _write_checkpoint(self, write: ICheckpointWrite, durable: bool) -> None:
        if durable:
            written = self._in_thread(write)
            written.addCallbacks(self._checkpoint_written, self._checkpoint_failed)
            written.addBoth(self._checkpoint_ended)
        else:
            self._checkpoint_ended(None)

    def _checkpoint_written(self, is_written: bool) -> None:
        self.checkpoint_failure = ""
        if is_written:
            self._checkpoint_failures.succeeded()
        else:
            self.checkpoint_soon()

    def _checkpoint_failed(self, failure: Failure) -> None:
        self.checkpoint_failure = f"no checkpoint can be written: {failure.getErrorMessage()}"
        self._checkpoint_failures.failed(failure)

    def _checkpoint_ended(self, _result: Any) -> None:
        self._checkpoint = None
        self._report_idle()

    def _stop_checkpoint(self) -> None:
        if self._checkpoint is not None:
            self._checkpoint.stop()

    def _report_idle(self) -> None:
        if self._running or self._is_preparing or self._checkpoint is not None:
            return
        self._paused_waiters.fire(None)
        if not self._waiting:
            self._stopped_waiters.fire(None)
