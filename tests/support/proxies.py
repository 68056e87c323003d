"""Proxies as processes of a test: ours, before a cluster and in the process of a broker, and
stock's."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rocketmq_tw.config.properties import write_properties
from tests.support.ports import LOOPBACK, BrokerPorts, ReservedPort
from tests.support.processes import ServerProcess
from tests.support.remoting import Connection
from tests.support.servers import OurBroker, twistd_command, twistd_environment
from tests.support.stock import StockBroker, stock_java, stock_logs

_STOCK_HEAP_MB, _STOCK_LOCAL_HEAP_MB = 256, 512
#: Stock's gRPC clients speak TLS unless they are told not to.
_TLS_MODE = "permissive"


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

    def write_config(self, home: Path, name_server: str, **more: Any) -> str:
        """Writes the proxy's own file, with `more` keys; returns its path."""
        path = home / "rmq-proxy.json"
        settings = {
            "namesrvAddr": name_server,
            "bindAddress": LOOPBACK,
            "grpcServerPort": self._grpc.number,
            "remotingListenPort": self._classic.number,
            **more,
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

    def __init__(self, home: Path, name_server: str, **keys: Any) -> None:
        """`keys` are further ones of the proxy's own, as in its file."""
        super().__init__("proxy", home)
        self._name_server = name_server
        self._keys = keys
        self.ports = ProxyPorts()

    @property
    def address(self) -> str:
        return self.ports.grpc

    def command(self) -> list[str]:
        path = self.ports.write_config(self.home, self._name_server, **self._keys)
        return twistd_command("rmq-proxy", Path(path))

    def environment(self) -> dict[str, str]:
        return twistd_environment()

    def ready(self) -> bool:
        return self.ports.is_open()

    def close(self) -> None:
        super().close()
        self.ports.release()


class SharingProxy(OurProxy):
    """A proxy at the ports of another one."""

    def __init__(
        self, home: Path, name_server: str, other: OurProxy, *, shares: bool = True
    ) -> None:
        """It is told that the ports are shared where it `shares`."""
        super().__init__(home, name_server, sharePorts=shares)
        self.ports.release()
        self.ports = other.ports

    def ready(self) -> bool:
        # The port may be open by the other one.
        return "proxy: gRPC at" in self.log_text()


class BrokerWithProxy(OurBroker):
    """`twistd -n rmq-broker --enable-proxy`; `proxy_keys` are further ones of the proxy's own."""

    def __init__(
        self, *arguments: Any, proxy_keys: Mapping[str, Any] | None = None, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self._proxy_keys = proxy_keys or {}
        self.proxy_ports = ProxyPorts()

    def command(self) -> list[str]:
        path = self.proxy_ports.write_config(
            self.home, self.name_servers[0].address, **self._proxy_keys
        )
        return [*super().command(), "--enable-proxy", "-pc", path]

    def ready(self) -> bool:
        return self.proxy_ports.is_open() and super().ready()

    def close(self) -> None:
        super().close()
        self.proxy_ports.release()


class StandaloneWithProxy(OurProxy):
    """`twistd -n rmq-standalone --enable-proxy -pc FILE`."""

    def __init__(self, home: Path, settings: dict[str, str] | None = None) -> None:
        """`settings` are keys of the broker's own."""
        self._names, self._broker = ReservedPort(), BrokerPorts()
        self._settings = settings or {}
        super().__init__(home, self._names.address)

    @property
    def name_server(self) -> str:
        return self._names.address

    @property
    def broker_address(self) -> str:
        return self._broker.listen.address

    def command(self) -> list[str]:
        path = self.home / "standalone.properties"
        settings = {
            "listenPort": str(self._broker.listen.number),
            "namesrvListenPort": str(self._names.number),
            "storePathRootDir": str(self.home / "store"),
            "kvConfigPath": str(self.home / "kvConfig.json"),
            "configStorePath": str(self.home / "namesrv.properties"),
            "mappedFileSizeCommitLog": str(16 << 20),
            **self._settings,
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


class StockLocalProxy(StockBroker):
    """ProxyStartup in local mode: a broker of `version` with a proxy in its process."""

    def __init__(self, version: str, *arguments: Any, **options: Any) -> None:
        super().__init__(version, *arguments, **options)
        self.proxy_ports = ProxyPorts()

    def command(self) -> list[str]:
        path = self.proxy_ports.write_config(
            self.home,
            self.name_servers[0].address,
            rocketMQClusterName="DefaultCluster",
            useEndpointPortFromRequest=True,
        )
        main_class = "org.apache.rocketmq.proxy.ProxyStartup"
        heap = _STOCK_LOCAL_HEAP_MB
        java = stock_java(self.version, self.home, heap, main_class, "proxy", _TLS_MODE)
        broker = str(self.write_properties())
        return [*java, "-pc", path, "-pm", "local", "-bc", broker]

    def environment(self) -> dict[str, str]:
        return os.environ | {"RMQ_PROXY_HOME": str(self.home)}

    def ready(self) -> bool:
        return self.proxy_ports.is_open() and super().ready()

    def close(self) -> None:
        super().close()
        self.proxy_ports.release()


class StockProxy(OurProxy):
    """ProxyStartup of `version` in cluster mode."""

    def __init__(self, version: str, home: Path, name_server: str, **keys: Any) -> None:
        super().__init__(home, name_server, **keys)
        self._version = version

    def command(self) -> list[str]:
        path = self.ports.write_config(
            self.home,
            self._name_server,
            rocketMQClusterName="DefaultCluster",
            useEndpointPortFromRequest=True,
            # What classic clients are told.
            remotingAccessAddr=LOOPBACK,
            localServeAddr=LOOPBACK,
            # Brokers learn soon whom they may ask about a transaction.
            transactionHeartbeatPeriodSecond=1,
            **self._keys,
        )
        main_class = "org.apache.rocketmq.proxy.ProxyStartup"
        heap = _STOCK_HEAP_MB
        java = stock_java(self._version, self.home, heap, main_class, "proxy", _TLS_MODE)
        return [*java, "-pc", path, "-pm", "cluster"]

    def environment(self) -> dict[str, str]:
        return os.environ | {"RMQ_PROXY_HOME": str(self.home)}

    def log_files(self) -> list[Path]:
        return [*super().log_files(), *stock_logs(self.home)]
