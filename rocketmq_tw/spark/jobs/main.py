"""The console script of `rmqspark`: it loads the command line, and PyArrow with it, so that Ctrl-C
meanwhile ends it as later on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from rocketmq_tw.interrupted import end_quietly


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs a command (of the process's arguments where none is given) and exits, see
    `command_line.run`."""
    end_quietly("rmqspark")
    from rocketmq_tw.spark.jobs.command_line import run

    run(arguments)
