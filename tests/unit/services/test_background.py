"""twistd without -n: its exit status is the start's; and what signals do to a server."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from rocketmq_tw.services.background import StartReport
from tests.support.wait import LIMIT, wait_until

PROJECT = Path(__file__).resolve().parents[3]
LOCAL = ("-o", "bindAddress=127.0.0.1", "-o", "storePathRootDir=store")
Start = Callable[..., Any]
STOPPED = (0, -signal.SIGINT)


class Background:
    """twistd in the background of `home`, with its log in a file there."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def start(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = "from twisted.scripts.twistd import run; run()"
        path = os.pathsep.join(filter(None, (str(PROJECT), os.environ.get("PYTHONPATH"))))
        inherited = {k: v for k, v in os.environ.items() if k != "NAMESRV_ADDR"}
        return subprocess.run(
            [sys.executable, "-c", command, "--logfile=server.log", *arguments],
            cwd=self.home,
            env=inherited | {"PYTHONPATH": path, "HOME": str(self.home)},
            text=True,
            capture_output=True,
            timeout=LIMIT,
            check=False,
        )

    def stop(self) -> None:
        """Ends the server that runs, if any."""
        for pid_file in self.home.glob("*.pid"):
            # One that could not start may just be ending by itself, with or without its file.
            with suppress(FileNotFoundError, psutil.NoSuchProcess):
                server = psutil.Process(int(pid_file.read_text()))
                server.terminate()
                wait_until(lambda server=server: _is_over(server), "the server's end")


def _is_over(server: psutil.Process) -> bool:
    # Nobody may be there to take notice of its end.
    return not server.is_running() or server.status() == psutil.STATUS_ZOMBIE


@pytest.fixture
def background(tmp_path: Path) -> Iterator[Background]:
    server = Background(tmp_path)
    yield server
    server.stop()


def test_the_command_ends_once_the_server_serves(background: Background) -> None:
    ended = background.start("rmq-broker", *LOCAL, "-o", "listenPort=0", "-o", "brokerName=b")
    log = (background.home / "server.log").read_text()
    assert ended.returncode == 0, ended.stderr + log
    assert "broker b serves at 127.0.0.1:" in log


def test_the_command_tells_why_the_server_cannot_start(background: Background) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for program in ("rmq-namesrv", "rmq-broker"):
            listen = f"listenPort={port}"
            ended = background.start(program, "-o", "bindAddress=127.0.0.1", "-o", listen)
            assert ended.returncode == 1, ended.stderr
            key = "listenPort"
            assert ended.stderr == (
                f"cannot start: 127.0.0.1:{port} cannot be listened on (Address already in use):"
                f" change {key}\n"
            )


def test_a_server_whose_port_for_monitoring_is_taken_does_not_start(
    background: Background,
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = background.start(
            "rmq-broker", *LOCAL, "-o", "listenPort=0", "-o", "metricsExporterType=PROM",
            "-o", f"metricsPromExporterPort={port}",
        )  # fmt: skip
    reason = f"127.0.0.1:{port} cannot be listened on (Address already in use)"
    assert ended.stderr == f"cannot start: {reason}: change metricsPromExporterPort\n"
    log = (background.home / "server.log").read_text()
    assert "serves at" not in log
    assert not (background.home / "store").exists()


def test_a_report_is_given_once_and_nobody_has_to_wait_for_it() -> None:
    read, write = os.pipe()
    report = StartReport()
    report.take_over({"statusPipe": write})
    report.failed("the reason " + "x" * 5000)
    report.started()
    with open(read, "rb") as pipe:
        told = pipe.read()
    assert told.startswith(b"1 the reason x") and len(told) == 4096
    StartReport().started()


def test_a_closed_terminal_stops_a_server_cleanly(twistd: Start, tmp_path: Path) -> None:
    broker = twistd("rmq-broker", *LOCAL, "-o", "listenPort=0", terminal=True)
    broker.wait_for("serves at")
    broker.process.send_signal(signal.SIGHUP)
    status, output = broker.finish()
    assert status == 0, output
    assert "Traceback" not in output
    assert not (tmp_path / "store" / "abort").exists()


def test_sighup_stops_no_server_without_a_terminal(twistd: Start) -> None:
    """As scripts send it that have moved log files away."""
    broker = twistd("rmq-broker", *LOCAL, "-o", "listenPort=0")
    broker.wait_for("serves at")
    broker.process.send_signal(signal.SIGHUP)
    broker.wait_for("SIGHUP changes nothing: .* SIGTERM stops the server")
    broker.process.send_signal(signal.SIGTERM)
    status, output = broker.finish()
    assert status in (*STOPPED, -signal.SIGTERM), output


def test_more_signals_do_not_disturb_a_stop(twistd: Start, tmp_path: Path) -> None:
    broker = twistd("rmq-broker", *LOCAL, "-o", "listenPort=0")
    broker.wait_for("serves at")
    broker.interrupt()
    broker.process.send_signal(signal.SIGTERM)
    broker.interrupt()
    status, output = broker.finish()
    assert status in (*STOPPED, -signal.SIGTERM), output
    assert "Traceback" not in output
    assert not (tmp_path / "store" / "abort").exists()
