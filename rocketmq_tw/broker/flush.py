"""When the log is made durable: group commit, the periodic flush, checkpoints.

Syncing blocks, so it runs in a thread, one round at a time: a round serves everyone who waits when
it starts, the next one whoever came meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.interfaces import IMessageStore
from rocketmq_tw.config.store import MessageStoreConfig

#: Runs a blocking call in a thread; fires with its result.
InThread = Callable[[Callable[[], Any]], "Deferred[Any]"]
#: Told whether the log is durable up to where it was asked for.
Flushed = Callable[[bool], None]

log = Logger()


class Flusher:
    """Syncs the log of one store. Every `flushIntervalCommitLog` it looks whether something is
    not durable yet; every `flushConsumeQueueThoroughInterval` it writes a checkpoint."""

    def __init__(
        self,
        store: IMessageStore,
        config: MessageStoreConfig,
        clock: IReactorTime,
        in_thread: InThread,
    ) -> None:
        self._store = store
        self._config = config
        self._clock = clock
        self._in_thread = in_thread
        self._waiting: list[tuple[int, Flushed]] = []
        self._after_round: list[Callable[[], None]] = []
        self._running = False
        self._checkpoint_at = 0.0
        self._checkpoint_due = False
        self._idle: list[Deferred[None]] = []
        self._ticker = LoopingCall(self._tick)
        self._ticker.clock = clock

    def start(self) -> None:
        self._checkpoint_at = self._clock.seconds()
        self._ticker.start(self._config.flush_interval_commit_log / 1000, now=False)

    def stop(self) -> Deferred[None]:
        """Ends the periodic work; fires once no round runs and nobody waits any more."""
        if self._ticker.running:
            self._ticker.stop()
        self._checkpoint_due = False
        idle: Deferred[None] = Deferred()
        self._idle.append(idle)
        self._report_idle()
        return idle

    def when_flushed(self, end_offset: int, callback: Flushed) -> None:
        """Calls `callback` once all up to `end_offset`, which is written, is durable (True) or a
        sync failed (False)."""
        self._waiting.append((end_offset, callback))
        self._next_round()

    def on_round(self, callback: Callable[[], None]) -> None:
        """Calls `callback` after each round that succeeded, before those who waited for it."""
        self._after_round.append(callback)

    def _tick(self) -> None:
        interval = self._config.flush_consume_queue_thorough_interval / 1000
        if self._clock.seconds() - self._checkpoint_at >= interval:
            self._checkpoint_at = self._clock.seconds()
            self._checkpoint_due = True
        self._next_round()

    def _next_round(self) -> None:
        if self._running:
            return
        store = self._store
        if self._waiting or (self._ticker.running and store.flushed_offset < store.end_offset):
            self._running = True
            self._in_thread(store.fsync).addCallbacks(self._round_ended, self._round_failed)
        elif self._checkpoint_due:
            self._checkpoint_due = False
            try:
                write = store.prepare_checkpoint()
            except Exception:
                _checkpoint_failed(Failure())
                return
            if write is not None:
                self._running = True
                written = self._in_thread(write).addErrback(_checkpoint_failed)
                written.addCallback(self._round_ended)

    def _round_ended(self, _result: Any) -> None:
        self._running = False
        reached = self._store.flushed_offset
        for callback in self._after_round:
            callback()
        waiting, self._waiting = self._waiting, []
        for end_offset, flushed in waiting:
            if end_offset <= reached:
                flushed(True)
            else:
                self._waiting.append((end_offset, flushed))
        if self._waiting or self._checkpoint_due:
            self._next_round()
        self._report_idle()

    def _round_failed(self, failure: Failure) -> None:
        self._running = False
        log.failure("the log could not be made durable", failure=failure)
        waiting, self._waiting = self._waiting, []
        for _, flushed in waiting:
            flushed(False)
        self._report_idle()

    def _report_idle(self) -> None:
        if not self._running and not self._waiting:
            idle, self._idle = self._idle, []
            for waiter in idle:
                waiter.callback(None)


def _checkpoint_failed(failure: Failure) -> None:
    log.failure("no checkpoint; the next one is tried in its time", failure=failure)
