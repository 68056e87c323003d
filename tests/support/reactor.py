"""Tests on the reactor itself and on real sockets, for the few that need them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure


def on_reactor(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Makes a test of an async function that gets the running reactor as its first argument.

    The reactor runs only as long as the test, in its thread and on its stack: a test that hits its
    time limit ends there and leaves a reactor that the next one can run.
    """

    def run() -> None:
        # Importing it installs it.
        from twisted.internet import reactor as installed

        reactor: Any = installed
        outcome: list[Any] = []

        async def whole() -> None:
            await test(reactor)

        reactor.startRunning(installSignalHandlers=False)
        try:
            Deferred.fromCoroutine(whole()).addBoth(outcome.append)
            while not outcome:
                reactor.runUntilCurrent()
                if not outcome:
                    reactor.doIteration(reactor.timeout())
        finally:
            # It may be started again.
            reactor.crash()
        if isinstance(outcome[0], Failure):
            outcome[0].raiseException()

    # Without `__wrapped__`, by which pytest would look for a fixture `reactor`.
    run.__module__, run.__name__, run.__doc__ = test.__module__, test.__name__, test.__doc__
    return run
