"""Our proxies as processes of a test, before a cluster and in the process of a broker, and stock's
Python client for them."""

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
from tests.support.servers import OurBroker, twistd_command, twistd_environment

PYTHON_CLIENT = "rocketmq-python-client==5.1.2"
_INSTALL_LIMIT = 600
#: A registry that refuses or breaks off is asked again.
_PATIENT = ("--retries", "5", "--timeout", "60")
_ATTEMPTS = 3
_RUN_LIMIT = 280


class ProxyPorts:
    """The ports of a proxy: 5.x clients come to `grpc`, classic clients to `classic`."""

    def __init__(self) -> None:
        self._grpc, self._classic = ReservedPort(), ReservedPort()

    @property
    def grpc(self) -> str:
        return self._grpc.address

    @property
    def classic(self) -> str:
        return self._classic.address

    def write_config(self, home: Path, name_server: str) -> str:
        """Writes the proxy's own file; returns its path."""
        path = home / "rmq-proxy.json"
        settings = {
            "namesrvAddr": name_server,
            "bindAddress": LOOPBACK,
            "grpcServerPort": self._grpc.number,
            "remotingListenPort": self._classic.number,
        }
        path.write_text(json.dumps(settings))
        return str(path)

    def is_open(self) -> bool:
        with Connection(self.classic, 5), Connection(self.grpc, 5):
            return True

    def release(self) -> None:
        self._grpc.release()
        self._classic.release()


class OurProxy(ServerProcess):
    """`twistd -n rmq-proxy` before the cluster of a name server."""

    def __init__(self, home: Path, name_server: str) -> None:
        super().__init__("proxy", home)
        self._name_server = name_server
        self.ports = ProxyPorts()

    @property
    def address(self) -> str:
        return self.ports.grpc

    def command(self) -> list[str]:
        path = self.ports.write_config(self.home, self._name_server)
        return twistd_command("rmq-proxy", Path(path))

    def environment(self) -> dict[str, str]:
        return twistd_environment()

    def ready(self) -> bool:
        return self.ports.is_open()

    def close(self) -> None:
        super().close()
        self.ports.release()


class BrokerWithProxy(OurBroker):
    """`twistd -n rmq-broker --enable-proxy`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.proxy_ports = ProxyPorts()

    def command(self) -> list[str]:
        path = self.proxy_ports.write_config(self.home, self.name_servers[0].address)
        return [*super().command(), "--enable-proxy", "-pc", path]

    def ready(self) -> bool:
        return self.proxy_ports.is_open() and super().ready()

    def close(self) -> None:
        super().close()
        self.proxy_ports.release()


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
        return [
            *command,
            "--enable-proxy",
            "-pc",
            self.ports.write_config(self.home, self.name_server),
        ]

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
            make = [sys.executable, "-m", "venv", str(home)]
            subprocess.run(make, check=True, timeout=_INSTALL_LIMIT)
            install = [str(python), "-m", "pip", "install", "-q", *_PATIENT, PYTHON_CLIENT]
            for left in reversed(range(_ATTEMPTS)):
                ended = subprocess.run(install, check=not left, timeout=_INSTALL_LIMIT)
                if ended.returncode == 0:
                    break
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
