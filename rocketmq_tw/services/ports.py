"""Checks whether the ports that a configuration names can all be listened on in one process, and
are free."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import closing
from typing import NamedTuple

from twisted.internet.error import CannotListenError

from rocketmq_tw.config.load import Loaded
from rocketmq_tw.config.monitoring import MonitoringConfig
from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.config.properties import ConfigError
from rocketmq_tw.config.proxy import ProxyConfig

_HIGHEST = 65_535


class PortUse(NamedTuple):
    """A port that is listened on at `host`, and what for, in the form in which its key is
    written."""

    what: str
    host: str
    port: int


def check_ports(uses: Iterable[PortUse]) -> None:
    """Raises `ConfigError` where a port cannot be one, or is wanted twice: to say then that it is
    in use would have the user look for another server."""
    seen: list[PortUse] = []
    for use in uses:
        if not 0 < use.port <= _HIGHEST:
            raise ConfigError(f"{use.what} would be port {use.port}: give another listenPort")
        for other in seen:
            if use.port == other.port and _meet(use.host, other.host):
                raise ConfigError(
                    f"{use.what} and {other.what} are both port {use.port}: change one of them"
                )
        seen.append(use)


def check_free(host: str, ports: Iterable[int]) -> None:
    """Raises `CannotListenError` for the first of `ports` at `host` that is taken; 0 is one of the
    kernel's choice. To be called before the first of several servers begins; a port may still be
    taken by the time when its server listens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in filter(None, ports):
        with closing(socket.socket(family, socket.SOCK_STREAM)) as tried:
            # As the reactor listens: connections of a former server do not keep it out.
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind((host, port))
            except OSError as error:
                raise CannotListenError(host, port, error) from error


def is_open_to_all(bind_address: str) -> bool:
    """Returns whether a server that listens there is reached at all addresses of its machine."""
    return bind_address in ("", "0.0.0.0", "::")


def own_port(key: str, net: NettyServerConfig, port: int) -> list[PortUse]:
    """Returns the port of a key; none where it is 0, of the kernel's choice."""
    return [PortUse(key, net.bind_address, port)] if port else []


def port_of_monitoring(config: MonitoringConfig) -> list[PortUse]:
    """Returns the port that Prometheus asks, if any."""
    port = config.metrics_prom_exporter_port
    if not (config.is_enabled and port):
        return []
    return [PortUse("metricsPromExporterPort", config.metrics_prom_exporter_host, port)]


def ports_of_broker(host: str, listen_port: int, ha_port: int, of: str = "") -> list[PortUse]:
    """Returns what a broker listens on; `ha_port` is 0 where it follows from `listen_port`, and
    `of` names the broker where there are several. One without a port of its own has those that the
    kernel chooses."""
    if not listen_port:
        return []
    # Only here: a name server loads nothing of a broker.
    from rocketmq_tw.broker.broker import VIP_DISTANCE

    distance = f"listenPort{of} - {VIP_DISTANCE}"
    return [
        PortUse(f"listenPort{of}", host, listen_port),
        PortUse(f"the VIP channel ({distance})", host, listen_port - VIP_DISTANCE),
        PortUse(f"haListenPort{of}", host, ha_port or listen_port + 1),
    ]


def ports_of_proxy(loaded: Loaded) -> list[PortUse]:
    """Returns what a proxy listens on; gRPC and remoting may share a port."""
    config, net = loaded[ProxyConfig], loaded[NettyServerConfig]
    grpc, remoting = config.grpc_server_port, config.remoting_listen_port
    found = own_port("grpcServerPort", net, grpc)
    return found + (own_port("remotingListenPort", net, remoting) if remoting != grpc else [])


def _meet(one: str, other: str) -> bool:
    return one == other or is_open_to_all(one) or is_open_to_all(other)
