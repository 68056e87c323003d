"""Ctrl-C at any time, also while a program still imports what it needs: a word and status 130."""

from __future__ import annotations

import sys
from functools import partial
from types import TracebackType

#: The status of a program that was interrupted, as shells have it.
INTERRUPTED = 130


def end_quietly(program: str) -> None:
    """Lets an interrupt that nobody takes end this process, from now on, with a word of `program`
    and with status 130, and not with a traceback."""
    sys.excepthook = partial(_end, program)


def _end(
    program: str, kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    # Not what `twistd` has put in its place, which is the log. The terminal shows ^C in its line.
    if sys.__stderr__ is not None:
        sys.__stderr__.write(f"\n{program}: stopped\n")
    sys.exit(INTERRUPTED)
