"""A member's work on its files, which may block: one piece at a time, off the reactor's thread."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from rocketmq_tw.runtime.failures import FailuresInARow

#: Runs something that may block and fires with its result: a thread pool's, or at once.
RunBlocking = Callable[[Callable[[], None]], "Deferred[None]"]


class DiskWork:
    """Runs one action after the other by `run_blocking`. `over` is called on the reactor's thread
    with what follows an action, once the next one may be given; `failed` with a failure that ends
    the member."""

    def __init__(
        self,
        clock: IReactorTime,
        run_blocking: RunBlocking,
        over: Callable[[Callable[[], None]], object],
        failed: Callable[[Failure], object],
    ) -> None:
        self._clock = clock
        self._run_blocking = run_blocking
        self._over = over
        self._failed = failed
        self._under_way: Deferred[None] | None = None
        self._began = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether an action is under way: no other one may be given."""
        return self._under_way is not None

    @property
    def busy_seconds(self) -> float:
        """How long the action that is under way has taken by now; 0 where none is."""
        return self._clock.seconds() - self._began if self.is_busy else 0.0

    def when_idle(self, then: Callable[[], object]) -> None:
        """Calls `then`, now or behind the action that is under way."""
        if self._under_way is None:
            then()
        else:
            self._under_way.addBoth(lambda _: then())

    def run(
        self,
        action: Callable[[], None],
        done: Callable[[], None],
        refused: Callable[[Failure], None] | None = None,
    ) -> None:
        """Does what the member cannot do without; `done` follows. An `OSError` is given to
        `refused`; without that, as with every other failure, the member ends."""

        def failed(failure: Failure) -> None:
            if refused is None or failure.check(OSError) is None:
                failure.raiseException()
            self._is_over(partial(refused, failure))

        self._began = self._clock.seconds()
        under_way = self._under_way = self._run_blocking(action)
        under_way.addCallbacks(lambda _: self._is_over(done), failed).addErrback(self._ended)

    def attempt(
        self,
        action: Callable[[], None],
        failures: FailuresInARow,
        done: Callable[[], None] = lambda: None,
        again: Callable[[], None] = lambda: None,
    ) -> None:
        """Does what the member can do without: an `OSError` is noted in `failures`, and `again`
        follows in the place of `done`."""

        def worked() -> None:
            failures.succeeded()
            done()

        def refused(failure: Failure) -> None:
            failures.failed(failure)
            again()

        self.run(action, worked, refused)

    def _is_over(self, then: Callable[[], None]) -> None:
        self._under_way = None
        self._over(then)

    def _ended(self, failure: Failure) -> None:
        self._under_way = None
        self._failed(failure)
