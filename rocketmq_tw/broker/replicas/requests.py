"""Answers requests about links (907) and epochs (1007), and hears where slaves connect (906) and of
the master's log (908)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from twisted.logger import Logger

from rocketmq_tw.broker.assembly.host import Addresses
from rocketmq_tw.broker.replicas.switching import Switching
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.net.changes import who
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.controller import EpochEntryBody, EpochEntryCache
from rocketmq_tw.wire.bodies.stats import HARuntimeInfo
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.broker import (
    ExchangeHAInfoResponseHeader,
    ResetMasterFlushOffsetHeader,
)

log = Logger()


class ReplicaRequests:
    """Answers 907 with what `runtime_info` tells. `has_links`: slaves may connect, to a master or
    to a broker that is about to be one."""

    def __init__(
        self,
        config: BrokerConfig,
        role: RoleHolder,
        addresses: Addresses,
        store: IMessageStore,
        switching: Switching,
        runtime_info: Callable[[], HARuntimeInfo],
        has_links: Callable[[], bool],
    ) -> None:
        self._config = config
        self._role = role
        self._addresses = addresses
        self._store = store
        self._switching = switching
        self._runtime_info = runtime_info
        self._has_links = has_links

    def handlers(self) -> dict[int, Handler]:
        """Returns the handlers by request code."""
        return {
            RequestCode.GET_BROKER_HA_STATUS: self.ha_status,
            RequestCode.EXCHANGE_BROKER_HA_INFO: self.ha_info,
            RequestCode.GET_BROKER_EPOCH_CACHE: self.epochs,
            RequestCode.RESET_MASTER_FLUSH_OFFSET: self.reset_master_flush_offset,
        }

    def ha_status(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 907: how replication is doing."""
        return request.response(body=encode_body(self._runtime_info()))

    def ha_info(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 906: the addresses of a master; all fields are absent where the broker is
        none."""
        if not (self._role.is_master or self._has_links()):
            return request.response(header=ExchangeHAInfoResponseHeader())
        return request.response(
            header=ExchangeHAInfoResponseHeader(
                master_ha_address=self._addresses.ha,
                master_flush_offset=self._store.flushed_offset,
                master_address=self._addresses.broker,
            )
        )

    def reset_master_flush_offset(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 908: changes nothing. Stock's slaves begin behind the offset up to which their
        master was flushed; here a slave compares its log with its master's, and needs none."""
        offset = request.header(ResetMasterFlushOffsetHeader).master_flush_offset
        log.info(
            "{peer} wants the master's flush offset to be {offset}: this broker keeps none",
            peer=who(peer),
            offset=offset,
        )
        return request.response()

    def epochs(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 1007: the epochs of the log; refused by brokers that have no controller."""
        config, entries = self._config, self._switching.epochs.table.entries
        if not config.enable_controller_mode:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                "this broker has no controller, so no epochs: enableControllerMode",
            )
        told = [
            EpochEntryBody(epoch=entry.epoch, start_offset=entry.start, end_offset=following.start)
            for entry, following in pairwise(entries)
        ]
        told += [EpochEntryBody(epoch=last.epoch, start_offset=last.start) for last in entries[-1:]]
        body = EpochEntryCache(
            cluster_name=config.broker_cluster_name,
            broker_name=config.broker_name,
            broker_id=self._role.state.broker_id,
            epoch_list=told,
            max_offset=self._switching.progress.end,
        )
        return request.response(body=encode_body(body))
