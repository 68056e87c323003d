"""From where slaves may connect: the check of a HA connection's address."""

from __future__ import annotations

from rocketmq_tw.net.interfaces import IIdentified
from rocketmq_tw.net.networks import Networks, host_of
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError


class SlaveAddressCheck:
    """A `ConnectionCheck` that lets in connections from `networks` alone, as haAddresses names
    them; everybody where it is empty."""

    def __init__(self, networks: str) -> None:
        self._networks = Networks(networks)

    def __call__(self, connection: IIdentified) -> None:
        if self._networks and connection.address not in self._networks:
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"{host_of(connection.address)} is not in haAddresses of this broker",
            )
