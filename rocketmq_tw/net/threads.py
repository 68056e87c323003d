"""Jobs for a thread, and steps for many turns, where there are none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from twisted.internet.defer import Deferred, fail, maybeDeferred, succeed


def at_once(job: Callable[[], Any]) -> Deferred[Any]:
    """Runs a job where it stands: for files that never block."""
    return maybeDeferred(job)


def all_steps(steps: Iterator[None]) -> Deferred[Any]:
    """Goes through `steps` where it stands: for what is little."""
    try:
        for _ in steps:
            pass
    except Exception:
        return fail()
    return succeed(None)
