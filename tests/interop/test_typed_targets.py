"""What `make try-controller` and `make try-acting` start is there: what they say is typed, up to
the first message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.terminal import INTERRUPTED, Started, Terminal
from tests.support.wait import wait_until

pytestmark = pytest.mark.more


@contextmanager
def tried(terminal: Terminal, target: str) -> Iterator[list[str]]:
    """The lines of rmqadmin that the target says to type, in their order; it is interrupted in any
    case, since its servers are in sessions of their own."""
    running = terminal.begin(f"make {target}")
    try:
        wait_until(lambda: "bring " in running.said, "what to type", interval=0.2)
        yield _of_rmqadmin(running)
    finally:
        terminal.interrupt(running, status=INTERRUPTED)
    assert "has ended with" not in running.said


def _of_rmqadmin(running: Started) -> list[str]:
    shown = [line.strip() for line in running.said.splitlines() if line.startswith("    ")]
    return [line for line in shown if line.split()[0].endswith("rmqadmin")]


def test_three_brokers_elect_their_master(tmp_path: Path) -> None:
    with Terminal(tmp_path / "home") as terminal, tried(terminal, "try-controller") as lines:
        looking, sending, reading = lines
        again = " -i 2"
        assert looking.endswith(again)
        terminal.type_until(looking.removesuffix(again), "3 in sync")
        terminal.type_until(sending, "SEND_OK")
        terminal.type_until(reading, "hello")


def test_two_groups_have_their_masters(tmp_path: Path) -> None:
    with Terminal(tmp_path / "home") as terminal, tried(terminal, "try-acting") as lines:
        making, route, sending = lines[:3]
        terminal.type_until(making)
        terminal.type_until(route, "broker-b")
        terminal.type_until(sending, "SEND_OK")
