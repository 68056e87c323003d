"""Servers on this machine to try what happens when one dies, for the `make try-...` targets.

Ctrl-C ends them all, also those that were started again by hand: the lines that are shown say how,
and each server has a file with its process id.
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

#: Where it is run from a copy with links to the files, the copy.
PROJECT = Path(__file__).absolute().parents[1]
NAME_SERVER = "127.0.0.1:9876"
#: Within which servers that were started by hand stop.
STOP_SECONDS = 30.0

#: From server names and process ids to the lines that say what to type.
Explain = Callable[[Mapping[str, int]], Sequence[str]]


def twistd(data: Path, name: str, *arguments: str) -> list[str]:
    """A command that runs the server `name` in the foreground, with its process id in `data`."""
    pid_file = os.path.relpath(_file(data, name, "pid"), PROJECT)
    program = str(Path(sys.executable).with_name("twistd"))
    return [program, "-n", f"--pidfile={pid_file}", *arguments]


def rmqadmin() -> str:
    """How to type `rmqadmin` in the project's directory."""
    return os.path.relpath(Path(sys.executable).with_name("rmqadmin"))


def line(command: Sequence[str]) -> str:
    """A command as one types it in the project's directory."""
    return shlex.join([os.path.relpath(part) if part.startswith("/") else part for part in command])


def address(sample: Path) -> str:
    """Where the broker of this file listens."""
    text = sample.read_text()
    port = next(line for line in text.splitlines() if line.startswith("listenPort="))
    return f"127.0.0.1:{port.partition('=')[2]}"


def taken(addresses: Iterable[str]) -> list[str]:
    """Returns which of these addresses of this machine another program listens on."""
    found = []
    for each in addresses:
        host, _, port = each.rpartition(":")
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, int(port)))
            except OSError:
                found.append(each)
    return found


def run(
    data: Path, commands: Mapping[str, list[str]], explain: Explain, addresses: Iterable[str]
) -> int:
    """Starts `commands`, each server by its name, with their logs in `data`, says what to type, and
    then who has ended, until all have or Ctrl-C ends them. Starts none, with status 1, where one of
    `addresses`, on which they will listen, is taken."""
    if in_use := taken(addresses):
        print(f"in use: {', '.join(in_use)}; stop the programs that listen there", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, _interrupt)
    data.mkdir(parents=True, exist_ok=True)
    for left in data.glob("*.pid"):
        # Nobody listens: their servers were killed, and other programs may have the ids by now.
        left.unlink()
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, command in commands.items():
            with _file(data, name, "log").open("ab") as log:
                running[name] = subprocess.Popen(
                    command,
                    cwd=PROJECT,
                    stdout=log,
                    stderr=log,
                    # Ctrl-C is ours; a second signal would hit them in the middle of their end.
                    start_new_session=True,
                )
        where = f"logs and stores are in {os.path.relpath(data)}; Ctrl-C ends all."
        told = explain({name: process.pid for name, process in running.items()})
        print("\n".join([f"{where} In another terminal:", "", *told]), flush=True)
        _watch(data, running)
    except KeyboardInterrupt:
        pass
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        for process in running.values():
            if process.poll() is None:
                process.terminate()
        for process in running.values():
            process.wait()
        _end_others(data)
    return 0


def _end_others(data: Path) -> None:
    """Ends servers that were started by hand, and waits until they are gone."""
    others = [pid for pid in map(_server_of, data.glob("*.pid")) if pid is not None]
    for pid in others:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + STOP_SECONDS
    while any(map(_server_of, data.glob("*.pid"))) and time.monotonic() < until:
        time.sleep(0.1)


def _server_of(pid_file: Path) -> int | None:
    """Returns the process that has this file, if it runs; another program may have its id."""
    try:
        pid = int(pid_file.read_text())
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    named = f"--pidfile={os.path.relpath(pid_file, PROJECT)}"
    return pid if os.fsencode(named) in arguments else None


def _watch(data: Path, running: Mapping[str, subprocess.Popen[bytes]]) -> None:
    """Says who has ended, until all have."""
    names = {process.pid: name for name, process in running.items()}
    while names:
        pid, status = os.wait()
        name, code = names.pop(pid), os.waitstatus_to_exitcode(status)
        if code == -signal.SIGKILL:
            print(f"{name} was killed", flush=True)
        else:
            log = os.path.relpath(_file(data, name, "log"))
            print(f"{name} has ended with {code}: {log} says why", flush=True)


def _file(data: Path, name: str, ending: str) -> Path:
    return data / f"{name.replace(' ', '-')}.{ending}"


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
