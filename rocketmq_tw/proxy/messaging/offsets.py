"""GetOffset, QueryOffset and UpdateOffset: offsets of queues and of groups in them. Stock's proxies
do not implement them."""

from __future__ import annotations

from rocketmq_tw.client.commands import (
    commit_offset_command,
    committed_offset_command,
    max_offset_command,
    min_offset_command,
    read_committed_offset,
    read_max_offset,
    read_min_offset,
    read_search_offset,
    search_offset_command,
)
from rocketmq_tw.client.errors import check_success
from rocketmq_tw.proxy.brokers import IBrokers
from rocketmq_tw.proxy.clients import ProxyClients
from rocketmq_tw.proxy.grpc.interfaces import ICall, Methods
from rocketmq_tw.proxy.messaging.checks import (
    check_broker,
    client_group,
    client_id_of,
    client_topic,
    no_route,
)
from rocketmq_tw.proxy.messaging.messages import milliseconds
from rocketmq_tw.proxy.messaging.methods import path, unary
from rocketmq_tw.proxy.messaging.statuses import StatusError, ok
from rocketmq_tw.proxy.proto import messages as pb
from rocketmq_tw.proxy.proto.messages import (
    Code,
    GetOffsetRequest,
    GetOffsetResponse,
    QueryOffsetPolicy,
    QueryOffsetRequest,
    QueryOffsetResponse,
    UpdateOffsetRequest,
    UpdateOffsetResponse,
)
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.command import RemotingCommand

_ASK_SECONDS = 3.0


class OffsetCalls:
    """Answers questions about offsets, and commits those of groups."""

    def __init__(self, brokers: IBrokers, clients: ProxyClients) -> None:
        self._brokers = brokers
        self._clients = clients

    def methods(self) -> Methods:
        """Returns the methods by path."""
        return {
            path("GetOffset"): unary(GetOffsetRequest, GetOffsetResponse, self.get),
            path("QueryOffset"): unary(QueryOffsetRequest, QueryOffsetResponse, self.query),
            path("UpdateOffset"): unary(UpdateOffsetRequest, UpdateOffsetResponse, self.update),
        }

    async def get(self, request: GetOffsetRequest, call: ICall) -> GetOffsetResponse:
        """Answers with the offset at which a group goes on."""
        queue, group = named_queue(request.message_queue), client_group(request.group)
        answer = await self._ask(queue, committed_offset_command(group, queue), call)
        offset = read_committed_offset(queue.broker_name, answer)
        if offset is None:
            raise StatusError(
                Code.OFFSET_NOT_FOUND,
                f"{group} has committed no offset for queue {queue.queue_id} of {queue.topic}",
            )
        return GetOffsetResponse(status=ok(), offset=offset)

    async def query(self, request: QueryOffsetRequest, call: ICall) -> QueryOffsetResponse:
        """Answers with the first offset of a queue, its end, or the first one since a time."""
        queue, policy = named_queue(request.message_queue), request.query_offset_policy
        if policy == QueryOffsetPolicy.BEGINNING:
            command, read = min_offset_command(queue), read_min_offset
        elif policy == QueryOffsetPolicy.END:
            command, read = max_offset_command(queue), read_max_offset
        elif policy == QueryOffsetPolicy.TIMESTAMP:
            command, read = search_offset_command(queue, _time(request)), read_search_offset
        else:
            raise StatusError(
                Code.BAD_REQUEST, f"{policy} is no policy: ask for BEGINNING, END or TIMESTAMP"
            )
        answer = await self._ask(queue, command, call)
        return QueryOffsetResponse(status=ok(), offset=read(queue.broker_name, answer))

    async def update(self, request: UpdateOffsetRequest, call: ICall) -> UpdateOffsetResponse:
        """Has a group go on at an offset."""
        queue, group = named_queue(request.message_queue), client_group(request.group)
        offset = check_offset(request.offset)
        answer = await self._ask(queue, commit_offset_command(group, queue, offset), call)
        check_success(queue.broker_name, answer)
        return UpdateOffsetResponse(status=ok())

    async def _ask(
        self, queue: MessageQueue, command: RemotingCommand, call: ICall
    ) -> RemotingCommand:
        client = self._clients.get(client_id_of(call))
        check_broker(self._brokers, queue.broker_name)
        await self._check_exists(queue)
        return await self._brokers.ask(queue.broker_name, command, _ASK_SECONDS, client)

    async def _check_exists(self, queue: MessageQueue) -> None:
        """Raises `StatusError` where the route has no such queue: brokers answer for any."""
        route = await self._brokers.route(queue.topic)
        if route is None:
            raise no_route(self._brokers, queue.topic)
        count = max(
            (
                max(data.read_queue_nums, data.write_queue_nums)
                for data in route.queue_datas
                if data.broker_name == queue.broker_name
            ),
            default=0,
        )
        if queue.queue_id >= count:
            raise StatusError(
                Code.BAD_REQUEST,
                f"the broker {queue.broker_name} has no queue {queue.queue_id} of {queue.topic}, it"
                f" has {count}: name one of the route",
            )


def named_queue(queue: pb.MessageQueue) -> MessageQueue:
    """Returns a queue of a broker; raises `StatusError` where the request names none."""
    topic = client_topic(queue.topic)
    if not queue.broker.name or queue.id < 0:
        raise StatusError(
            Code.BAD_REQUEST,
            f"queue {queue.id} of the broker {queue.broker.name!r}: name one of a route",
        )
    return MessageQueue(topic=topic, broker_name=queue.broker.name, queue_id=queue.id)


def check_offset(offset: int) -> int:
    """Returns an offset of a queue; raises `StatusError` (ILLEGAL_OFFSET) for a negative one."""
    if offset < 0:
        raise StatusError(Code.ILLEGAL_OFFSET, f"the offset {offset} is negative: give 0 or more")
    return offset


def _time(request: QueryOffsetRequest) -> int:
    if not request.HasField("timestamp"):
        raise StatusError(Code.BAD_REQUEST, "the policy TIMESTAMP needs a timestamp: give it")
    try:
        return milliseconds(request.timestamp)
    except ValueError as error:
        raise StatusError(Code.BAD_REQUEST, f"the timestamp: {error}") from None
