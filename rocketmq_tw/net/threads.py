"""Jobs for a thread where there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred


def at_once(job: Callable[[], Any]) -> Deferred[Any]:
    """Runs a job where it stands: for files that never block."""
    return maybeDeferred(job)
