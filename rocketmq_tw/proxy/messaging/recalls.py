"""RecallMessage: a producer takes back a message that still waits for its time."""

from __future__ import annotations

from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.message.ids import RecallHandle, decode_recall_handle
from rocketmq_tw.message.types import DELAY_TYPE
from rocketmq_tw.proxy.brokers import IBrokers
from rocketmq_tw.proxy.grpc.interfaces import ICall, Methods
from rocketmq_tw.proxy.messaging.checks import TopicTypes, check_broker, client_topic
from rocketmq_tw.proxy.messaging.methods import path, seconds_left, unary
from rocketmq_tw.proxy.messaging.statuses import StatusError, broker_code, ok
from rocketmq_tw.proxy.proto.messages import (
    Code,
    RecallMessageRequest,
    RecallMessageResponse,
)
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.send import RecallMessageRequestHeader, RecallMessageResponseHeader

#: Seconds that a broker gets, as with stock's proxies.
RECALL_SECONDS = 2.0
#: Seconds in which brokers have to say what the topic takes.
_CHECK_SECONDS = 1.0
#: Characters of a handle; a broker's name is the one part without a limit.
_MOST_HANDLE = 4096


class Recalls:
    """Answers RecallMessage."""

    def __init__(self, clock: IReactorTime, brokers: IBrokers, types: TopicTypes) -> None:
        self._clock = clock
        self._brokers = brokers
        self._types = types

    def methods(self) -> Methods:
        """Returns the methods by path."""
        return {
            path("RecallMessage"): unary(RecallMessageRequest, RecallMessageResponse, self._recall)
        }

    async def _recall(self, request: RecallMessageRequest, call: ICall) -> RecallMessageResponse:
        topic = client_topic(request.topic)
        handle = _handle(request.recall_handle, topic)
        await self._types.check(
            topic, frozenset({DELAY_TYPE}), seconds_left(call, self._clock, _CHECK_SECONDS)
        )
        check_broker(self._brokers, handle.broker_name)
        header = RecallMessageRequestHeader(
            topic=topic, recall_handle=request.recall_handle, bname=handle.broker_name
        )
        command = RemotingCommand.request(RequestCode.RECALL_MESSAGE, header)
        timeout = seconds_left(call, self._clock, RECALL_SECONDS)
        answer = await self._brokers.ask(handle.broker_name, command, timeout)
        if answer.code != ResponseCode.SUCCESS:
            raise StatusError(
                broker_code(answer.code, answer.remark), answer.remark or "the broker refused"
            )
        found = answer.header(RecallMessageResponseHeader)
        return RecallMessageResponse(status=ok(), message_id=found.msg_id)


def _handle(text: str, topic: str) -> RecallHandle:
    """Returns what a handle says; raises `StatusError` for one that is none, or another topic's."""
    if len(text) > _MOST_HANDLE:
        raise StatusError(
            Code.BAD_REQUEST,
            f"a recall handle of {len(text)} characters is none: give that of the send's result",
        )
    try:
        handle = decode_recall_handle(text)
    except ValueError as error:
        raise StatusError(
            Code.BAD_REQUEST, f"{error}; give the recall handle of the send's result"
        ) from None
    if handle.topic != topic:
        raise StatusError(
            Code.BAD_REQUEST, f"the recall handle is for a message of {handle.topic}, not {topic}"
        )
    return handle
