"""ChangeInvisibleDuration: a message comes back earlier or later than its receive said."""

from __future__ import annotations

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.proxy.grpc.interfaces import ICall, Methods
from rocketmq_tw.proxy.messaging.checks import client_group, client_id_of, client_topic
from rocketmq_tw.proxy.messaging.claims import Claims, handle_of
from rocketmq_tw.proxy.messaging.methods import path, unary
from rocketmq_tw.proxy.messaging.polling import check_invisible_ms
from rocketmq_tw.proxy.messaging.statuses import ok
from rocketmq_tw.proxy.proto.messages import (
    ChangeInvisibleDurationRequest,
    ChangeInvisibleDurationResponse,
)


class InvisibleDurations:
    """Answers changes of invisible durations: the message is renewed no more, and has a new receipt
    handle."""

    def __init__(self, claims: Claims, config: ProxyConfig) -> None:
        self._claims = claims
        self._config = config

    def methods(self) -> Methods:
        """Returns the methods by path."""
        return {
            path("ChangeInvisibleDuration"): unary(
                ChangeInvisibleDurationRequest, ChangeInvisibleDurationResponse, self.change
            )
        }

    async def change(
        self, request: ChangeInvisibleDurationRequest, call: ICall
    ) -> ChangeInvisibleDurationResponse:
        """Answers with the message's receipt handle from now on."""
        client_id = client_id_of(call)
        topic, group = client_topic(request.topic), client_group(request.group)
        duration = check_invisible_ms(request.invisible_duration, 0, self._config)
        handle = handle_of(request.receipt_handle)
        claim = await self._claims.claim(client_id, topic, group, handle)
        try:
            changed = await claim.hide(duration)
        except Exception as error:
            claim.failed(error)
            raise
        if call.is_over:
            claim.unheard()
        return ChangeInvisibleDurationResponse(status=ok(), receipt_handle=str(changed))
