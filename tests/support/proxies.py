"""Our proxies as processes of a test, and stock's Python client for them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from rocketmq_tw.config.properties import write_properties
from tests.support import python_grpc_client
from tests.support.jars import BUILD, only_one
from tests.support.ports import LOOPBACK, BrokerPorts, ReservedPort
from tests.support.processes import ServerProcess
from tests.support.remoting import Connection
from tests.support.servers import twistd_command, twistd_environment

PYTHON_CLIENT = "rocketmq-python-client==5.1.2"
_INSTALL_LIMIT = 600
_RUN_LIMIT = 150


class OurProxy(ServerProcess):
    """`twistd -n rmq-proxy` before the cluster of a name server; clients come to `address`."""

    def __init__(self, home: Path, name_server: str) -> None:
        super().__init__("proxy", home)
        self._name_server = name_server
        self._grpc, self._remoting = ReservedPort(), ReservedPort()

    @property
    def address(self) -> str:
        return self._grpc.address

    def write_config(self) -> Path:
        path = self.home / "rmq-proxy.json"
        settings = {
            "namesrvAddr": self._name_server,
            "bindAddress": LOOPBACK,
            "grpcServerPort": self._grpc.number,
            "remotingListenPort": self._remoting.number,
        }
        path.write_text(json.dumps(settings))
        return path

    def command(self) -> list[str]:
        return twistd_command("rmq-proxy", self.write_config())

    def environment(self) -> dict[str, str]:
        return twistd_environment()

    def ready(self) -> bool:
        with Connection(self.address, 5):
            return True

    def close(self) -> None:
        super().close()
        self._grpc.release()
        self._remoting.release()


class StandaloneWithProxy(OurProxy):
    """`twistd -n rmq-standalone --enable-proxy -pc FILE`."""

    def __init__(self, home: Path) -> None:
        self._names, self._broker = ReservedPort(), BrokerPorts()
        super().__init__(home, self._names.address)

    @property
    def name_server(self) -> str:
        return self._names.address

    def command(self) -> list[str]:
        path = self.home / "standalone.properties"
        settings = {
            "listenPort": str(self._broker.listen.number),
            "namesrvListenPort": str(self._names.number),
            "storePathRootDir": str(self.home / "store"),
            "kvConfigPath": str(self.home / "kvConfig.json"),
            "configStorePath": str(self.home / "namesrv.properties"),
            "mappedFileSizeCommitLog": str(16 << 20),
        }
        path.write_text(write_properties(settings.items()))
        command = twistd_command("rmq-standalone", path)
        return [*command, "--enable-proxy", "-pc", str(self.write_config())]

    def close(self) -> None:
        super().close()
        self._names.release()
        self._broker.release()


def python_client() -> Path:
    """The interpreter that has stock's Python client; the first caller makes it. It is one by
    itself, since the client's messages have the names of ours."""
    home = BUILD / "python-grpc-client"
    python = home / "bin" / "python"
    with only_one(home):
        done = home / "complete"
        if not done.exists():
            for command in (
                [sys.executable, "-m", "venv", str(home)],
                [str(python), "-m", "pip", "install", "-q", PYTHON_CLIENT],
            ):
                subprocess.run(command, check=True, timeout=_INSTALL_LIMIT)
            done.touch()
    return python


def send_and_receive(endpoint: str, topic: str, group: str, number: int) -> dict[str, Any]:
    """What stock's Python client sent to a proxy, received and acknowledged."""
    done = subprocess.run(
        [
            str(python_client()),
            str(python_grpc_client.__file__),
            endpoint,
            topic,
            group,
            str(number),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_RUN_LIMIT,
    )
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            result: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
            return result
    raise AssertionError(f"the client ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
