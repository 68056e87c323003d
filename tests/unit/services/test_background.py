"""twistd without -n: its exit status is the start's; and what signals do to each server."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.services import process as server_process
from rocketmq_tw.services.background import StartReport
from tests.support.ports import BrokerPorts, ReservedPort
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
        # Tests may run with nohup, whose programs ignore SIGHUP.
        command = (
            "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL);"
            " from twisted.scripts.twistd import run; run()"
        )
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


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which another program listens, the free ports of a broker around it."""
    ports = BrokerPorts()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", ports.listen.number))
        other.listen()
        yield ports.listen.number
    ports.release()


@pytest.fixture
def peer() -> Iterator[int]:
    """A free port for the one member of a group."""
    port = ReservedPort()
    yield port.number
    port.release()


def keys(**given: object) -> list[str]:
    return [part for key, value in given.items() for part in ("-o", f"{key}={value}")]


def command(server: str, port: int, peer: int) -> list[str]:
    """Starts a server that listens on `port`, one in a group as a group by itself: there it, or a
    broker's member, listens on `peer`."""
    local = {"bindAddress": "127.0.0.1"}
    listens = local | {"listenPort": port}
    stored = listens | {"storePathRootDir": "store", "mappedFileSizeCommitLog": 1 << 20}
    group = {"enableDLegerCommitLog": "true", "dLegerGroup": "g", "dLegerSelfId": "n0"}
    if server == "name server":
        return ["rmq-namesrv", *keys(**listens, kvConfigPath="kv.json")]
    if server == "broker":
        return ["rmq-broker", *keys(**stored)]
    if server == "broker in a group of DLedger":
        return ["rmq-broker", *keys(**stored, **group, dLegerPeers=f"n0-127.0.0.1:{peer}")]
    if server == "standalone":
        return ["rmq-standalone", *keys(**stored | {"listenPort": 0}, namesrvListenPort=port)]
    if server == "container":
        return ["rmq-container", *keys(**listens, brokerProcesses="together")]
    if server == "proxy":
        ports = {"grpcServerPort": port, "remotingListenPort": 0}
        return ["rmq-proxy", "-n", "127.0.0.1:1", *keys(**local, **ports)]
    if server == "controller":
        controller = {
            "controllerDLegerGroup": "g",
            "controllerDLegerSelfId": "n0",
            "controllerDLegerPeers": f"n0-127.0.0.1:{port or peer}",
            "controllerStorePath": "store",
            "mappedFileSize": 1 << 20,
        }
        return ["rmq-controller", *keys(**local, **controller)]
    assert server == "member of a group of DLedger"
    peers = f"--peers=n0-127.0.0.1:{port or peer}"
    return ["rmq-dledger", peers, "--store=store", "--data-file-size=1048576"]


#: Each server, and which key it says to change where its port is taken.
KEYS_OF_PORTS = {
    "name server": "listenPort",
    "broker": "listenPort",
    "broker in a group of DLedger": "listenPort",
    "standalone": "namesrvListenPort",
    "container": "listenPort",
    "proxy": "the proxy's grpcServerPort, remotingListenPort or remotingBrokerPorts, or give each"
    " proxy at it sharePorts=true",
    "controller": "the port in controllerDLegerPeers",
    "member of a group of DLedger": "the port in --peers",
}


def said(background: Background) -> list[str]:
    """The lines of the log behind the version, without warnings."""
    log = (background.home / "server.log").read_text()
    version, *lines = re.findall(r"#(?:info|critical|error)\] (.*\n)", log)
    assert version.startswith("rocketmq_tw ") and "Traceback" not in log, log
    return lines


def refused(background: Background, ended: subprocess.CompletedProcess[str]) -> str:
    """Why the server could not start, in the one line that the command and the log say."""
    assert ended.returncode == 1 and ended.stdout == ""
    assert said(background).count(ended.stderr) == 1, ended.stderr
    return ended.stderr.removeprefix("cannot start: ").removesuffix("\n")


@pytest.mark.parametrize("server", KEYS_OF_PORTS)
def test_the_command_tells_of_a_port_that_is_taken(
    background: Background, taken: int, peer: int, server: str
) -> None:
    why = refused(background, background.start(*command(server, taken, peer)))
    assert why == (
        f"127.0.0.1:{taken} cannot be listened on (Address already in use):"
        f" change {KEYS_OF_PORTS[server]}"
    )
    assert why in said(background)[0], "before anything else"
    assert not (background.home / "store").exists(), "before it looks what is there"


@pytest.mark.parametrize("server", ["name server", "proxy"])
def test_the_command_tells_of_keys_that_do_not_fit(
    background: Background, peer: int, server: str
) -> None:
    """Which only a start finds: a server of TLS has no certificate."""
    started = command(server, 0, peer)
    started += keys(**{"tls.server.mode": "enforcing", "tls.test.mode.enable": "false"})
    assert "tls.server.certPath" in refused(background, background.start(*started))


@pytest.mark.parametrize(
    ("server", "key"),
    [
        ("name server", "kvConfigPath"),
        ("broker", "storePathRootDir"),
        ("container", "storePathRootDir"),
        ("controller", "controllerStorePath"),
        ("member of a group of DLedger", "--store"),
    ],
)
def test_the_command_tells_of_a_store_that_cannot_be_opened(
    background: Background, peer: int, server: str, key: str
) -> None:
    (background.home / "store").touch()
    (background.home / "kv.json").mkdir()
    started = command(server, 0, peer)
    if server == "container":
        broker = background.home / "broker.conf"
        broker.write_text("brokerName=b\nlistenPort=0\nstorePathRootDir=store\n")
        started += ["-b", str(broker)]
    why = refused(background, background.start(*started))
    assert re.search(f"(store|kv.json)\\S*: .*: change {key}$", why), why


@pytest.mark.parametrize("server", KEYS_OF_PORTS)
def test_signals_to_a_server_in_the_background(
    background: Background, peer: int, server: str
) -> None:
    """SIGUSR1 begins another file of the log, as when one is moved away; SIGHUP and SIGUSR2 change
    nothing; and of several that ask for a stop the first one counts."""
    home, log = background.home, background.home / "server.log"
    ended = background.start(*command(server, 0, peer))
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr + log.read_text()
    (pid_file,) = home.glob("*.pid")
    process = psutil.Process(int(pid_file.read_text()))
    process.send_signal(signal.SIGUSR1)
    wait_until((home / "server.log.1").exists, "another file")
    process.send_signal(signal.SIGHUP)
    wait_until(lambda: "SIGHUP changes nothing" in log.read_text(), "a line of SIGHUP")
    process.send_signal(signal.SIGUSR2)
    wait_until(lambda: "SIGUSR2 changes nothing" in log.read_text(), "a line of SIGUSR2")
    assert process.is_running() and "rocketmq_tw" in (home / "server.log.1").read_text()
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
        # It may be gone by the second one.
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)
    wait_until(lambda: _is_over(process), "the server's end")
    text = log.read_text()
    assert text.count(": the server stops\n") == 1 and "Traceback" not in text, text
    assert not pid_file.exists() and not (home / "store" / "abort").exists(), "a clean stop"


def test_a_server_whose_port_for_monitoring_is_taken_does_not_start(
    background: Background, taken: int, peer: int
) -> None:
    monitored = keys(metricsExporterType="PROM", metricsPromExporterPort=taken)
    why = refused(background, background.start(*command("broker", 0, peer), *monitored))
    reason = f"127.0.0.1:{taken} cannot be listened on (Address already in use)"
    assert why == f"{reason}: change metricsPromExporterPort"
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


def test_a_signal_is_told_of_by_the_reactor(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may come while the log's file is closed to begin another one."""
    monkeypatch.setattr(server_process, "_has_terminal", lambda: False)
    told: list[Callable[[], None]] = []
    reactor = SimpleNamespace(
        callWhenRunning=lambda call: call(),
        addSystemEventTrigger=lambda *_: None,
        sigInt=None,
        sigTerm=None,
        callFromThread=lambda call, *given, **named: told.append(partial(call, *given, **named)),
    )
    taken = (signal.SIGHUP, signal.SIGUSR2)
    numbers = (*taken, signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
        server_process.obey_signals(reactor)
        with capturedLogs() as events:
            for number in taken:
                signal.raise_signal(number)
        assert not events
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    with capturedLogs() as events:
        for tell in told:
            tell()
    begins = [str(formatEvent(event)).partition(":")[0] for event in events]
    assert begins == [f"{name} changes nothing" for name in ("SIGHUP", "SIGUSR2")]
