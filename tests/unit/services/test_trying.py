"""What the `make try-...` targets have one type is there and can be typed."""

from __future__ import annotations

import importlib.util
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

from rocketmq_tw.admin.command_line import cli
from rocketmq_tw.admin.tool import Tool
from tests.support.wait import LIMIT, wait_until
from tools import try_acting, try_controller, trying
from tools.trying import PROJECT, run


def shown(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> tuple[dict[str, int], list[list[str]]]:
    """The process ids by name, and the words of each line that is to be typed."""
    monkeypatch.chdir(PROJECT)
    running = {name: number for number, name in enumerate(tool.commands(), 100)}
    lines = [line for line in tool.explain(running) if line.startswith("    ")]
    return running, [shlex.split(line, comments=True) for line in lines]


@pytest.mark.parametrize("tool", [try_controller, try_acting])
def test_what_is_shown_can_be_typed(tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    running, typed = shown(tool, monkeypatch)
    for words in typed:
        program, *arguments = words
        if program.endswith("rmqadmin"):
            context = cli.make_context("rmqadmin", arguments[:1], obj=Tool())
            _, command, _ = cli.resolve_command(context, arguments)
            assert command is not None
            command.make_context(arguments[0], arguments[1:], parent=context)
        elif program.endswith("twistd"):
            assert arguments[0] == "-n" and arguments[1].endswith(".pid")
            assert arguments[2] == "rmq-broker"
            assert Path(arguments[-1]).is_file()
        elif program == "kill":
            assert arguments[0] == "-9" and int(arguments[1]) in running.values()
        else:
            assert arguments[:1] == ["-m"] and importlib.util.find_spec(arguments[1])


def test_a_port_that_another_program_has_is_named_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        free = "127.0.0.1:0"
        assert run(tmp_path, {"a": ["/bin/false"]}, lambda _: [], [free, address]) == 1
    said = capsys.readouterr()
    assert said.err == f"in use: {address}; stop the programs that listen there\n"
    assert said.out == ""


def test_a_server_that_was_brought_back_by_hand_ends_with_the_others(tmp_path: Path) -> None:
    # Stands for a server: it knows what its command line says and, as twistd, writes its file.
    code = """if True:
        import os, sys, time
        file = sys.argv[1].partition("=")[2]
        with open(file, "w") as pid_file:
            pid_file.write(str(os.getpid()))
        time.sleep(600)
    """
    file = tmp_path / "broker-a.pid"
    command = [sys.executable, "-c", code, f"--pidfile={os.path.relpath(file, PROJECT)}"]
    again: list[subprocess.Popen[bytes]] = []

    def killed_and_brought_back(running: Mapping[str, int]) -> list[str]:
        wait_until(file.exists, "the file with the process id")
        os.kill(running["broker a"], signal.SIGKILL)
        file.unlink()
        again.append(subprocess.Popen(command, cwd=PROJECT))
        wait_until(lambda: file.exists() and file.read_text(), "the server that is back")
        return []

    former = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    try:
        assert run(tmp_path, {"broker a": command}, killed_and_brought_back, []) == 0
        assert again[0].wait(LIMIT) == -signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, former[0])
        signal.signal(signal.SIGINT, former[1])
        for process in again:
            process.kill()
            process.wait()


def test_a_process_that_only_has_the_id_is_left_alone(tmp_path: Path) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        (tmp_path / "x.pid").write_text(str(stranger.pid))
        trying._end_others(tmp_path)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_each_broker_of_a_group_with_controllers_may_be_killed_and_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running, typed = shown(try_controller, monkeypatch)
    brokers = [str(pid) for name, pid in running.items() if name.startswith("broker")]
    assert [words[2] for words in typed if words[0] == "kill"] == brokers
    assert sum(words[0].endswith("twistd") for words in typed) == len(brokers) == 3


def test_the_master_that_is_killed_is_the_one_that_is_brought_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running, typed = shown(try_acting, monkeypatch)
    assert ["kill", "-9", str(running["broker-a"])] in typed
    assert [words[-1] for words in typed if words[0].endswith("twistd")] == [
        "etc/acting/broker-a.conf"
    ]
