"""The console script of `rmqadmin`: it loads the command line so that Ctrl-C meanwhile ends it as
later on."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from rocketmq_tw.interpreter import IS_PYPY
from rocketmq_tw.interrupted import end_quietly

if TYPE_CHECKING:
    from rocketmq_tw.admin.tool import Tool

#: New objects after which the first generation is looked at, more than a command imports; Python's
#: own number is 700.
_GARBAGE_AFTER = 100_000


def main(arguments: Sequence[str] | None = None, tool: Tool | None = None) -> NoReturn:
    """Runs a command (of the process's arguments where none is given) and exits, see
    `command_line.run`."""
    end_quietly("rmqadmin")
    if arguments is None:
        from rocketmq_tw.admin.light_imports import load_http_lazily

        load_http_lazily()
        _look_for_less_garbage()
    from rocketmq_tw.admin.command_line import run

    run(arguments, tool)


def _look_for_less_garbage() -> None:
    """Has the collector look less often: what is imported stays to the end, and to look at it for
    garbage takes a fifth of the time of a short command. PyPy's cannot be asked for that."""
    if IS_PYPY:
        return
    gc.set_threshold(_GARBAGE_AFTER)
    atexit.register(gc.freeze)
