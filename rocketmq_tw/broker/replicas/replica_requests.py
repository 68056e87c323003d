"""What a replica tells of its links (907)."""

from __future__ import annotations

from collections.abc import Callable

from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.stats import HARuntimeInfo
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand


class ReplicaRequests:
    """Answers with what `runtime_info` tells."""

    def __init__(self, runtime_info: Callable[[], HARuntimeInfo]) -> None:
        self._runtime_info = runtime_info

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.GET_BROKER_HA_STATUS: self.ha_status}

    def ha_status(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        return request.response(body=encode_body(self._runtime_info()))
