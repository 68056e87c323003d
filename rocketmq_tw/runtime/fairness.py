"""Queues of work from many sources: fair to all of them, or in the order of each.

================== ====================== =========================================================
class              under way at a time    order
================== ====================== =========================================================
`FairQueue`        a share of each turn   one piece of each source after the other; nothing may wait
`SomeAtOnce`       `limit`                as it came
`Serial`           one                    as it came
`Coalesced`        one                    one call for all requests that came before it
`SerialQueue`      one of each source     as it came from that source
`SerialRoundRobin` one                    one piece of each source after the other
`FairSerialQueue`  one for each thing     one piece of each source after the other, for each thing
`FewAtOnce`        `limit`, each of       as things became due; new work for a thing replaces what
                   another thing          waits
================== ====================== =========================================================
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

K = TypeVar("K", bound=Hashable)
S = TypeVar("S", bound=Hashable)

#: Seconds of one turn of the reactor that work which ends at once may take.
_LOOP_SECONDS = 0.01


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
        """Returns whether any work is queued."""
        return bool(self._waiting)

    def add(self, source: K, work: Callable[[], None]) -> None:
        """Does `work` in a later turn, behind all else of `source`."""
        self._waiting.setdefault(source, deque()).append(work)
        self.schedule()

    def forget(self, source: K) -> None:
        """Does nothing more of what is queued of `source`."""
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
                self.log.failure("work of {source} that waited for its turn failed", source=source)
        if self._waiting:
            self.schedule()


class SomeAtOnce:
    """Does `limit` pieces of work at a time, in the order in which they came.

    Pieces that end at once are done in a loop: with `DeferredSemaphore` and `DeferredLock` each one
    is called by the end of the one before it, and a hundred of them that waited use up the stack.
    With a `clock` the loop goes on in another turn of the reactor after some 10 ms.
    """

    def __init__(self, limit: int, clock: IReactorTime | None = None) -> None:
        self._limit = limit
        self._clock = clock
        self._waiting: deque[tuple[Deferred[Any], Callable[..., Any], tuple[Any, ...]]] = deque()
        self._under_way: dict[Deferred[Any], Deferred[Any]] = {}
        self._is_looping = False

    @property
    def is_busy(self) -> bool:
        """Whether something is under way or waits."""
        return bool(self._under_way or self._waiting)

    def run(self, work: Callable[..., Any], *args: Any) -> Deferred[Any]:
        """Fires with what `work` returns for `args`, called once its turn comes. Where it is
        cancelled, work that waits is not called, and work under way is cancelled."""
        done: Deferred[Any] = Deferred(self._cancel)
        self._waiting.append((done, work, args))
        if not self._is_looping:
            self._go_on()
        return done

    def _cancel(self, done: Deferred[Any]) -> None:
        current = self._under_way.get(done)
        if current is not None:
            current.cancel()
            return
        for entry in self._waiting:
            if entry[0] is done:
                self._waiting.remove(entry)
                return

    def _go_on(self) -> None:
        self._is_looping = True
        clock = self._clock
        until = 0.0
        while self._waiting and len(self._under_way) < self._limit:
            done, work, args = self._waiting.popleft()
            self._under_way[done] = current = maybeDeferred(work, *args)
            current.addBoth(self._ended, done)
            if clock is not None and self._waiting:
                now = clock.seconds()
                until = until or now + _LOOP_SECONDS
                if now >= until:
                    clock.callLater(0, self._go_on)
                    return
        self._is_looping = False

    def _ended(self, result: Any, done: Deferred[Any]) -> None:
        del self._under_way[done]
        if not done.called:
            done.callback(result)
        if not self._is_looping:
            self._go_on()


class Serial(SomeAtOnce):
    """Does one piece of work after the other, also where it takes its time."""

    def __init__(self) -> None:
        super().__init__(1)


class Coalesced:
    """Calls `work` once for all requests that come before it begins, and never twice at a time.
    `work` may return a Deferred; nobody hears of its result, so it handles its own failures."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._serial = Serial()
        self._is_requested = False

    def request(self) -> None:
        """Has `work` called: now, or once the call that is under way is over."""
        if not self._is_requested:
            self._is_requested = True
            self._serial.run(self._begin)

    def _begin(self) -> Any:
        self._is_requested = False
        return self._work()


class SerialQueue(Generic[K]):
    """Work of one source is done one after the other, also where it takes its time; sources do not
    wait for each other."""

    def __init__(self) -> None:
        self._busy: dict[K, Serial] = {}

    def is_busy(self, source: K) -> bool:
        """Returns whether something of the source is under way, behind which the next one
        belongs."""
        return source in self._busy

    def run(self, source: K, work: Callable[[], Any]) -> Deferred[Any]:
        """Fires with what `work` returns, called once everything before it is over."""
        serial = self._busy.setdefault(source, Serial())

        def over(result: Any) -> Any:
            if not serial.is_busy and self._busy.get(source) is serial:
                del self._busy[source]
            return result

        return serial.run(work).addBoth(over)


class SerialRoundRobin(Generic[K]):
    """Does one piece of work at a time, one of each source after the other. `idle` is called when
    nothing is under way or waits any more."""

    def __init__(self, idle: Callable[[], object] = lambda: None) -> None:
        self._one = Serial()
        self._idle = idle
        self._waiting: dict[K, deque[Callable[[], Any]]] = {}

    def run(self, source: K, work: Callable[[], Any]) -> Deferred[Any]:
        """Fires with what `work` returns, called behind all else of `source`, when it has its
        turn. Where it is cancelled, work that waits is not called, and work under way is
        cancelled."""
        under_way: list[Deferred[Any]] = []

        def piece() -> Deferred[Any]:
            under_way.append(maybeDeferred(work))
            return under_way[0].addBoth(done.callback)

        def give_up(_: Deferred[Any]) -> None:
            if under_way:
                under_way[0].cancel()
                return
            mine = self._waiting[source]
            mine.remove(piece)
            if not mine:
                del self._waiting[source]

        done: Deferred[Any] = Deferred(give_up)
        self._waiting.setdefault(source, deque()).append(piece)
        self._one.run(self._next).addCallback(self._ended)
        return done

    def _ended(self, _: None) -> None:
        if not self._one.is_busy:
            self._idle()

    def _next(self) -> Any:
        if not self._waiting:
            # What waited was given up.
            return None
        source = next(iter(self._waiting))
        mine = self._waiting.pop(source)
        piece = mine.popleft()
        if mine:
            # Behind the others.
            self._waiting[source] = mine
        return piece()


class FewAtOnce(Generic[K]):
    """Does work for things that are due, for `limit` of them at the same time: for one thing of
    each source after the other, for those of a source in the order in which they became due. New
    work for a thing that still waits replaces its old work."""

    log = Logger()

    def __init__(self, limit: int) -> None:
        self._limit = limit
        #: By source.
        self._due: dict[Hashable, dict[K, Callable[[], Any]]] = {}
        self._under_way = 0
        self._is_looping = False

    def __len__(self) -> int:
        """Returns how many things wait for their turn."""
        return sum(map(len, self._due.values()))

    @property
    def is_busy(self) -> bool:
        """Whether something waits or is under way."""
        return bool(self._due) or self._under_way > 0

    def add(self, thing: K, work: Callable[[], Any], source: Hashable = None) -> None:
        """Has `work` called, now or when its turn comes; it may return a Deferred. A failure is
        logged. A thing has one source."""
        self._due.setdefault(source, {})[thing] = work
        self._go_on()

    def clear(self) -> None:
        """Forgets what waits."""
        self._due.clear()

    def _go_on(self) -> None:
        # A loop: work that ends at once would use up the stack.
        if self._is_looping:
            return
        self._is_looping = True
        try:
            while self._due and self._under_way < self._limit:
                source = next(iter(self._due))
                mine = self._due.pop(source)
                thing = next(iter(mine))
                work = mine.pop(thing)
                if mine:
                    # Behind the others.
                    self._due[source] = mine
                self._under_way += 1
                maybeDeferred(work).addBoth(self._ended, thing)
        finally:
            self._is_looping = False

    def _ended(self, result: Any, thing: K) -> None:
        self._under_way -= 1
        if isinstance(result, Failure):
            self.log.failure("work for {thing} failed", failure=result, thing=thing)
        self._go_on()


class FairSerialQueue(Generic[K, S]):
    """Work on one thing is done one piece after the other, of each source in turn: nobody waits
    behind all that another one has asked for. Things do not wait for each other."""

    def __init__(self) -> None:
        self._busy: dict[K, SerialRoundRobin[S]] = {}

    def run(self, thing: K, source: S, work: Callable[[], Any]) -> Deferred[Any]:
        """Fires as `SerialRoundRobin.run` does."""
        queue = self._busy.get(thing)
        if queue is None:
            queue = self._busy[thing] = SerialRoundRobin(lambda: self._busy.pop(thing))
        return queue.run(source, work)
