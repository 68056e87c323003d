"""Jobs for threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure

#: Threads for a process, and for each broker in it beside others: one whose disk hangs keeps some
#: seven for ever.
_THREADS, _OF_A_BROKER = 10, 10

#: Runs a blocking call in a thread; fires with its result.
InThread = Callable[[Callable[[], Any]], "Deferred[Any]"]


def in_pool(reactor: Any) -> InThread:
    """Returns an `InThread` that uses the thread pool of `reactor`."""

    def run(job: Callable[[], Any]) -> Deferred[Any]:
        done = deferToThreadPool(reactor, reactor.getThreadPool(), _outcome, job)
        return done.addCallback(list.pop)

    return run


def allow_brokers(reactor: Any, brokers: int) -> None:
    """Lets jobs for so many brokers run at once in the thread pool of `reactor`, so that one whose
    disk hangs holds up no others."""
    reactor.suggestThreadPoolSize(_THREADS + _OF_A_BROKER * brokers)


def _outcome(job: Callable[[], Any]) -> list[Any]:
    """Returns a list with what `job` returns, or with its failure, to be taken out: the thread's
    functions, to which a failure refers, have the list among their variables. With the failure
    there, what the job had made would stay until the collector looks for cycles, which servers have
    it do rarely."""
    try:
        return [job()]
    except Exception:
        return [Failure()]


def at_once(job: Callable[[], Any]) -> Deferred[Any]:
    """Runs the job before it returns: an `InThread` for files that never block."""
    return maybeDeferred(job)
