"""Keeps what a member has to store and finds no room for: its disk is full, or no descriptor is
left."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.files.reserve import NO_ROOM
from rocketmq_tw.raft.core.raft_core import Ready
from rocketmq_tw.runtime.alarm import Alarm
from rocketmq_tw.runtime.retries import RETRY_USUAL

log = Logger()


class Unstored:
    """Keeps a `Ready` that found no room, one at a time, and has `store_again` called with it every
    `RETRY_USUAL` seconds until it is stored. The log calls the member `name`."""

    def __init__(
        self, clock: IReactorTime, name: str, store_again: Callable[[Ready], object]
    ) -> None:
        self._name = name
        self._store_again = store_again
        self._ready: Ready | None = None
        #: Why there is no room; empty where nothing is kept.
        self.why = ""
        self._alarm = Alarm(clock, self.try_again)

    @property
    def is_kept(self) -> bool:
        """Whether a `Ready` is kept."""
        return self._ready is not None

    @property
    def cuts_log(self) -> bool:
        """Whether what is kept cuts the log, or begins it anew. That may be half done."""
        if self._ready is None:
            return False
        writes = self._ready.writes
        return writes.reset is not None or writes.truncate_after is not None

    def keep(self, ready: Ready, failure: Failure) -> bool:
        """Keeps `ready`, whose storing failed, and tries again later; returns whether it was stored
        for the first time. Raises the failure where it does not say that there is no room."""
        if getattr(failure.value, "errno", None) not in NO_ROOM:
            failure.raiseException()
        is_new = self._ready is None
        if is_new:
            self._ready, self.why = ready, failure.getErrorMessage()
            # Out of date once they could be sent.
            ready.messages.clear()
            log.error(
                "{member}: takes no part in its group before it can store again, which is tried"
                " every {seconds} s: {why}",
                member=self._name,
                seconds=RETRY_USUAL,
                why=self.why,
            )
        self._alarm.set(RETRY_USUAL)
        return is_new

    def try_again(self) -> None:
        """Has what is kept stored now; does nothing where nothing is kept."""
        if self._ready is not None:
            self._store_again(self._ready)

    def stored(self) -> bool:
        """Notes that a `Ready` is stored; returns whether it was the one that is kept."""
        if self._ready is None:
            return False
        log.info("{member}: stores again, and takes part in its group", member=self._name)
        self._ready, self.why = None, ""
        self._alarm.cancel()
        return True

    def stop(self) -> None:
        """Tries no more."""
        self._alarm.cancel()
