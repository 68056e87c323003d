"""Waits for a condition; a test never sleeps for a time that it hopes is long enough."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from rocketmq_tw.client.errors import ClientError
from rocketmq_tw.wire.errors import WireError
from tests.support.threads import check_threads

T = TypeVar("T")

#: Seconds; what takes two here may take a minute on a slow machine that does much else as well.
LIMIT = 240.0
#: What takes long is asked for less often: after a twentieth of the time that it took so far, and
#: at least so often (seconds).
_RARER = 20
_RAREST = 0.2


def go_on(server: Any, answered: list[Any], most_turns: int = 10_000) -> Any:
    """Lets the threads and turns of a server in memory pass until there is an answer."""
    for _ in range(most_turns):
        if answered:
            return answered[0]
        server.threads.run()
        server.clock.advance(0.001)
    raise AssertionError("no answer")


class PeerFailed(Exception):
    """A program that the test runs refused what was asked of it, or answered with an error."""


#: What a server that starts, stops, lost its peers or writes its files anew makes of a question.
_NOT_YET = (OSError, WireError, ClientError, PeerFailed)


def wait_until(
    condition: Callable[[], T],
    what: str,
    *,
    limit: float = LIMIT,
    interval: float = 0.02,
) -> T:
    """The first truthy value of `condition()`, asked every `interval` seconds, later less often.

    A condition does not hold yet where it cannot be asked, since the server is not there or
    refuses. Raises `ThreadDied` where a thread of the test has died, and `TimeoutError` with
    `what` and what was seen last after `limit` seconds.
    """
    began = time.monotonic()
    while True:
        check_threads()
        seen: T | Exception
        try:
            seen = value = condition()
        except _NOT_YET as error:
            seen = error
        else:
            if value:
                return value
        waited = time.monotonic() - began
        if waited > limit:
            raise TimeoutError(f"waited {limit:g} s for {what}; last seen: {seen!r}")
        time.sleep(max(interval, min(waited / _RARER, _RAREST)))


def result_of(clock: Clock, deferred: Deferred[Any]) -> Any:
    """What `deferred` fires with within ten seconds of `clock`, which is moved on; a failure is
    raised."""
    results: list[Any] = []
    deferred.addBoth(results.append)
    for _ in range(100):
        if results:
            break
        clock.advance(0.1)
    assert results, "it did not fire"
    if isinstance(results[0], Failure):
        results[0].raiseException()
    return results[0]


def wait_past(timestamp_ms: int) -> None:
    """Waits until the wall clock is past `timestamp_ms`."""
    wait_until(lambda: time.time() * 1000 > timestamp_ms + 1, "the clock", interval=0.001)
