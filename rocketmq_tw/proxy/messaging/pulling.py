"""PullMessage: a client reads a queue by its offsets. Stock's proxies do not implement it."""

from __future__ import annotations

from collections import deque

from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.client.commands import pull_command
from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.message.model import COMPRESSED, StoredMessage
from rocketmq_tw.message.properties import TAGS, parse_properties
from rocketmq_tw.message.record import RecordError, decode_records
from rocketmq_tw.net.errors import RequestTimeout
from rocketmq_tw.proxy.brokers import IBrokers
from rocketmq_tw.proxy.clients import ProxyClients
from rocketmq_tw.proxy.grpc.interfaces import ICall, Methods
from rocketmq_tw.proxy.messaging.checks import check_broker, client_group, client_id_of
from rocketmq_tw.proxy.messaging.expressions import Expressions, WantedMessages
from rocketmq_tw.proxy.messaging.messages import duration_ms, fill_message, stored_size
from rocketmq_tw.proxy.messaging.methods import path, seconds_left
from rocketmq_tw.proxy.messaging.offsets import check_offset, named_queue
from rocketmq_tw.proxy.messaging.statuses import StatusError, broker_code, ok, status
from rocketmq_tw.proxy.messaging.streams import server_stream, when_ready
from rocketmq_tw.proxy.messaging.unpacking import Unpacking
from rocketmq_tw.proxy.proto.messages import (
    Code,
    PullMessageRequest,
    PullMessageResponse,
)
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import BodyError
from rocketmq_tw.wire.headers.pull import PullMessageResponseHeader

#: Messages of one pull.
MAX_PULLED = 256
#: Seconds that an answer of a broker may come late.
_LATE_SECONDS = 3.0

#: What a pull may bring beside messages.
_EMPTY: dict[int, tuple[Code, str]] = {
    ResponseCode.PULL_NOT_FOUND: (Code.MESSAGE_NOT_FOUND, "no new message"),
    ResponseCode.PULL_RETRY_IMMEDIATELY: (
        Code.MESSAGE_NOT_FOUND,
        "no message matches the filter up to the next offset",
    ),
    ResponseCode.PULL_OFFSET_MOVED: (
        Code.ILLEGAL_OFFSET,
        "the queue has no such offset: go on at the next one",
    ),
}


class Pulling:
    """Answers pulls: a status, messages, and the offset to go on at."""

    def __init__(
        self,
        brokers: IBrokers,
        clients: ProxyClients,
        unpacking: Unpacking,
        expressions: Expressions,
        clock: IReactorTime,
        config: ProxyConfig,
    ) -> None:
        self._brokers = brokers
        self._clients = clients
        self._unpacking = unpacking
        self._expressions = expressions
        self._clock = clock
        self._config = config

    def methods(self) -> Methods:
        """Returns the methods by path."""
        return {
            path("PullMessage"): server_stream(PullMessageRequest, PullMessageResponse, self.pull)
        }

    async def pull(self, request: PullMessageRequest, call: ICall) -> None:
        """Sends what a queue has from an offset on, waiting for it where there is none yet."""
        client = self._clients.get(client_id_of(call))
        queue = named_queue(request.message_queue)
        check_broker(self._brokers, queue.broker_name)
        group = client_group(request.group)
        wanted = await self._expressions.wanted(request.filter_expression, call)
        offset = check_offset(request.offset)
        if not 0 < request.batch_size <= MAX_PULLED:
            raise StatusError(
                Code.BAD_REQUEST,
                f"a batch size of {request.batch_size}: ask for 1 to {MAX_PULLED} messages",
            )
        most, wait = self._seconds(request, call)
        command = pull_command(
            group,
            queue,
            offset,
            expression=wanted.text,
            expression_type=wanted.type,
            max_messages=request.batch_size,
            suspend_seconds=wait,
        )
        try:
            answer = await self._brokers.ask(queue.broker_name, command, most, client)
        except RequestTimeout:
            if not wait:
                raise
            # Brokers look at what they hold every few seconds.
            call.send(PullMessageResponse(status=status(*_EMPTY[ResponseCode.PULL_NOT_FOUND])))
            call.send(PullMessageResponse(next_offset=offset))
            return
        await self._send(call, answer, queue, wanted)

    def _seconds(self, request: PullMessageRequest, call: ICall) -> tuple[float, float]:
        """Returns how long the broker gets for its answer, and how long it may hold an empty
        one."""
        config = self._config
        longest = config.grpc_client_consumer_max_long_polling_timeout_millis
        wait = min(max(duration_ms(request.long_polling_timeout), 0), longest) / 1000
        most = seconds_left(call, self._clock, wait + _LATE_SECONDS)
        return most, min(wait, most)

    async def _send(
        self, call: ICall, answer: RemotingCommand, queue: MessageQueue, wanted: WantedMessages
    ) -> None:
        left: deque[_Pulled] = deque()
        found = ok()
        if answer.code in _EMPTY:
            found = status(*_EMPTY[answer.code])
        elif answer.code != ResponseCode.SUCCESS:
            raise StatusError(
                broker_code(answer.code, answer.remark),
                answer.remark or f"the broker answered {answer.code} to a pull of {queue.topic}",
            )
        else:
            left = _pulled(answer.body, queue, wanted)
            if not left:
                found = status(*_EMPTY[ResponseCode.PULL_RETRY_IMMEDIATELY])
        following = answer.header(PullMessageResponseHeader).next_begin_offset
        held = sum([stored_size(stored) for stored, _ in left])
        call.hold(held)
        call.send(PullMessageResponse(status=found))
        while left and not call.is_over:
            await when_ready(call)
            stored, properties = left.popleft()
            size = stored_size(stored)
            if stored.sys_flag & COMPRESSED:
                stored = await self._unpacking.unpacked(stored, call.address)
                call.hold(held + len(stored.body))
            held -= size
            call.hold(held)
            pulled = PullMessageResponse()
            fill_message(pulled.message, stored, properties)
            call.send(pulled)
        call.send(PullMessageResponse(next_offset=following))


#: A message and its properties.
_Pulled = tuple[StoredMessage, dict[str, str]]


def _pulled(body: bytes, queue: MessageQueue, wanted: WantedMessages) -> deque[_Pulled]:
    """Returns those messages of an answer that are wanted."""
    try:
        records = list(decode_records(body))
    except RecordError as error:
        raise BodyError(f"{queue.broker_name} answered with damaged records: {error}") from error
    found: deque[_Pulled] = deque()
    for stored in records:
        properties = parse_properties(stored.properties)
        if wanted.matches(properties.get(TAGS)):
            found.append((stored, properties))
    return found
