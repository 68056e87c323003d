"""What a replica tells of its links (907), and where slaves connect to it (906)."""

from __future__ import annotations

from collections.abc import Callable

from rocketmq_tw.broker.assembly.host import Addresses
from rocketmq_tw.broker.interfaces import IMessageStore
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.stats import HARuntimeInfo
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.broker import ExchangeHAInfoResponseHeader


class ReplicaRequests:
    """907 is answered with what `runtime_info` tells."""

    def __init__(
        self,
        runtime_info: Callable[[], HARuntimeInfo],
        addresses: Addresses,
        role: RoleHolder,
        store: IMessageStore,
    ) -> None:
        self._runtime_info = runtime_info
        self._addresses = addresses
        self._role = role
        self._store = store

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_BROKER_HA_STATUS: self.ha_status,
            RequestCode.EXCHANGE_BROKER_HA_INFO: self.ha_info,
        }

    def ha_status(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        return request.response(body=encode_body(self._runtime_info()))

    def ha_info(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """A master tells its addresses; one that is none tells nothing."""
        if not self._role.is_master:
            return request.response(header=ExchangeHAInfoResponseHeader())
        return request.response(
            header=ExchangeHAInfoResponseHeader(
                master_ha_address=self._addresses.ha,
                master_flush_offset=self._store.flushed_offset,
                master_address=self._addresses.broker,
            )
        )
