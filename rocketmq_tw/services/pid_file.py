"""The file with a server's process id."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from twisted.logger import Logger

log = Logger()

#: twistd's own name for it, which all servers of a directory would share.
_TWISTDS = "twistd.pid"
#: A command of `twistd` that is a server of this project.
_SERVER = re.compile("rmq-[a-z-]+")
#: Where the system tells of its processes.
_PROCESSES = Path("/proc")


def name_of_server(twistd: Any, port: int | None) -> str:
    """Returns the name for the files of the server whose options `twistd` are, which no other
    server of a directory has: "rmq-broker-10911"; `port` tells servers of a kind apart."""
    return f"{twistd.subCommand}-{port}" if port else f"{twistd.subCommand}"


def choose_pid_file(twistd: Any, port: int | None = None, processes: Path = _PROCESSES) -> None:
    """Gives a server a file of its own where its user names none: `rmq-broker-10911.pid` in the
    background; none in the foreground, where the user sees the process. `twistd` are its options,
    to be called while they are parsed. A file of a server that ended without removing it, whose
    number another process has by now, is removed.

    Ends the program with one line where a server runs whose id the file has, and where the file's
    directory, or that of `--rundir`, is not there. `processes` is the directory `/proc`."""
    # twistd changes its root before it looks for these.
    is_visible = not twistd.get("chroot")
    rundir = twistd.get("rundir") or "."
    if is_visible and not os.path.isdir(rundir):
        raise SystemExit(f"--rundir {rundir}: there is no such directory: make it, or name another")
    if twistd.get("pidfile") == _TWISTDS:
        name = f"{name_of_server(twistd, port)}.pid"
        twistd["pidfile"] = "" if twistd.get("nodaemon") else name
    if not (name := twistd.get("pidfile")):
        return
    # twistd takes it for one of the directory where it was called, not of `--rundir`.
    path = os.path.abspath(name)
    if is_visible and not os.path.isdir(os.path.dirname(path)):
        raise SystemExit(f"--pidfile {name}: its directory is not there: make it, or name another")
    if (process := _running(name)) is None:
        return
    command = _command(processes / str(process))
    if command is None or any(map(_SERVER.fullmatch, command)):
        raise SystemExit(
            f"{name}: process {process} runs already: stop it, or give twistd another --pidfile"
        )
    # twistd would take any process for the server.
    try:
        os.remove(path)
    except OSError as error:
        raise SystemExit(
            f"{name}: process {process} is no server, and the file cannot be removed"
            f" ({error.strerror}): remove it, or give twistd another --pidfile"
        ) from error
    log.warn(
        "{name} was of a server that is gone, and is removed: process {process} is another program",
        name=name,
        process=process,
    )


def _running(name: str) -> int | None:
    """Returns the process id in the file, where there is such a process; None otherwise. twistd
    itself removes the file of a process that is gone. Ends the program where it has none."""
    with suppress(OSError), open(name, errors="replace") as file:
        try:
            process = int(file.read(100))
        except ValueError:
            raise SystemExit(
                f"{name}: there is no process id in it: remove it, or give twistd another --pidfile"
            ) from None
        with suppress(PermissionError):
            os.kill(process, 0)
        return process
    return None


def _command(process: Path) -> list[str] | None:
    """Returns the words of the command line of a process, none where it has ended and nobody has
    taken notice yet; None where the system does not tell."""
    try:
        return (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return None
