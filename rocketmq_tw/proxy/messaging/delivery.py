"""Gives popped messages to the client that receives them; what it does not get is acknowledged, is
a dead letter or comes back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rocketmq_tw.message.model import COMPRESSED, StoredMessage
from rocketmq_tw.message.properties import POP_CK, TAGS
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.proxy.brokers import IProxyClient
from rocketmq_tw.proxy.clients import ProxyClients
from rocketmq_tw.proxy.grpc.interfaces import GrpcError, ICall
from rocketmq_tw.proxy.messaging.broker_times import BrokerTimes
from rocketmq_tw.proxy.messaging.expressions import WantedMessages
from rocketmq_tw.proxy.messaging.messages import fill_message, stored_size, timestamp_of
from rocketmq_tw.proxy.messaging.popped import PopClient, PoppedMessage
from rocketmq_tw.proxy.messaging.renewal import Renewal
from rocketmq_tw.proxy.messaging.statuses import StatusError, ok, status
from rocketmq_tw.proxy.messaging.streams import when_ready
from rocketmq_tw.proxy.messaging.unpacking import Unpacking
from rocketmq_tw.proxy.proto.messages import Code, ReceiveMessageResponse
from rocketmq_tw.wire.errors import RequestError

_log = Logger()


class Receiver(NamedTuple):
    """The client that receives, and what; names as brokers have them."""

    client_id: str
    client: IProxyClient | None
    topic: str
    group: str
    wanted: WantedMessages
    #: So often a message is delivered before it is a dead letter.
    max_attempts: int
    #: Whether its messages are hidden until the client is done with them, where there is room.
    renews: bool

    def has_gone(self, clients: ProxyClients) -> bool:
        """Returns whether the client was connected when it began to receive, and is no more."""
        return self.client is not None and clients.get(self.client_id) is None


class Delivery:
    """Answers receives. `now_ms` is the time of day."""

    def __init__(
        self,
        clock: IReactorTime,
        clients: ProxyClients,
        popped: PopClient,
        renewal: Renewal,
        unpacking: Unpacking,
        times: BrokerTimes,
        now_ms: Callable[[], int],
    ) -> None:
        self._clock = clock
        self._clients = clients
        self._popped = popped
        self._renewal = renewal
        self._unpacking = unpacking
        self._times = times
        self._now_ms = now_ms

    async def give(self, call: ICall, receiver: Receiver, messages: list[PoppedMessage]) -> None:
        """Sends the messages that the client wants, as fast as it takes them."""
        if receiver.renews and receiver.has_gone(self._clients):
            # Nobody would see to it that they come back before their time is over.
            for message in messages:
                self.bring_back(receiver, message)
            reason = "the client has gone"
            call.send(ReceiveMessageResponse(status=status(Code.MESSAGE_NOT_FOUND, reason)))
            return
        wanted = [message for message in messages if self._is_for(receiver, message)]
        # They are hidden from now on, however slowly the client takes them.
        answer = _Answer(call, receiver, wanted, self._clock.seconds())
        if not answer.left:
            reason = "no message matches the filter" if messages else "no new message"
            call.send(ReceiveMessageResponse(status=status(Code.MESSAGE_NOT_FOUND, reason)))
            return
        takes = self._renewal.takes
        answer.renews = answer.renews and takes(receiver.client_id, len(answer.left))
        if answer.renews:
            for message in answer.left:
                self._renewal.add(
                    receiver.client_id,
                    receiver.group,
                    receiver.topic,
                    message.handle,
                    message.stored.reconsume_times,
                    self._times.left_ms(message.handle),
                )
        call.on_cut(lambda: self._cut(answer))
        try:
            call.hold(answer.held)
        except GrpcError as error:
            self._refuse(answer, error)
            return
        call.send(ReceiveMessageResponse(status=ok()))
        await self._send(answer)

    def bring_back(
        self, receiver: Receiver, message: PoppedMessage, returns_in: int | None = None
    ) -> None:
        """Has a message come back that was popped just now for a client that was gone by then: in
        so many ms, or soon."""
        if self._is_for(receiver, message):
            self._renewal.bring_back_unrenewed(
                receiver.client_id,
                receiver.group,
                receiver.topic,
                message.handle,
                message.handle.info.invisible_time,
                returns_in,
            )

    def end(self, call: ICall) -> None:
        """Sends what ends each answer: the time of the delivery."""
        now = timestamp_of(self._now_ms())
        call.send(ReceiveMessageResponse(delivery_timestamp=now))

    async def _send(self, answer: _Answer) -> None:
        call, receiver = answer.call, answer.receiver
        while answer.left:
            await when_ready(call)
            if call.is_over:
                return
            stored = answer.left[0].stored
            if stored.sys_flag & COMPRESSED:
                stored = await self._unpacking.unpacked(stored, call.address)
                if call.is_over:
                    return
                try:
                    call.hold(answer.held + len(stored.body))
                except GrpcError as error:
                    self._refuse(answer, error)
                    return
            message = answer.take()
            place = receiver.group, receiver.topic, message.handle
            if answer.renews:
                is_hidden = self._renewal.deliver(*place)
            else:
                is_hidden = answer.left_ms(message, self._clock.seconds()) > 0
            if not is_hidden:
                # Others may have it by now.
                continue
            shown = _shown(receiver, message, stored)
            if shown is not None:
                call.send(shown)
            elif answer.renews:
                self._renewal.bring_back(*place)

    def _refuse(self, answer: _Answer, error: GrpcError) -> None:
        """Ends a call for whose messages there is no room. That counts as their delivery: one for
        which there never is any becomes a dead letter."""
        answer.is_refused = True
        if answer.renews:
            for handle in answer.handles:
                self._renewal.deliver(answer.receiver.group, answer.receiver.topic, handle)
        answer.call.finish(error)

    def _cut(self, answer: _Answer) -> None:
        """Has the messages of an answer come back of which the client has not got all: clients
        throw such an answer away. Those that were sent and are not renewed come back by
        themselves."""
        receiver = answer.receiver
        if answer.renews:
            for handle in answer.handles:
                self._renewal.bring_back(receiver.group, receiver.topic, handle)
        else:
            for message in answer.left:
                self._renewal.bring_back_unrenewed(
                    receiver.client_id,
                    receiver.group,
                    receiver.topic,
                    message.handle,
                    answer.left_ms(message, self._clock.seconds()),
                    counts=answer.is_refused,
                )
        answer.left.clear()

    def _is_for(self, receiver: Receiver, message: PoppedMessage) -> bool:
        """Returns whether a message is for the client; another one is not for its group at all, or
        was delivered often enough."""
        topic, group, handle = receiver.topic, receiver.group, message.handle
        if not receiver.wanted.matches(message.properties.get(TAGS)):
            work = self._popped.acknowledge(topic, group, handle, receiver.client)
            _unwatched(work, f"passing over a message of {topic}")
            return False
        if message.stored.reconsume_times >= receiver.max_attempts:
            work = self._popped.bury(topic, group, handle, message.message_id, receiver.client)
            _unwatched(work, f"making a dead letter of a message of {topic}")
            return False
        return True


class _Answer:
    """An answer that is being sent: `left` are the messages that were not sent yet, `handles` are
    of all."""

    def __init__(
        self, call: ICall, receiver: Receiver, messages: list[PoppedMessage], popped_at: float
    ) -> None:
        self.call = call
        self._popped_at = popped_at
        self.receiver = receiver
        #: Whether there was no room for it.
        self.is_refused = False
        #: Not for a caller that is gone, whose messages come back, nor beyond the limits.
        self.renews = receiver.renews and not call.is_over
        self.left = deque(messages)
        self.handles = [message.handle for message in messages]
        #: Bytes of those that are left.
        self.held = sum([stored_size(message.stored) for message in messages])

    def left_ms(self, message: PoppedMessage, now: float) -> int:
        """Returns how long a message is hidden still, `now` in seconds of the clock."""
        return message.handle.info.invisible_time - int((now - self._popped_at) * 1000)

    def take(self) -> PoppedMessage:
        """Returns the next message to send, and has it counted no more."""
        message = self.left.popleft()
        self.held -= stored_size(message.stored)
        self.call.hold(self.held)
        return message


def _shown(
    receiver: Receiver, message: PoppedMessage, stored: StoredMessage
) -> ReceiveMessageResponse | None:
    """Returns what the client gets, with the body of `stored`; None where the message cannot be
    shown: it comes back until it is a dead letter, and those behind it are received."""
    properties = {**message.properties, POP_CK: str(message.handle)}
    shown = ReceiveMessageResponse()
    try:
        fill_message(shown.message, stored, properties, receiver.topic)
    except ValueError:
        _log.failure(
            "message {handle} of {topic} cannot be shown to clients",
            handle=message.handle,
            topic=receiver.topic,
        )
        return None
    return shown


def _unwatched(work: Coroutine[Any, Any, object], purpose: str) -> None:
    async def done() -> None:
        try:
            await work
        except (StatusError, RequestError, RemotingError) as error:
            _log.warn("{purpose} failed: {error}", purpose=purpose, error=error)
        except Exception:
            _log.failure("{purpose} failed", purpose=purpose)

    Deferred.fromCoroutine(done())
