"""What a broker with a controller tells of the epochs of its log (1007)."""

from __future__ import annotations

from itertools import pairwise

from rocketmq_tw.broker.replicas.switching import Switching
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.controller import EpochEntryBody, EpochEntryCache
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError


class EpochRequests:
    """1007, refused by brokers that have no controller."""

    def __init__(self, config: BrokerConfig, role: RoleHolder, switching: Switching) -> None:
        self._config = config
        self._role = role
        self._switching = switching

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.GET_BROKER_EPOCH_CACHE: self.epochs}

    def epochs(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
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
