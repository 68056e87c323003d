"""Threads of a test that die: the test fails at once, with their own words."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_died: list[threading.ExceptHookArgs] = []


class ThreadDied(Exception):
    """A thread of the running test ended with an exception, which is the cause of this one."""


def check_threads() -> None:
    """Raises `ThreadDied` where a thread has died since `watched_threads` was entered."""
    if _died:
        first = _died[0]
        name = "?" if first.thread is None else first.thread.name
        died = ThreadDied(f"thread {name}: {first.exc_type.__name__}: {first.exc_value}")
        raise died from first.exc_value


@contextmanager
def watched_threads() -> Iterator[None]:
    """Notes which threads die meanwhile; raises `ThreadDied` at the end where one did and nothing
    else was raised."""
    former = threading.excepthook

    def note(arguments: threading.ExceptHookArgs) -> None:
        if arguments.exc_type is not SystemExit:
            _died.append(arguments)
        former(arguments)

    _died.clear()
    threading.excepthook = note
    try:
        yield
        check_threads()
    finally:
        threading.excepthook = former
        _died.clear()
