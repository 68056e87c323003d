"""Jobs for threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.threads import deferToThreadPool

#: Runs a blocking call in a thread; fires with its result.
InThread = Callable[[Callable[[], Any]], "Deferred[Any]"]


def in_pool(reactor: Any) -> InThread:
    """Returns an `InThread` that uses the thread pool of `reactor`."""
    return lambda job: deferToThreadPool(reactor, reactor.getThreadPool(), job)


def at_once(job: Callable[[], Any]) -> Deferred[Any]:
    """Runs the job before it returns: an `InThread` for files that never block."""
    return maybeDeferred(job)
