"""Ports of a proxy that stand for one broker each.

Clients before 5.0 know a broker by its address and do not name it. Where several brokers have a
queue of the same number only the port at which they ask tells which one they mean.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketmq_tw.net.address import join_address, split_address
from rocketmq_tw.wire.command import VERSION_5_0_0


class BrokerPorts:
    """The ports by the names of brokers."""

    def __init__(self, ports: Mapping[str, int]) -> None:
        self._ports = ports
        self._names = {port: name for name, port in self._ports.items()}

    def broker_at(self, local_address: str) -> str | None:
        """Returns the broker that is meant by requests to an address of the proxy; None at a port
        that stands for all."""
        if not self._names:
            return None
        return self._names.get(split_address(local_address)[1])

    def address_for(self, version: int, broker_name: str, address: str) -> str:
        """Returns where a client of a version reaches a broker, if it reaches the proxy at
        `address`."""
        port = self._ports.get(broker_name)
        if port is None or version >= VERSION_5_0_0:
            return address
        return join_address(split_address(address)[0], port)


#: All brokers are at the same port.
NO_PORTS = BrokerPorts({})
