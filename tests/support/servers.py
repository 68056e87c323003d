"""Our own servers as processes of a test, with the interface of the stock ones."""

import os
import re
import sys
from pathlib import Path

from tests.support.jars import PROJECT
from tests.support.processes import BrokerProcess, NameServerProcess

#: What a server says at any time where its machine does much else.
SAID_UNDER_LOAD = re.compile(r"the reactor was held for |name server \S+ is (passed over|back)\b")


def twistd_command(plugin: str, config: Path) -> list[str]:
    start = "from twisted.scripts.twistd import run; run()"
    return [sys.executable, "-c", start, "-n", "--pidfile=", plugin, "-c", str(config)]


def twistd_environment() -> dict[str, str]:
    """The environment with the project on the path, for a run without installation as well."""
    path = os.pathsep.join(filter(None, (str(PROJECT), os.environ.get("PYTHONPATH"))))
    return os.environ | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}


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
