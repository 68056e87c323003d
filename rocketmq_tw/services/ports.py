"""Checks whether the ports that a configuration names can all be listened on in one process, and
are free."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import closing
from typing import NamedTuple

from rocketmq_tw.config.load import Loaded
from rocketmq_tw.config.monitoring import MonitoringConfig
from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.config.properties import ConfigError
from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.config.values import split_named_ports
from rocketmq_tw.services.failed_start import PROXY_KEYS, CannotListenAt, KeysToChange

_HIGHEST = 65_535


class PortUse(NamedTuple):
    """A port that is listened on at `host`, and what for, in the form in which its key is
    written."""

    what: str
    host: str
    port: int
    #: Those for another one.
    keys: KeysToChange = KeysToChange()


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


def check_free(uses: Iterable[PortUse]) -> None:
    """Raises `CannotListenAt` for the first port that is taken. To be called before a server, or
    the first of several, begins: it listens only once its store is read, which may take minutes.
    A port may still be taken by then."""
    for use in uses:
        family = socket.AF_INET6 if ":" in use.host else socket.AF_INET
        with closing(socket.socket(family, socket.SOCK_STREAM)) as tried:
            # As the reactor listens: connections of a former server do not keep it out.
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind((use.host, use.port))
            except OSError as error:
                raise CannotListenAt(use.host, use.port, error, use.keys) from error


def is_open_to_all(bind_address: str) -> bool:
    """Returns whether a server that listens there is reached at all addresses of its machine."""
    return bind_address in ("", "0.0.0.0", "::")


def own_port(
    key: str, net: NettyServerConfig, port: int, keys: KeysToChange | None = None
) -> list[PortUse]:
    """Returns the port of a key, or of several `keys`; none where it is 0, of the kernel's
    choice."""
    return [PortUse(key, net.bind_address, port, keys or KeysToChange(key))] if port else []


def port_of_monitoring(config: MonitoringConfig) -> list[PortUse]:
    """Returns the port that Prometheus asks, if any."""
    port = config.metrics_prom_exporter_port
    if not (config.is_enabled and port):
        return []
    return [PortUse("metricsPromExporterPort", config.metrics_prom_exporter_host, port)]


def ports_of_broker(
    host: str,
    listen_port: int,
    store: MessageStoreConfig,
    of: str = "",
    *,
    at_start: bool = False,
) -> list[PortUse]:
    """Returns what a broker listens on, which may be that of slaves in a later role only: not
    `at_start`. `of` names the broker where there are several, whose ports for slaves follow from
    `listenPort`. Those of the kernel's choice are not among them."""
    # Only here: a name server loads nothing of a broker.
    from rocketmq_tw.broker.broker import VIP_DISTANCE

    own = KeysToChange(f"listenPort{of}")
    found = []
    if listen_port:
        vip = f"the VIP channel (listenPort{of} - {VIP_DISTANCE})"
        found.append(PortUse(f"listenPort{of}", host, listen_port, own))
        found.append(PortUse(vip, host, listen_port - VIP_DISTANCE, own))
    if store.enable_dledger_commit_log:
        keys = KeysToChange(f"this member's address in dLegerPeers{of}")
        port = _port_of_member(store)
        return [*found, PortUse(f"dLegerPeers{of}", host, port, keys)] if port else found
    ha_port = store.ha_listen_port or (listen_port and listen_port + 1)
    if ha_port and not (at_start and store.broker_role == "SLAVE"):
        keys = own if of else KeysToChange("haListenPort")
        found.append(PortUse(f"haListenPort{of}", host, ha_port, keys))
    return found


def _port_of_member(store: MessageStoreConfig) -> int:
    """Returns the port of a member of a DLedger group; 0 where its keys are wrong, as a start says
    by itself."""
    from rocketmq_tw.net.address import split_address
    from rocketmq_tw.raft.core.membership import MembershipError, parse_peers

    try:
        return split_address(parse_peers(store.dledger_peers)[store.dledger_self_id])[1]
    except (MembershipError, KeyError):
        return 0


def ports_of_proxy(loaded: Loaded) -> list[PortUse]:
    """Returns what a proxy listens on; gRPC and remoting may share a port."""
    config, net = loaded[ProxyConfig], loaded[NettyServerConfig]
    grpc, remoting = config.grpc_server_port, config.remoting_listen_port
    found = own_port("grpcServerPort", net, grpc, PROXY_KEYS)
    if remoting != grpc:
        found += own_port("remotingListenPort", net, remoting, PROXY_KEYS)
    for name, port in split_named_ports(config.remoting_broker_ports).items():
        found += own_port(f"remotingBrokerPorts of {name}", net, port, PROXY_KEYS)
    return found


def _meet(one: str, other: str) -> bool:
    return one == other or is_open_to_all(one) or is_open_to_all(other)
