"""Decides when the queues and the index get what is in the log."""

from __future__ import annotations

from collections.abc import Callable, Generator

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from rocketmq_tw.runtime.alarm import Alarm
from rocketmq_tw.runtime.listeners import Listeners
from rocketmq_tw.runtime.retries import RETRY_USUAL
from rocketmq_tw.store.interface import IMessageStore

#: Seconds by which a slave fills its queues later than its log: many small appends share the work.
SLAVE_SECONDS = 0.01

log = Logger()


class Dispatcher:
    """Dispatches the log of `store`, a slice in each reactor turn, and tells its listeners."""

    def __init__(self, store: IMessageStore, clock: IReactorTime) -> None:
        self._store = store
        self._clock = clock
        self._dispatched = Listeners[()]("messages came into their queues")
        self._retry = Alarm(clock, self.dispatch)
        self._later = Alarm(clock, self.dispatch)
        self._stopped = False
        #: Why the last dispatch failed; empty where it did not.
        self.failure = ""

    def stop(self) -> None:
        """Ends retries and what would follow in later turns; `dispatch` still works."""
        self._stopped = True
        self._retry.cancel()

    def on_dispatched(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls `callback` after each dispatch, so once for all messages of a turn; what is
        returned ends that."""
        return self._dispatched.add(callback)

    def when_dispatched(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls `callback` once, when all that the log has by now is in the queues: at once where
        that is so. What is returned ends the waiting, and does nothing after it."""
        end = self._store.end_offset
        waiting = True

        def look() -> None:
            if waiting and self._store.dispatched_offset >= end:
                stop()
                callback()

        def stop() -> None:
            nonlocal waiting
            if waiting:
                waiting = False
                stop_looking()

        stop_looking = self.on_dispatched(look)
        look()
        return stop

    def dispatch(self) -> None:
        """Dispatches a slice now; what is left follows in later turns, or `RETRY_USUAL` seconds
        after a failure, which is logged."""
        self._later.cancel()
        try:
            if not self._dispatch():
                return
        except Exception:
            # The messages are in the log, and the store goes on from there the next time.
            log.failure("filling the queues failed; what is stored will be seen later")
            if not self._stopped:
                self._retry.set_if_unset(RETRY_USUAL)
            return
        self._dispatched.tell()
        if not self._stopped and not self._store.is_dispatched:
            # Others first.
            self._later.set_if_unset(0)

    def dispatch_later(self) -> None:
        """Dispatches in `SLAVE_SECONDS`, unless it is to dispatch before that already."""
        self._later.set_if_unset(SLAVE_SECONDS)

    def dispatch_waiting(self) -> None:
        """Dispatches now what `dispatch_later` has put off."""
        if self._later.is_set:
            self.dispatch()

    @inlineCallbacks
    def dispatch_all(self) -> Generator[Deferred[None], None, None]:
        """Dispatches all that the log has, and lets others in between; fails with what the store
        raises where some of it cannot be dispatched."""
        while self._dispatch():
            self._dispatched.tell()
            if self._store.is_dispatched:
                break
            yield deferLater(self._clock, 0)

    def _dispatch(self) -> int:
        try:
            dispatched = self._store.dispatch()
        except Exception as error:
            self.failure = f"messages do not come into their queues: {error}"
            raise
        self.failure = ""
        return dispatched
