"""Queues of work from many sources: fair to all of them, or in the order of each."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

K = TypeVar("K", bound=Hashable)


def _directly(work: Callable[[], None]) -> None:
    work()


class FairQueue(Generic[K]):
    """Does a share of the queued work in each turn of the reactor, one piece of each source after
    the other.

    `begin_turn` is called when a turn begins, and `may_go_on` tells, before each piece but the
    first, whether the turn has room for one more. `around` calls what it is given, as
    `Outboxes.gather` does.
    """

    log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        may_go_on: Callable[[], bool],
        begin_turn: Callable[[], None] = lambda: None,
        around: Callable[[Callable[[], None]], object] = _directly,
    ) -> None:
        self._clock = clock
        self._may_go_on = may_go_on
        self._begin_turn = begin_turn
        self._around = around
        self._is_scheduled = False
        self._waiting: dict[K, deque[Callable[[], None]]] = {}

    def __bool__(self) -> bool:
        """Whether any work is queued."""
        return bool(self._waiting)

    def add(self, source: K, work: Callable[[], None]) -> None:
        """Does `work` in a later turn, behind all else of `source`."""
        self._waiting.setdefault(source, deque()).append(work)
        self.schedule()

    def discard(self, source: K) -> None:
        """Drops the queued work of `source`."""
        self._waiting.pop(source, None)

    def schedule(self) -> None:
        """Has another turn begin, even where nothing is queued by then."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._clock.callLater(0, self._around, self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        self._begin_turn()
        first = True
        while self._waiting and (first or self._may_go_on()):
            first = False
            source = next(iter(self._waiting))
            mine = self._waiting.pop(source)
            work = mine.popleft()
            if mine:
                # Behind the others.
                self._waiting[source] = mine
            try:
                work()
            except Exception:
                self.log.failure("work of {source} that waited for its turn", source=source)
        if self._waiting:
            self.schedule()


class SerialQueue(Generic[K]):
    """Work of one source is done one after the other, also where it takes its time; sources do not
    wait for each other."""

    def __init__(self) -> None:
        self._busy: dict[K, DeferredLock] = {}

    def is_busy(self, source: K) -> bool:
        """Whether something of the source is under way, behind which the next one belongs."""
        return source in self._busy

    def run(self, source: K, work: Callable[[], Any]) -> Deferred[Any]:
        """Fires with what `work` returns, called once everything before it is over."""
        lock = self._busy.setdefault(source, DeferredLock())

        def over(result: Any) -> Any:
            if not lock.locked and self._busy.get(source) is lock:
                del self._busy[source]
            return result

        return lock.run(work).addBoth(over)
