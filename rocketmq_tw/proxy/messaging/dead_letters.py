"""ForwardMessageToDeadLetterQueue: a consumer gives up a message that it received."""

from __future__ import annotations

from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.proxy.clients import ProxyClients
from rocketmq_tw.proxy.grpc.interfaces import ICall, Methods
from rocketmq_tw.proxy.messaging.checks import check_group, check_topic, client_id_of
from rocketmq_tw.proxy.messaging.claims import handle_of
from rocketmq_tw.proxy.messaging.methods import path, seconds_left, unary
from rocketmq_tw.proxy.messaging.popped import PopClient
from rocketmq_tw.proxy.messaging.receipt_handles import ReceiptHandle
from rocketmq_tw.proxy.messaging.renewal import Renewal
from rocketmq_tw.proxy.messaging.statuses import StatusError, ok
from rocketmq_tw.proxy.proto.messaging_pb2 import (
    Code,
    ForwardMessageToDeadLetterQueueRequest,
    ForwardMessageToDeadLetterQueueResponse,
)

#: Seconds that a broker gets to store a message in a dead-letter queue.
FORWARD_SECONDS = 3.0


class DeadLetters:
    """Answers ForwardMessageToDeadLetterQueue: the message is stored in its group's dead-letter
    queue first, and then acknowledged."""

    def __init__(
        self,
        clock: IReactorTime,
        clients: ProxyClients,
        popped: PopClient,
        renewal: Renewal,
    ) -> None:
        self._clock = clock
        self._clients = clients
        self._popped = popped
        self._renewal = renewal

    def methods(self) -> Methods:
        """Returns the methods by path."""
        return {
            path("ForwardMessageToDeadLetterQueue"): unary(
                ForwardMessageToDeadLetterQueueRequest,
                ForwardMessageToDeadLetterQueueResponse,
                self._forward,
            )
        }

    async def _forward(
        self, request: ForwardMessageToDeadLetterQueueRequest, call: ICall
    ) -> ForwardMessageToDeadLetterQueueResponse:
        topic, group = check_topic(request.topic), check_group(request.group)
        handle = _handle(request.receipt_handle)
        client = self._clients.get(client_id_of(call))
        # Also one that others may have by now: its consumer tries until it is told of success.
        renewed = await self._renewal.claim(group, topic, handle)
        if renewed is not None:
            handle = renewed.handle
        try:
            timeout = seconds_left(call, self._clock, FORWARD_SECONDS)
            await self._popped.bury(topic, group, handle, request.message_id, client, timeout)
        except BaseException:
            if renewed is not None:
                self._renewal.give_back(renewed)
            raise
        if renewed is not None:
            self._renewal.settle(renewed)
        return ForwardMessageToDeadLetterQueueResponse(status=ok())


def _handle(text: str) -> ReceiptHandle:
    """Returns what a receipt handle says; raises `StatusError` where it names no message."""
    handle = handle_of(text)
    if handle.log_offset < 0:
        raise StatusError(
            Code.INVALID_RECEIPT_HANDLE,
            "the receipt handle does not say where the message is stored: give the one that came"
            " with the message",
        )
    return handle
