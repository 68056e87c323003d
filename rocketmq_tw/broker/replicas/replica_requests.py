"""What replicas are asked: 907, 60; and what a slave refuses because it is its master's to do."""

from __future__ import annotations

from collections.abc import Callable

from rocketmq_tw.broker.timer.progress import TimerProgress
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.stats import HARuntimeInfo
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError

#: Requests that store a message; stock 5.3.3's slaves refuse them with SYSTEM_BUSY.
STORING = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.END_TRANSACTION,
)
#: Requests that change what a slave copies; stock 4.9's slaves refuse them with SYSTEM_ERROR.
CHANGING = (
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
)


class ReplicaRequests:
    def __init__(self, runtime_info: Callable[[], HARuntimeInfo], timer: TimerProgress) -> None:
        self._runtime_info = runtime_info
        self._timer = timer

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_BROKER_HA_STATUS: self.ha_status,
            RequestCode.GET_TIMER_CHECK_POINT: self.timer_checkpoint,
        }

    def ha_status(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        return request.response(body=encode_body(self._runtime_info()))

    def timer_checkpoint(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Raises `RequestError` where there is none, as stock with its timer off: a zero would make
        a slave of stock believe that time starts anew."""
        checkpoint = self._timer.checkpoint
        if checkpoint is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "no timer was ever at work here")
        return request.response(body=checkpoint.encode())


def slave_handlers(handlers: dict[int, Handler]) -> dict[int, Handler]:
    """The same table with refusals where a slave must not act."""

    def refuse_message(request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        raise RequestError(
            ResponseCode.SYSTEM_BUSY, "this broker is a slave and stores nothing: ask its master"
        )

    def refuse_change(request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            "this broker is a slave, its topics and groups are the master's: change them there",
        )

    return (
        handlers
        | {code: refuse_message for code in STORING if code in handlers}
        | {code: refuse_change for code in CHANGING if code in handlers}
    )
