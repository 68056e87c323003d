"""Finds the name and address of a broker where its configuration does not say."""

from __future__ import annotations

import socket
from ipaddress import ip_address

from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.properties import ConfigError
from rocketmq_tw.net.address import host_address, look_up_host
from rocketmq_tw.structs import msgspec


def named_config(config: BrokerConfig, bind_address: str) -> BrokerConfig:
    """Returns `config` with the host's name and addresses where it has none."""
    ip1 = config.broker_ip1 or announced_host(bind_address)
    return msgspec.structs.replace(
        config,
        broker_name=config.broker_name or host_name(),
        broker_ip1=ip1,
        broker_ip2=config.broker_ip2 or ip1,
    )


def announced_host(bind_address: str) -> str:
    """Returns the address for clients: loopback where only that is listened on, else the host's."""
    try:
        bound = ip_address(bind_address)
    except ValueError:
        return bind_address
    return host_address() if bound.is_unspecified else str(bound)


def resolve(host: str) -> str:
    """Returns the IP address that stored messages name for `host`, which is brokerIP1 or, where
    that is not set, bindAddress; blocks. Raises `ConfigError` where the name is not known."""
    try:
        return str(ip_address(host))
    except ValueError:
        pass
    try:
        return look_up_host(host)[0]
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"the host {host} is not known ({error}): change brokerIP1, or bindAddress where that"
            " is not set"
        ) from error


def host_name() -> str:
    """Returns the name of this machine, or DEFAULT_BROKER: what brokerName is by default."""
    return socket.gethostname() or "DEFAULT_BROKER"
