"""Types what README and docs show as it stands: at a terminal where the ports, the addresses and
the directories of the pages are nobody else's."""

from __future__ import annotations

import fcntl
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

from tests.support.hosts import can_enter_own_network, in_own_network
from tests.support.jars import PROJECT
from tests.support.running import Running
from tests.support.wait import PeerFailed, wait_until

#: What an installation has, for a run without one as well.
_PROGRAMS = {
    "python": "",
    "rmqadmin": "from rocketmq_tw.admin.main import main; main()",
    "twistd": "from twisted.scripts.twistd import run; run()",
}
#: Of the checkout, what a terminal has copies of: servers keep their changes in these files.
_COPIED = ("etc",)
#: What `make` and pip make in a checkout.
_MADE = {".venv", "build", "data"}
#: What a server, and make, end with where Ctrl-C has ended them.
INTERRUPTED = 128 + signal.SIGINT
#: An address of the pages for a server that is not on this machine.
ELSEWHERE = "192.0.2.1"


class Started(NamedTuple):
    """A command that runs until it is ended; `pid` is its process group's too."""

    command: str
    pid: int
    output: Path

    @property
    def said(self) -> str:
        return self.output.read_text()


class Terminal(Running):
    """A shell in a checkout of the project, with a home directory of its own; all that was started
    ends with it.

    Where the machine lets a user make namespaces (`has_namespaces`), nothing but what is typed is
    on the network, and `own` gives it directories of the machine. Elsewhere (`is_alone` is false)
    it has the ports of the machine, one terminal at a time.
    """

    def __init__(self, home: Path, *, alone: bool = True, as_root: bool = False) -> None:
        """Without `alone` it is on the network of the machine in any case; `as_root`, which only
        root may, it has all users."""
        self.home = home
        self.checkout = home / "checkout"
        self.has_namespaces = can_enter_own_network()
        self.is_alone = alone and self.has_namespaces
        self._as_root = as_root
        self._said = home / "typed"
        self._number = 0
        self._shell: subprocess.Popen[str] | None = None
        self._ends = ExitStack()

    def start(self) -> None:
        for directory in (self.checkout, self._said, self.home / "bin"):
            directory.mkdir(parents=True)
        self._check_out()
        if not self.is_alone:
            path = Path(tempfile.gettempdir()) / "rmq-terminal.lock"
            fcntl.flock(self._ends.enter_context(path.open("w")), fcntl.LOCK_EX)
        # Not the leader of its session, whose own the terminal of a question would become.
        # And one that Ctrl-C reaches, though tests that run in the background are deaf to it.
        shell = ["env", "--default-signal=INT", "sh", "-c", "bash -s; exit"]
        if self.has_namespaces:
            shell = in_own_network(shell, alone=self.is_alone, as_root=self._as_root)
        self._shell = subprocess.Popen(
            shell,
            cwd=self.checkout,
            env=self._environment(),
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        # As at a terminal each command is a group of processes, which Ctrl-C reaches.
        self._tell("set -m")
        if self.is_alone:
            self.type(f"ip link set lo up && ip address add {ELSEWHERE}/32 dev lo")

    def _check_out(self) -> None:
        for path in PROJECT.iterdir():
            if path.name in _COPIED:
                subprocess.run(["cp", "-r", str(path), str(self.checkout)], check=True)
            elif path.name not in _MADE and not path.name.startswith("."):
                (self.checkout / path.name).symlink_to(path)
        for name, program in _PROGRAMS.items():
            words = [sys.executable, *(["-c", program] if program else [])]
            path = self.home / "bin" / name
            path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            path.chmod(0o755)
        # Nothing is to be installed: as after the first `make run`.
        (self.checkout / ".venv").mkdir()
        (self.checkout / ".venv" / "bin").symlink_to(self.home / "bin")
        (self.checkout / ".venv" / ".stamp-run").touch()

    def _environment(self) -> dict[str, str]:
        ours = ("NAMESRV", "RMQADMIN", "MAKE", "MFLAGS", "XDG_")
        environment = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
        return environment | {
            "HOME": str(self.home),
            "PATH": os.pathsep.join((str(self.home / "bin"), os.environ["PATH"])),
            "PYTHONPATH": str(PROJECT),
            "PYTHONUNBUFFERED": "1",
        }

    def own(self, directory: str, *, copied: bool = False) -> Path:
        """Gives the terminal a directory of the machine, empty or a copy of what the user can read
        there, in which it may change what it likes; where it is in fact. Only where it
        `has_namespaces`."""
        place = self.home / "own" / directory.lstrip("/")
        place.mkdir(parents=True)
        if copied:
            subprocess.run(["cp", "-r", f"{directory}/.", str(place)], capture_output=True)
        self.type(f"mount --bind {shlex.quote(str(place))} {shlex.quote(directory)}")
        return place

    def type(self, command: str, *, status: int = 0, answer: str = "") -> str:
        """What the command prints, once it has ended with `status`; raises `PeerFailed` where it
        ended with another one. With an `answer` somebody sits there and types it when asked."""
        self._number += 1
        output, ended = self._files()
        with ExitStack() as stack:
            read_from = os.devnull
            if answer:
                ours, theirs = os.openpty()
                stack.callback(os.close, ours)
                stack.callback(os.close, theirs)
                read_from = os.ttyname(theirs)
                os.write(ours, answer.encode() + b"\n")
            self._tell(f"{{ {command}\n}} > {output} 2>&1 < {read_from}\necho $? > {ended}")
            self._wait_for(ended, command, output)
        said = output.read_text()
        found = int(ended.read_text())
        if found != status:
            raise PeerFailed(f"{command} ended with {found}:\n{said}")
        return said

    @property
    def said(self) -> str:
        """All that was printed so far, also by what runs."""
        return "".join(path.read_text() for path in sorted(self._said.glob("*.out")))

    def type_until(self, command: str, seen: str = "") -> str:
        """Types the command again until it ends with 0 and prints `seen`; what it prints."""

        def type_it() -> str:
            said = self.type(command)
            if seen not in said:
                raise PeerFailed(f"{command}: {said}")
            return said or " "

        return wait_until(type_it, f"{command} to print {seen!r}", interval=0.5)

    def begin(self, command: str) -> Started:
        """Types the command at another terminal in the same directory, and leaves it running."""
        self._number += 1
        output, pid = self._files()
        self._tell(f"{{ {command}\n}} > {output} 2>&1 < /dev/null &\necho $! > {pid}")
        self._wait_for(pid, command, output)
        return Started(command, int(pid.read_text()), output)

    def interrupt(self, started: Started, *, status: int = 0) -> str:
        """Presses Ctrl-C where the command runs; what it had printed, once it has ended with
        `status`."""
        self.type(f"kill -INT -- -{started.pid}")
        try:
            self.type(f"wait {started.pid}", status=status)
        except PeerFailed as error:
            raise PeerFailed(f"{error}\n{started.command}:\n{started.said}") from error
        return started.said

    def _files(self) -> tuple[Path, Path]:
        name = self._said / str(self._number)
        return name.with_suffix(".out"), name.with_suffix(".end")

    def _tell(self, text: str) -> None:
        assert self._shell is not None and self._shell.stdin is not None
        self._shell.stdin.write(f"{text}\n")
        self._shell.stdin.flush()

    def _wait_for(self, file: Path, command: str, output: Path) -> None:
        def is_whole() -> bool:
            assert self._shell is not None and self._shell.poll() is None, "the shell has ended"
            return file.exists() and file.read_text().endswith("\n")

        try:
            wait_until(is_whole, f"{command} to end")
        except TimeoutError as error:
            said = output.read_text() if output.exists() else ""
            raise TimeoutError(f"{error}\n{said}") from None

    def close(self) -> None:
        if self._shell is not None:
            for process in _of_session(self._shell.pid):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            self._shell.communicate()
        self._ends.close()


def _of_session(leader: int) -> list[int]:
    """The processes that a program with a session of its own has started, and itself."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            # It may end meanwhile.
            with suppress(ProcessLookupError):
                if os.getsid(int(entry.name)) == leader:
                    found.append(int(entry.name))
    return found
