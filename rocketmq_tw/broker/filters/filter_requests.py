"""46: may this client subscribe so? Consumers ask before they start."""

from __future__ import annotations

from rocketmq_tw.broker.filters.filters import MessageFilters
from rocketmq_tw.message.tags import is_tag_type
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.wire.bodies.base import decode_request
from rocketmq_tw.wire.bodies.heartbeat import CheckClientBody
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand


class FilterRequests:
    def __init__(self, filters: MessageFilters) -> None:
        self._filters = filters

    def handlers(self) -> dict[int, Handler]:
        check = self._filters.turns.patient(self.check_client)
        return {RequestCode.CHECK_CLIENT_CONFIG: check}

    def check_client(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Whether a subscription's expression can be filtered by."""
        wanted = decode_request(CheckClientBody, request.body).subscription_data
        if wanted is not None and not is_tag_type(wanted.expression_type):
            self._filters.check_enabled(wanted.expression_type)
            self._filters.parsed(wanted.sub_string, wanted.expression_type)
        return request.response()
