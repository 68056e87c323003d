"""Our own servers as processes of a test, with the interface of the stock ones."""

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

from tests.support.jars import PROJECT
from tests.support.processes import BrokerProcess, NameServerProcess

#: What a server says at any time where its machine does much else.
SAID_UNDER_LOAD = re.compile(r"the reactor was held for |name server \S+ is (passed over|back)\b")


#: The Python that all of them run on, of a venv with what they need: the one that runs the tests,
#: unless this variable names another one, as `make pypy` does.
SERVER_PYTHON = os.environ.get("SERVER_PYTHON") or sys.executable


@cache
def on_pypy() -> bool:
    """Whether servers run on PyPy, which takes more memory and less time."""
    show = [SERVER_PYTHON, "-c", "import sys; print(sys.implementation.name)"]
    return subprocess.run(show, capture_output=True, text=True, check=True).stdout == "pypy\n"


def plugin_command(plugin: str, *options: str) -> list[str]:
    """`twistd -n PLUGIN OPTIONS...` without an installed `twistd`."""
    start = "from twisted.scripts.twistd import run; run()"
    return [SERVER_PYTHON, "-c", start, "-n", "--pidfile=", plugin, *options]


def twistd_command(plugin: str, config: Path) -> list[str]:
    return plugin_command(plugin, "-c", str(config))


def twistd_environment() -> dict[str, str]:
    """The environment with the project on the path, for a run without installation as well, and
    with what `make run` and the units set."""
    path = os.pathsep.join(filter(None, (str(PROJECT), os.environ.get("PYTHONPATH"))))
    own = {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
    return {"PYPY_GC_INCREMENT_STEP": "1M"} | os.environ | own


class OurNameServer(NameServerProcess):
    """`twistd -n rmq-namesrv`."""

    def __init__(self, home: Path, settings: dict[str, str] | None = None) -> None:
        super().__init__("namesrv-ours", home, settings)

    def command(self) -> list[str]:
        return twistd_command("rmq-namesrv", self.write_properties())

    def environment(self) -> dict[str, str]:
        return twistd_environment()


class OurBroker(BrokerProcess):
    """`twistd -n rmq-broker`."""

    def command(self) -> list[str]:
        return twistd_command("rmq-broker", self.write_properties())

    def environment(self) -> dict[str, str]:
        return twistd_environment()
