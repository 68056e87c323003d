"""ForwardMessageToDeadLetterQueue: a consumer gives up a message that it received."""

from __future__ import annotations

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.proxy.brokers import IBrokers, IProxyClient
from rocketmq_tw.proxy.clients import ProxyClients
from rocketmq_tw.proxy.grpc.interfaces import ICall, Methods
from rocketmq_tw.proxy.messaging.broker_names import check_broker
from rocketmq_tw.proxy.messaging.callers import client_id_of
from rocketmq_tw.proxy.messaging.checks import check_group, check_topic
from rocketmq_tw.proxy.messaging.methods import path, seconds_left, unary
from rocketmq_tw.proxy.messaging.popped import PopClient
from rocketmq_tw.proxy.messaging.receipt_handles import ReceiptHandle, parse_receipt_handle
from rocketmq_tw.proxy.messaging.renewal import Renewal
from rocketmq_tw.proxy.messaging.statuses import StatusError, broker_code, ok
from rocketmq_tw.proxy.proto.messaging_pb2 import (
    Code,
    ForwardMessageToDeadLetterQueueRequest,
    ForwardMessageToDeadLetterQueueResponse,
)
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.send import ConsumerSendMsgBackRequestHeader

#: Seconds that a broker gets to store a message in a dead-letter queue.
FORWARD_SECONDS = 3.0
#: The delay level by which a broker is asked for the dead-letter queue at once.
_DEAD_LETTER_LEVEL = -1

_log = Logger()


class DeadLetters:
    """Answers ForwardMessageToDeadLetterQueue: the message is stored in its group's dead-letter
    queue first, and then acknowledged."""

    def __init__(
        self,
        clock: IReactorTime,
        brokers: IBrokers,
        clients: ProxyClients,
        popped: PopClient,
        renewal: Renewal,
    ) -> None:
        self._clock = clock
        self._brokers = brokers
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
        check_broker(self._brokers, handle.info.broker_name)
        client = self._clients.get(client_id_of(call))
        # Also one that others may have by now: its consumer tries until it is told of success.
        renewed = await self._renewal.claim(group, topic, handle)
        if renewed is not None:
            handle = renewed.handle
        try:
            await self._store(topic, group, handle, request.message_id, call)
        except BaseException:
            if renewed is not None:
                self._renewal.give_back(renewed)
            raise
        if renewed is not None:
            self._renewal.settle(renewed)
        await self._acknowledge(topic, group, handle, client)
        return ForwardMessageToDeadLetterQueueResponse(status=ok())

    async def _store(
        self, topic: str, group: str, handle: ReceiptHandle, message_id: str, call: ICall
    ) -> None:
        header = ConsumerSendMsgBackRequestHeader(
            offset=handle.log_offset,
            group=group,
            delay_level=_DEAD_LETTER_LEVEL,
            origin_msg_id=message_id or None,
            origin_topic=handle.topic(topic, group),
            max_reconsume_times=0,
            bname=handle.info.broker_name,
        )
        command = RemotingCommand.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        timeout = seconds_left(call, self._clock, FORWARD_SECONDS)
        answer = await self._brokers.ask(handle.info.broker_name, command, timeout)
        if answer.code != ResponseCode.SUCCESS:
            raise StatusError(broker_code(answer.code), answer.remark or "the broker refused")

    async def _acknowledge(
        self, topic: str, group: str, handle: ReceiptHandle, client: IProxyClient | None
    ) -> None:
        """Acknowledges what is a dead letter by now; where that fails, it is delivered again."""
        try:
            await self._popped.acknowledge(topic, group, handle, client)
        except (StatusError, RequestError, RemotingError) as error:
            _log.warn(
                "a dead letter of {group} is not acknowledged, and comes again: {error}",
                group=group,
                error=error,
            )


def _handle(text: str) -> ReceiptHandle:
    """Returns what a receipt handle says; raises `StatusError` where it names no message."""
    try:
        handle = parse_receipt_handle(text)
    except ValueError as error:
        raise StatusError(Code.INVALID_RECEIPT_HANDLE, str(error)) from None
    if handle.log_offset < 0:
        raise StatusError(
            Code.INVALID_RECEIPT_HANDLE,
            "the receipt handle does not say where the message is stored: give the one that came"
            " with the message",
        )
    return handle
