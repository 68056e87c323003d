"""Finds the broker that a classic client means.

Clients of 5.x name it in each request. Older ones knew it by its address, which is the proxy's
here, so that their requests tell the topic and queue only.
"""

from __future__ import annotations

from rocketmq_tw.client.routes import is_static
from rocketmq_tw.message.extra_info import parse_extra_info
from rocketmq_tw.message.ids import decode_recall_handle
from rocketmq_tw.message.logic_queues import LOGIC_BROKER, leader_in
from rocketmq_tw.proxy.brokers import IBrokers
from rocketmq_tw.wire.bodies.base import decode_request
from rocketmq_tw.wire.bodies.pop import BatchAckMessageRequestBody
from rocketmq_tw.wire.bodies.queues import LockBatchRequestBody, MessageQueue
from rocketmq_tw.wire.bodies.route import QueueData, TopicRouteData
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError

#: Requests that send with short names of fields.
SHORT_NAMES = frozenset(
    {
        int(RequestCode.SEND_MESSAGE_V2),
        int(RequestCode.SEND_BATCH_MESSAGE),
        int(RequestCode.SEND_REPLY_MESSAGE_V2),
    }
)
_SENDS = SHORT_NAMES | {int(RequestCode.SEND_MESSAGE), int(RequestCode.SEND_REPLY_MESSAGE)}
#: Values in a body that names queues or check points; a broker takes no more.
_MAX_VALUES = 60_000
_LOCKS = frozenset({int(RequestCode.LOCK_BATCH_MQ), int(RequestCode.UNLOCK_BATCH_MQ)})
_POPPED = frozenset({int(RequestCode.ACK_MESSAGE), int(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)})
_GIVE_BACK = int(RequestCode.CONSUMER_SEND_MSG_BACK)


def named_broker(request: RemotingCommand) -> str | None:
    """Returns the broker that a request's header names, or its body or handle; None where it names
    none, as of a logic queue. Raises `RequestError` where it names several, `BodyError` where its
    body cannot be read."""
    fields = request.ext_fields
    code = request.code
    name = (
        fields.get("n") if code in SHORT_NAMES else fields.get("bname") or fields.get("brokerName")
    )
    if name:
        return None if name == LOGIC_BROKER else name
    if code in _LOCKS:
        name = _locked_broker(request)
        return None if name == LOGIC_BROKER else name
    if code in _POPPED:
        return _popping_broker(fields.get("extraInfo", ""))
    if code == RequestCode.BATCH_ACK_MESSAGE:
        return decode_request(
            BatchAckMessageRequestBody, request.body, max_values=_MAX_VALUES
        ).broker_name
    if code == RequestCode.RECALL_MESSAGE:
        return _recalling_broker(fields.get("recallHandle", ""))
    return None


class Targets:
    """Finds the broker of a request by the route of its topic: the only one that has the queue, or
    the one that leads it."""

    def __init__(self, brokers: IBrokers) -> None:
        self._brokers = brokers

    async def find(self, request: RemotingCommand) -> str:
        """Returns the one broker that serves the queue of a request. Raises `RequestError` that
        says what to change where there is none, or more than one."""
        topic, queue_id = _queue_of(request)
        route = await self._brokers.route(topic)
        if route is None and request.code in _SENDS:
            # The send creates it, from the topic that the client took the route from.
            default = request.ext_fields.get("c" if request.code in SHORT_NAMES else "defaultTopic")
            route = await self._brokers.route(default) if default else None
        if route is None:
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"no broker has the topic {topic}: create it, or name the broker (bname)",
            )
        names = _brokers_of(route, queue_id, is_send=request.code in _SENDS)
        if not names:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"topic {topic} has no queue {queue_id}: ask for its route again",
            )
        if len(names) > 1:
            raise RequestError(
                ResponseCode.VERSION_NOT_SUPPORTED,
                f"several brokers have that queue of {topic} ({', '.join(names[:5])}), and request"
                f" {request.code} names none (bname): use a client of 5.0 or later, or give each"
                " broker a port of its own (remotingBrokerPorts)",
            )
        return names[0]


def _brokers_of(route: TopicRouteData, queue_id: int | None, *, is_send: bool) -> list[str]:
    if is_static(route):
        mappings = route.topic_queue_mapping_by_broker or {}
        if queue_id is None or queue_id < 0:
            return [info.bname or "" for info in mappings.values() if info.curr_id_map]
        leader = leader_in(mappings, queue_id)
        return [] if leader is None else [leader]

    def count(data: QueueData) -> int:
        return data.write_queue_nums if is_send else data.read_queue_nums

    return [
        data.broker_name
        for data in route.queue_datas
        if queue_id is None or queue_id < 0 or queue_id < count(data)
    ]


def _queue_of(request: RemotingCommand) -> tuple[str, int | None]:
    """Returns topic and queue of a request; without a queue any one is meant."""
    fields = request.ext_fields
    if request.code in _LOCKS:
        # Of the others the client says that the same broker serves them.
        first = _locked_queues(request)[0]
        return first.topic, first.queue_id
    if request.code in SHORT_NAMES:
        topic, queue = fields.get("b"), fields.get("e")
    elif request.code == _GIVE_BACK:
        topic, queue = fields.get("originTopic"), None
    else:
        topic, queue = fields.get("topic"), fields.get("queueId")
    if not topic:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"request {request.code} names neither broker (bname) nor topic: give one of them",
        )
    if queue is None:
        return topic, None
    try:
        return topic, int(queue)
    except ValueError:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR, f"the queue is {queue[:40]!r}: give its number"
        ) from None


def _locked_broker(request: RemotingCommand) -> str:
    names = {queue.broker_name for queue in _locked_queues(request)}
    if len(names) > 1:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"queues of {len(names)} brokers: ask for the queues of each broker by themselves",
        )
    return names.pop()


def _locked_queues(request: RemotingCommand) -> list[MessageQueue]:
    body = decode_request(LockBatchRequestBody, request.body, max_values=_MAX_VALUES)
    if not body.mq_set:
        raise RequestError(ResponseCode.SYSTEM_ERROR, "no queue (mqSet) is named: name one")
    return body.mq_set


def _popping_broker(extra_info: str) -> str | None:
    try:
        return parse_extra_info(extra_info).broker_name
    except (RequestError, ValueError):
        return None


def _recalling_broker(handle: str) -> str | None:
    try:
        return decode_recall_handle(handle).broker_name
    except ValueError:
        return None
