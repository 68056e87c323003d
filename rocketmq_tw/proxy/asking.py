"""Asks several brokers of which one has to answer, so that one that hangs holds up nobody."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.runtime.alarm import Alarm
from rocketmq_tw.wire.errors import RequestError

#: Seconds in which one of several brokers has to answer: clients give up after 3 s.
ANY_TIMEOUT = 3.0
#: Seconds after which another one is asked as well.
NEXT_AFTER = 1.0

T = TypeVar("T")


class AskingInTurn(Generic[T]):
    """Asks one broker after the other until one has a wanted answer: the next one where one fails,
    has another answer, or has none after `next_after` seconds. Those that were asked before may
    answer still. All of them have `ANY_TIMEOUT` together, or each without `next_after`."""

    def __init__(
        self,
        clock: IReactorTime,
        names: Iterable[str],
        ask: Callable[[str, float], Deferred[T]],
        is_wanted: Callable[[T], bool],
        next_after: float | None = NEXT_AFTER,
        avoid: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`ask` is called with the name of a broker and the seconds that it has. `avoid` is told
        the name of each that fails, or is not waited for."""
        self._clock = clock
        self._names = deque(names)
        self._ask = ask
        self._is_wanted = is_wanted
        self._next_after = next_after
        self._avoid = avoid
        self._began = clock.seconds()
        #: Those that were asked and have not answered.
        self._pending: set[str] = set()
        self._alarm = Alarm(clock, self._took_long)
        self._last: T | None = None
        self._found: Deferred[T | None] = Deferred()
        #: Why brokers gave no answer, by their names.
        self.errors: dict[str, RemotingError] = {}

    def answer(self) -> Deferred[T | None]:
        """Fires with the first wanted answer, or the last of the others; with None where none
        answers."""
        self._next()
        return self._found

    def _next(self) -> None:
        self._alarm.cancel()
        timeout = ANY_TIMEOUT
        if self._next_after is not None:
            timeout -= self._clock.seconds() - self._began
        if not self._names or timeout <= 0:
            if not self._pending:
                self._end(self._last)
            return
        name = self._names.popleft()
        self._pending.add(name)
        if self._next_after is not None and self._names:
            self._alarm.set(self._next_after)
        asked = self._ask(name, timeout)
        asked.addCallbacks(self._came, self._failed, callbackArgs=(name,), errbackArgs=(name,))
        asked.addErrback(self._broke)

    def _took_long(self) -> None:
        for name in self._pending:
            self._avoid(name)
        self._next()

    def _came(self, answer: T, name: str) -> None:
        self._pending.discard(name)
        self._last = answer
        if self._found.called:
            return
        if self._is_wanted(answer):
            self._end(answer)
        else:
            self._next()

    def _failed(self, failure: Failure, name: str) -> Failure | None:
        error = failure.value
        if not isinstance(error, RemotingError):
            return failure
        self._pending.discard(name)
        if not self._found.called:
            self._avoid(name)
            self.errors[name] = error
            self._next()
        return None

    def _broke(self, failure: Failure) -> None:
        self._alarm.cancel()
        if not self._found.called:
            self._found.errback(failure)

    def _end(self, answer: T | None) -> None:
        self._alarm.cancel()
        self._found.callback(answer)


class AskingTogether(Generic[T]):
    """Asks several brokers at once, each of which may have more to say than the others. Once one
    has a wanted answer the others have `others_seconds` left, all have `ANY_TIMEOUT`."""

    def __init__(
        self,
        clock: IReactorTime,
        names: Iterable[str],
        ask: Callable[[str, float], Deferred[T]],
        is_wanted: Callable[[T], bool],
        others_seconds: float,
    ) -> None:
        """`ask` is called as that of `AskingInTurn`."""
        self._ask = ask
        self._is_wanted = is_wanted
        self._others_seconds = others_seconds
        #: Those that have not answered.
        self._pending = set(names)
        self._alarm = Alarm(clock, self._end)
        self._answers: list[T] = []
        self._found: Deferred[list[T]] = Deferred()
        #: What brokers failed with.
        self.errors: list[RemotingError | RequestError] = []

    @property
    def is_complete(self) -> bool:
        """Whether all have answered."""
        return not self._pending and not self.errors

    def answers(self) -> Deferred[list[T]]:
        """Fires with the answers that came; none where all fail."""
        names = sorted(self._pending)
        if not names:
            self._end()
        for name in names:
            asked = self._ask(name, ANY_TIMEOUT)
            asked.addCallbacks(self._came, self._failed)
            asked.addCallbacks(self._is_done, self._broke, callbackArgs=(name,))
        return self._found

    def _came(self, answer: T) -> None:
        if self._found.called:
            return
        self._answers.append(answer)
        if self._is_wanted(answer):
            self._alarm.set_if_unset(self._others_seconds)

    def _failed(self, failure: Failure) -> Failure | None:
        error = failure.value
        if not isinstance(error, RemotingError | RequestError):
            return failure
        if not self._found.called:
            self.errors.append(error)
        return None

    def _is_done(self, _: object, name: str) -> None:
        if self._found.called:
            return
        self._pending.discard(name)
        if not self._pending:
            self._end()

    def _broke(self, failure: Failure) -> None:
        self._alarm.cancel()
        if not self._found.called:
            self._found.errback(failure)

    def _end(self) -> None:
        self._alarm.cancel()
        self._found.callback(self._answers)
