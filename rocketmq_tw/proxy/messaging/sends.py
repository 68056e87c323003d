"""SendMessage: messages of one topic go to one of its queues.

They go to another broker where one cannot be reached or refuses; those of a message group stay with
its queue.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from math import inf

from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.client.commands import RETRY_ELSEWHERE
from rocketmq_tw.client.errors import BrokerError
from rocketmq_tw.client.message import SendResult, SendStatus
from rocketmq_tw.message.ids import parse_offset_message_id
from rocketmq_tw.net.errors import ConnectError, ConnectionLost, RemotingError, RequestTimeout
from rocketmq_tw.proxy.broker_lines import BrokerLines
from rocketmq_tw.proxy.brokers import IBrokers, Outgoing
from rocketmq_tw.proxy.grpc.interfaces import ICall, Methods
from rocketmq_tw.proxy.messaging.checks import TopicTypes, no_route
from rocketmq_tw.proxy.messaging.methods import path, seconds_left, unary
from rocketmq_tw.proxy.messaging.outgoing import OutgoingMessages
from rocketmq_tw.proxy.messaging.queues import WriteQueues
from rocketmq_tw.proxy.messaging.statuses import StatusError, ok, status
from rocketmq_tw.proxy.messaging.transaction_ids import TransactionId
from rocketmq_tw.proxy.proto.messages import (
    Code,
    SendMessageRequest,
    SendMessageResponse,
)
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.permissions import WRITE

#: Seconds that a send may take, all its tries together, where the client does not say.
SEND_SECONDS = 5.0
#: How much of that brokers may take to say what the topic takes.
_CHECK_SHARE = 0.5
#: Brokers that one request tries.
_TRIES = 3
#: Seconds that a broker has for its answer, at least, before other sends avoid it.
_FAIR_SECONDS = 1.0
#: Seconds for which a send waits for a master: most elections take less, and clients that are
#: refused try again at once. It asks name servers so often; what proxies remember of a route may be
#: half a minute old.
MASTER_SECONDS = 2.0
_LOOK_SECONDS = 0.25
#: Seconds between two questions of that kind after refusals.
_BETWEEN_LOOKS = 1.0

# Looked up once: each look into an enumeration costs, and this is for each send.
_STORED = SendStatus.SEND_OK
#: What is stored and not as safe as it should be; the client sends it again.
_UNSAFE = {
    SendStatus.FLUSH_DISK_TIMEOUT: (
        Code.MASTER_PERSISTENCE_TIMEOUT,
        "stored, but the broker's disk did not take it in time",
    ),
    SendStatus.FLUSH_SLAVE_TIMEOUT: (
        Code.SLAVE_PERSISTENCE_TIMEOUT,
        "stored, but not on enough replicas in time",
    ),
    SendStatus.SLAVE_NOT_AVAILABLE: (
        Code.HA_NOT_AVAILABLE,
        "stored, but too few replicas keep up with the broker",
    ),
}

_log = Logger()


class Sends:
    """Answers SendMessage."""

    def __init__(
        self,
        clock: IReactorTime,
        brokers: IBrokers,
        types: TopicTypes,
        outgoing: OutgoingMessages,
    ) -> None:
        self._clock = clock
        self._brokers = brokers
        self._types = types
        self._outgoing = outgoing
        self._queues = WriteQueues(clock)
        self._said = BrokerLines(clock)
        #: When a route was asked for after a refusal.
        self._looked_at = -inf

    def methods(self) -> Methods:
        limits = self._outgoing.limits
        return {
            path("SendMessage"): unary(SendMessageRequest, SendMessageResponse, self._send, limits)
        }

    def _send(self, request: SendMessageRequest, call: ICall) -> Awaitable[SendMessageResponse]:
        # Most messages need nothing that has to be waited for, and are taken by the first broker.
        outgoing = self._outgoing.prepare(request.messages, call.address)
        if outgoing is None:
            return self._send_packed(request, call)
        topic = outgoing.prepared.topic
        queues = self._known_queues(topic)
        if not queues or not self._types.check_known(topic, outgoing.types):
            return self._send_when_known(outgoing, queues, call)
        seconds = seconds_left(call, self._clock, SEND_SECONDS)
        deadline = self._clock.seconds() + seconds
        queue = self._choose(outgoing, queues, None)
        sent = self._brokers.send(queue, outgoing, seconds)
        return sent.addCallbacks(
            _response_to,
            self._send_again,
            callbackArgs=(outgoing,),
            errbackArgs=(outgoing, queues, queue, call, deadline),
        )

    async def _send_packed(self, request: SendMessageRequest, call: ICall) -> SendMessageResponse:
        outgoing = await self._outgoing.unpack(request.messages, call.address)
        queues = self._known_queues(outgoing.prepared.topic)
        return await self._send_when_known(outgoing, queues, call)

    def _known_queues(self, topic: str) -> Sequence[MessageQueue]:
        """Returns the queues to send to, without any where the route is not in memory."""
        route = self._brokers.known_route(topic)
        return () if route is None else self._queues.of(topic, route)

    async def _send_when_known(
        self, outgoing: Outgoing, queues: Sequence[MessageQueue], call: ICall
    ) -> SendMessageResponse:
        """Sends once it is known where to, and what the topic takes."""
        topic = outgoing.prepared.topic
        if not queues:
            queues = await self._writable(topic, call)
        seconds = seconds_left(call, self._clock, SEND_SECONDS)
        deadline = self._clock.seconds() + seconds
        await self._types.check(topic, outgoing.types, seconds * _CHECK_SHARE)
        queue = self._choose(outgoing, queues, None)
        sent = self._brokers.send(queue, outgoing, deadline - self._clock.seconds())
        return _response_to(
            await self._deliver(outgoing, queues, queue, sent, call, deadline), outgoing
        )

    def _send_again(
        self,
        failure: Failure,
        outgoing: Outgoing,
        queues: Sequence[MessageQueue],
        queue: MessageQueue,
        call: ICall,
        deadline: float,
    ) -> Deferred[SendMessageResponse]:
        """Tries other queues where the first try, at `queue`, ended in a failure."""
        delivery = self._deliver(outgoing, queues, queue, fail(failure), call, deadline)
        return Deferred.fromCoroutine(delivery).addCallback(_response_to, outgoing)

    async def _writable(
        self, topic: str, call: ICall, *, anew: bool = False
    ) -> Sequence[MessageQueue]:
        """Returns the queues to send to; waits a little where their brokers have no master."""
        until = self._clock.seconds() + seconds_left(call, self._clock, MASTER_SECONDS)
        while True:
            routes = self._brokers.refresh_route if anew else self._brokers.route
            route = await routes(topic)
            if route is None:
                raise no_route(self._brokers, topic)
            queues = self._queues.of(topic, route)
            if queues:
                return queues
            may_wait = any(data.perm & WRITE for data in route.queue_datas)
            if not may_wait and not anew and self._may_look():
                # Brokers take messages again from one moment to the next: a disk has room.
                anew = True
                continue
            late = self._clock.seconds() + _LOOK_SECONDS >= until
            if call.is_over or not may_wait or (anew and late):
                raise StatusError(Code.FORBIDDEN, f"no writable queue: {_why(topic, may_wait)}")
            if anew:
                await deferLater(self._clock, _LOOK_SECONDS)
            anew = True

    async def _deliver(
        self,
        outgoing: Outgoing,
        queues: Sequence[MessageQueue],
        queue: MessageQueue,
        sent: Deferred[SendResult],
        call: ICall,
        deadline: float,
    ) -> SendResult:
        """Returns where the messages went, which are `sent` to `queue` at first; raises what the
        last try failed with."""
        for tries_left in range(_TRIES - 1, -1, -1):
            try:
                return await sent
            except (RemotingError, BrokerError) as error:
                failed = queue.broker_name
                if isinstance(error, RemotingError) and _is_to_avoid(error):
                    self._queues.avoid(failed)
                if not tries_left or self._clock.seconds() >= deadline or call.is_over:
                    raise
                if isinstance(error, RemotingError):
                    if not _may_repeat(error, outgoing):
                        raise
                    queues = await self._writable(outgoing.prepared.topic, call, anew=True)
                    if self._clock.seconds() >= deadline:
                        raise
                elif outgoing.group or not _may_help(error, queues, failed):
                    self._look_anew(outgoing.prepared.topic)
                    raise
                if self._said.is_due(failed):
                    _log.info(
                        "a message to {topic} is sent again, as {broker} did not take it: {error}",
                        topic=outgoing.prepared.topic,
                        broker=failed,
                        error=error,
                    )
            queue = self._choose(outgoing, queues, failed)
            sent = self._brokers.send(queue, outgoing, deadline - self._clock.seconds())
        raise AssertionError("the last try returns or raises")

    def _look_anew(self, topic: str) -> None:
        """Has the route be asked for, since who refused may be the master no more; now and then
        only, as it may be busy."""
        if self._may_look():
            self._brokers.refresh_route(topic).addErrback(lambda _: None)

    def _may_look(self) -> bool:
        """Returns whether name servers may be asked again after a refusal, and notes that they
        are."""
        now = self._clock.seconds()
        if now - self._looked_at < _BETWEEN_LOOKS:
            return False
        self._looked_at = now
        return True

    def _choose(
        self, outgoing: Outgoing, queues: Sequence[MessageQueue], failed: str | None
    ) -> MessageQueue:
        if outgoing.group:
            return self._queues.of_group(queues, outgoing.group)
        return self._queues.next(queues, failed)


def _why(topic: str, may_be_written: bool) -> str:
    """Returns why no queue of a topic can be sent to."""
    if may_be_written:
        return f"no master takes messages of {topic}"
    return (
        f"the brokers of {topic} give no permission to write (perm of the topic, brokerPermission),"
        " or have no room"
    )


def _with_place(outgoing: Outgoing, result: SendResult) -> SendResult:
    """Returns the result with the place of the half message in its transaction's id."""
    prepared = outgoing.prepared
    try:
        place = parse_offset_message_id(result.offset_message_id)
    except ValueError as error:
        _log.error(
            "where a half message of {topic} is stored cannot be read from its broker's answer:"
            " {error}",
            topic=prepared.topic,
            error=error,
        )
        return result
    told = TransactionId(
        result.transaction_id or prepared.message_id,
        result.queue.broker_name,
        result.queue_offset,
        place.offset,
    )
    return result._replace(transaction_id=str(told))


def _is_to_avoid(error: RemotingError) -> bool:
    """Returns whether a broker failed, and not only its client's patience."""
    return not isinstance(error, RequestTimeout) or error.timeout >= _FAIR_SECONDS


def _may_repeat(error: RemotingError, outgoing: Outgoing) -> bool:
    """Returns whether messages may be sent again where they may have been stored: not those of a
    group, since a second copy would be out of order, and no half message, since each copy would be
    asked about and committed."""
    if isinstance(error, ConnectError):
        return True
    return isinstance(error, ConnectionLost) and not (outgoing.group or outgoing.is_half)


def _may_help(error: BrokerError, queues: Sequence[MessageQueue], failed: str) -> bool:
    """Returns whether another broker may take what one refused."""
    return error.code in RETRY_ELSEWHERE and any(each.broker_name != failed for each in queues)


def _response_to(result: SendResult, outgoing: Outgoing) -> SendMessageResponse:
    """Returns what became of all messages, with an entry for each, in their order."""
    if outgoing.is_half:
        result = _with_place(outgoing, result)
    is_safe = result.status is _STORED
    found = ok() if is_safe else status(*_UNSAFE[result.status])
    response = SendMessageResponse()
    # Its parts are filled in their place: those that are made by themselves are copied.
    response.status.CopyFrom(found)
    for number, message_id in enumerate(outgoing.ids):
        entry = response.entries.add()
        entry.status.CopyFrom(found)
        entry.message_id = message_id
        if is_safe:
            entry.offset = result.queue_offset + number
            entry.recall_handle = result.recall_handle or ""
            if not outgoing.prepared.batch:
                entry.transaction_id = result.transaction_id or ""
    return response
