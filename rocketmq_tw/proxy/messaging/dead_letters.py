"""ForwardMessageToDeadLetterQueue: a consumer gives up a message that it received."""

from __future__ import annotations

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rocketmq_tw.proxy.clients import ProxyClients
from rocketmq_tw.proxy.grpc.interfaces import ICall, Methods
from rocketmq_tw.proxy.messaging.checks import client_group, client_id_of, client_topic
from rocketmq_tw.proxy.messaging.claims import Claims, handle_of
from rocketmq_tw.proxy.messaging.dead_letter_forwarding import DeadLetterForwarding, GivenUp
from rocketmq_tw.proxy.messaging.hiding import is_for_good
from rocketmq_tw.proxy.messaging.methods import in_time, path, seconds_left, unary
from rocketmq_tw.proxy.messaging.popped import PopClient
from rocketmq_tw.proxy.messaging.receipt_handles import ReceiptHandle
from rocketmq_tw.proxy.messaging.statuses import StatusError, ok
from rocketmq_tw.proxy.proto.messages import (
    Code,
    ForwardMessageToDeadLetterQueueRequest,
    ForwardMessageToDeadLetterQueueResponse,
)

#: Seconds for which a call waits until a broker has stored a message in a dead-letter queue.
FORWARD_SECONDS = 3.0

_log = Logger()


class DeadLetters:
    """Answers ForwardMessageToDeadLetterQueue: the message is stored in its group's dead-letter
    queue first, and then acknowledged. A client that is not told OK asks again, and what is done by
    then is not done once more."""

    def __init__(
        self,
        clock: IReactorTime,
        clients: ProxyClients,
        popped: PopClient,
        claims: Claims,
    ) -> None:
        self._clock = clock
        self._clients = clients
        self._popped = popped
        self._claims = claims
        self._forwarding = DeadLetterForwarding(popped)

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
        topic, group = client_topic(request.topic), client_group(request.group)
        given_up = GivenUp(topic, group, _handle(request.receipt_handle))
        claim = await self._claims.find(client_id_of(call), topic, group, given_up.handle)
        if claim is None:
            # Others may have it by now: its consumer asks until it is told of success.
            await self._store_and_acknowledge(given_up, given_up.handle, request.message_id, call)
        else:
            try:
                await claim.make_sure()
                await self._store_and_acknowledge(given_up, claim.handle, request.message_id, call)
            except BaseException as error:
                claim.failed(error)
                raise
            claim.done()
        return ForwardMessageToDeadLetterQueueResponse(status=ok())

    async def _store_and_acknowledge(
        self, given_up: GivenUp, handle: ReceiptHandle, message_id: str, call: ICall
    ) -> None:
        client = self._clients.get(client_id_of(call))
        seconds = seconds_left(call, self._clock, FORWARD_SECONDS)
        stored = self._forwarding.forward(given_up, handle, message_id, client)
        missing = f"{handle.info.broker_name} has not stored the dead letter"
        await in_time(stored, seconds, self._clock, missing, "ask again")
        try:
            await self._popped.acknowledge(given_up.topic, given_up.group, handle, client)
        except StatusError as error:
            if not is_for_good(error):
                raise
            _log.warn(
                "a dead letter of {group} is not acknowledged, and may come again: {error}",
                group=given_up.group,
                error=error,
            )


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
