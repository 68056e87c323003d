"""Follows a page of the documentation: types its commands on the machines of a test.

In an indented block, a comment says where what follows is typed and, where that is a wait, that it
is typed "until it succeeds":

    # each broker, until it succeeds
    test ! -e broker.pid

Lines in front of such a comment are examples, and are not typed.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.support.jars import PROJECT
from tests.support.running import Closing
from tests.support.stock import stock_java
from tests.support.wait import LIMIT, PeerFailed, wait_until

_STEP = re.compile(r"# ([a-z0-9 ]+?)(, until it succeeds)?$")
_INDENT = "    "
_PR_SET_CHILD_SUBREAPER = 36
#: Stock's scripts, and the classes that they start.
_SCRIPTS = {
    "mqadmin": ("org.apache.rocketmq.tools.command.MQAdminStartup", 64),
    "mqbroker": ("org.apache.rocketmq.broker.BrokerStartup", 512),
    "mqcontroller": ("org.apache.rocketmq.controller.ControllerStartup", 128),
}


class Step(NamedTuple):
    """Commands, where they are typed, and whether they are typed again until they succeed."""

    where: str
    again: bool
    script: str


def read_runbook(page: Path) -> dict[str, list[Step]]:
    """The steps below each heading of the page, by its title."""
    sections: dict[str, list[Step]] = {}
    steps: list[Step] = []
    typed = False
    for line in page.read_text().splitlines():
        if line.startswith("#"):
            steps = sections.setdefault(line.lstrip("#").strip(), [])
        indented = line.startswith(_INDENT)
        typed = typed and (indented or not line)
        if indented and (found := _STEP.match(line.strip())):
            steps.append(Step(found[1], bool(found[2]), ""))
            typed = True
        elif typed and indented:
            script = f"{steps[-1].script}{line.removeprefix(_INDENT)}\n"
            steps[-1] = steps[-1]._replace(script=script)
    return sections


class Machine(Closing):
    """A directory where commands are typed, with its variables and with stock's scripts of one
    version in `ROCKETMQ_HOME`/bin. What was started there ends with it."""

    def __init__(self, home: Path, variables: Mapping[str, str], version: str) -> None:
        # What is started in the background becomes a child of this process, which can wait for its
        # end: not every init process does so at once, and until then a pid file counts as one of a
        # process that runs.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.home = home
        home.mkdir(parents=True, exist_ok=True)
        stock = home / f"rocketmq-{version}"
        (stock / "bin").mkdir(parents=True, exist_ok=True)
        (stock / "conf").mkdir(exist_ok=True)
        (stock / "conf" / "logback_tools.xml").write_text("<configuration/>\n")
        for script, (main_class, heap) in _SCRIPTS.items():
            java = " ".join(f"'{part}'" for part in stock_java(version, stock, heap, main_class))
            text = f'echo $$ >> "{home}/java.pids"\nexec {java} "$@"\n'
            (stock / "bin" / script).write_text(text)
        self._variables = {"ROCKETMQ_HOME": str(stock), **variables}

    def type(self, script: str) -> subprocess.CompletedProcess[str]:
        """Runs the commands up to the first one that fails."""
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        python_path = os.pathsep.join(filter(None, (str(PROJECT), os.environ.get("PYTHONPATH"))))
        environment = os.environ | {"PATH": path, "PYTHONPATH": python_path} | self._variables
        with (self.home / "typed.log").open("a") as log:
            log.write(script + "\n")
        return subprocess.run(
            # Behind -c, the commands themselves would be found by the pgrep among them.
            ["bash", "-euo", "pipefail", "-s"],
            input=script,
            cwd=self.home,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )

    def pid(self, name: str) -> int:
        """The process id of the server which keeps it in `name`.pid."""
        return int((self.home / f"{name}.pid").read_text())

    def kill(self, name: str) -> None:
        """kill -9 of the server which keeps its process id in `name`.pid."""
        pid = self.pid(name)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    def close(self) -> None:
        for file in (*self.home.glob("*.pid"), *self.home.glob("java.pids")):
            for pid in file.read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)


class Rehearsal(Closing):
    """Types the sections of a page on `machines`, of which each place that it names has some."""

    def __init__(self, page: Path, machines: Mapping[str, Sequence[Machine]]) -> None:
        self._sections = read_runbook(page)
        self._machines = machines

    def follow(self, title: str) -> list[str]:
        """Types each step of a section; what each printed on each machine. Raises `PeerFailed`
        where a step fails, `TimeoutError` where it does so until the patience is over."""
        return [
            self._typed(machine, step)
            for step in self._sections[title]
            for machine in self._machines[step.where]
        ]

    def _typed(self, machine: Machine, step: Step) -> str:
        def type_it() -> tuple[str]:
            done = machine.type(step.script)
            if done.returncode:
                said = f"{done.stdout}{done.stderr}"
                raise PeerFailed(f"{machine.home.name}: {step.script}\nended: {said}")
            return (done.stdout,)

        if not step.again:
            return type_it()[0]
        return wait_until(type_it, f"{step.script} to succeed", interval=0.2)[0]

    def close(self) -> None:
        for machines in self._machines.values():
            for machine in machines:
                machine.close()
