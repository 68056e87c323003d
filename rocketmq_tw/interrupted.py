"""Ctrl-C at any time, also while a program still imports what it needs: a word and status 130."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType, TracebackType

from rocketmq_tw.interpreter import IS_PYPY

#: The status of a program that was interrupted, as shells have it.
INTERRUPTED = 130


def end_quietly(program: str) -> None:
    """Lets an interrupt that nobody takes end this process, from now on, with a word of `program`
    and with status 130, and not with a traceback."""
    sys.excepthook = partial(_end, program)


def end_at_once(program: str) -> None:
    """Lets an interrupt end this process from now on, where it stands, with a word of `program` and
    with status 130; one that is ignored stays so. For a program that has begun nothing: while
    modules are loaded, the exception of an interrupt may come where nobody hears of it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, partial(_exit, program))


def _exit(program: str, number: int, frame: FrameType | None) -> None:
    _say_stopped(program)
    os._exit(INTERRUPTED)


def _say_stopped(program: str) -> None:
    # Not what `twistd` has put in its place, which is the log. The terminal shows ^C in its line.
    if sys.__stderr__ is not None:
        sys.__stderr__.write(f"\n{program}: stopped\n")
        sys.__stderr__.flush()


@contextmanager
def interrupted_by_all() -> Iterator[None]:
    """Lets SIGTERM and SIGHUP interrupt as Ctrl-C does, so that what is half done is put right. A
    signal that is ignored, as by `nohup`, stays so."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    former = {}
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            former[number] = signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _end(
    program: str, kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    _say_stopped(program)
    if IS_PYPY:
        # It takes no exit from here: it would show a traceback.
        os._exit(INTERRUPTED)
    sys.exit(INTERRUPTED)
