"""Servers on this machine to try what happens when one dies, for the `make try-...` targets.

Ctrl-C ends them all. A server that is killed is not started again: the lines that are shown say
how.
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
NAME_SERVER = "127.0.0.1:9876"

#: From server names and process ids to the lines that say what to type.
Explain = Callable[[Mapping[str, int]], Sequence[str]]


def twistd(*arguments: str) -> list[str]:
    """A command that runs a server in the foreground."""
    return [str(Path(sys.executable).with_name("twistd")), "-n", "--pidfile=", *arguments]


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
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, command in commands.items():
            with _log(data, name).open("ab") as log:
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
    return 0


def _watch(data: Path, running: Mapping[str, subprocess.Popen[bytes]]) -> None:
    """Says who has ended, until all have."""
    names = {process.pid: name for name, process in running.items()}
    while names:
        pid, status = os.wait()
        name, code = names.pop(pid), os.waitstatus_to_exitcode(status)
        if code == -signal.SIGKILL:
            print(f"{name} was killed", flush=True)
        else:
            log = os.path.relpath(_log(data, name))
            print(f"{name} has ended with {code}: {log} says why", flush=True)


def _log(data: Path, name: str) -> Path:
    return data / f"{name.replace(' ', '-')}.log"


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
