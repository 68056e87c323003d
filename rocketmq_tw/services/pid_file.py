"""The file with a server's process id."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

#: twistd's own name for it, which all servers of a directory would share.
_TWISTDS = "twistd.pid"


def choose_pid_file(twistd: Any, port: int | None = None) -> None:
    """Gives a server a file of its own where its user names none: `rmq-broker-10911.pid` in the
    background; none in the foreground, where the user sees the process. `twistd` are its options,
    to be called while they are parsed; `port` tells servers of a kind apart.

    Ends the program with one line where a process runs whose id the file has, and where the file's
    directory, or that of `--rundir`, is not there."""
    # twistd changes its root before it looks for these.
    is_visible = not twistd.get("chroot")
    rundir = twistd.get("rundir") or "."
    if is_visible and not os.path.isdir(rundir):
        raise SystemExit(f"--rundir {rundir}: there is no such directory: make it, or name another")
    if twistd.get("pidfile") == _TWISTDS:
        name = f"{twistd.subCommand}-{port}.pid" if port else f"{twistd.subCommand}.pid"
        twistd["pidfile"] = "" if twistd.get("nodaemon") else name
    if not (name := twistd.get("pidfile")):
        return
    # twistd takes it for one of the directory where it was called, not of `--rundir`.
    path = os.path.abspath(name)
    if is_visible and not os.path.isdir(os.path.dirname(path)):
        raise SystemExit(f"--pidfile {name}: its directory is not there: make it, or name another")
    if process := _running(path):
        raise SystemExit(
            f"{name}: process {process} runs already: stop it, or give twistd another --pidfile"
        )


def _running(path: str) -> int | None:
    """Returns the process id in the file, where there is such a process; None otherwise. twistd
    itself removes the file of a process that is gone."""
    with suppress(OSError, ValueError), open(path) as file:
        process = int(file.read())
        with suppress(PermissionError):
            os.kill(process, 0)
        return process
    return None
