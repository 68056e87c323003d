"""Proxies of ours as classic clients see them: one address for all, before a cluster or in the
process of a broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.ports import LOOPBACK, ReservedPort
from tests.support.processes import NameServerProcess, ServerProcess
from tests.support.remoting import Connection
from tests.support.servers import OurBroker, twistd_command, twistd_environment


class ClassicProxy(ServerProcess):
    """`twistd -n rmq-proxy` before the cluster of a name server."""

    def __init__(self, home: Path, name_server: NameServerProcess) -> None:
        super().__init__("classic-proxy", home)
        self._name_server = name_server
        self._port = ReservedPort()

    @property
    def address(self) -> str:
        return self._port.address

    def command(self) -> list[str]:
        path = write_proxy_config(self.home, self._port, namesrvAddr=self._name_server.address)
        return twistd_command("rmq-proxy", path)

    def environment(self) -> dict[str, str]:
        return twistd_environment()

    def ready(self) -> bool:
        with Connection(self.address, 5):
            return True

    def close(self) -> None:
        super().close()
        self._port.release()


class BrokerWithProxy(OurBroker):
    """`twistd -n rmq-broker --enable-proxy`; classic clients of the proxy come to
    `proxy_address`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._proxy_port = ReservedPort()

    @property
    def proxy_address(self) -> str:
        return self._proxy_port.address

    def command(self) -> list[str]:
        path = write_proxy_config(
            self.home, self._proxy_port, namesrvAddr=self.name_servers[0].address
        )
        return [*super().command(), "--enable-proxy", "-pc", str(path)]

    def ready(self) -> bool:
        with Connection(self.proxy_address, 5):
            return super().ready()

    def close(self) -> None:
        super().close()
        self._proxy_port.release()


def write_proxy_config(home: Path, port: ReservedPort, **settings: Any) -> Path:
    """The file of a proxy that listens at `port` for classic clients."""
    path = home / "rmq-proxy.json"
    own = {"bindAddress": LOOPBACK, "remotingListenPort": port.number, "grpcServerPort": 0}
    path.write_text(json.dumps(own | settings))
    return path
