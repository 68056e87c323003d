"""A terminal of the tests: what is typed at it, and that nothing of it is left."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.terminal import Terminal
from tests.support.wait import PeerFailed, wait_until


@pytest.fixture(params=["alone", "beside others", "without namespaces"])
def terminal(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Terminal]:
    if request.param == "without namespaces":
        monkeypatch.setattr("tests.support.terminal.can_enter_own_network", lambda: False)
    with Terminal(tmp_path / "home", alone=request.param == "alone") as opened:
        yield opened


def test_what_is_typed_is_done_in_one_shell(terminal: Terminal) -> None:
    terminal.type("export WORD=one; cd etc")
    assert terminal.type("echo $WORD; pwd").split() == ["one", str(terminal.checkout / "etc")]
    with pytest.raises(PeerFailed, match="ended with 3"):
        terminal.type("(echo why; exit 3)  # a comment")


def test_ctrl_c_ends_what_runs(terminal: Terminal) -> None:
    started = terminal.begin("trap 'echo bye; exit 5' INT; echo begun; while :; do sleep 0.1; done")
    wait_until(lambda: "begun" in started.said, "it to begin")
    assert terminal.interrupt(started, status=5) == "begun\nbye\n"


def test_a_question_is_answered_by_somebody_who_sits_there(terminal: Terminal) -> None:
    assert terminal.type("test -t 0 && read word && echo $word", answer="y") == "y\n"
    terminal.type("test -t 0", status=1)


def test_nothing_is_left(terminal: Terminal, tmp_path: Path) -> None:
    ours = f"MARK={tmp_path}"
    terminal.begin(f"{ours} sleep 900")
    terminal.type(f"{ours} sleep 901 &")

    def living() -> list[bytes]:
        found = []
        for entry in Path("/proc").glob("[0-9]*/environ"):
            try:
                found += [entry.read_bytes()] if ours.encode() in entry.read_bytes() else []
            except OSError:
                continue
        return found

    wait_until(lambda: len(living()) == 2, "both to run")
    terminal.close()
    wait_until(lambda: not living(), "the end of all")


def test_ports_and_directories_are_its_own(tmp_path: Path) -> None:
    with Terminal(tmp_path / "home") as terminal:
        if not terminal.is_alone:
            pytest.skip("this machine lets nobody make namespaces")
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            program = f"import socket; socket.socket().bind(('127.0.0.1', {port}))"
            terminal.type(f'python -c "{program}"')
        own = terminal.own("/etc", copied=True)
        terminal.type("echo mine > /etc/rmq-test")
        assert (own / "rmq-test").read_text() == "mine\n"
        assert (own / "passwd").exists() and not os.path.exists("/etc/rmq-test")
