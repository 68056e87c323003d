"""Polls of receives at brokers, which hold them to their end, also where the receive is over by
then. What such a poll brings goes to another receive that waits for the same: it would come back
for the next poll of that kind to take it, and be a dead letter before any client saw it."""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from attrs import evolve
from twisted.internet.defer import Deferred, gatherResults
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.proxy.clients import ProxyClients
from rocketmq_tw.proxy.grpc.interfaces import ICall
from rocketmq_tw.proxy.messaging.delivery import Receiver
from rocketmq_tw.proxy.messaging.popped import PopClient, PoppedMessage
from rocketmq_tw.proxy.messaging.statuses import StatusError
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.pop import PopMessageRequestHeader

#: Receives that are looked at to find one that takes so many messages.
_MOST_LOOKED_AT = 32

_log = Logger()


class _Wanted(NamedTuple):
    """What a receive waits for; all that wait for the same can take each other's messages."""

    broker_name: str
    group: str
    topic: str
    expression_type: str | None
    expression: str | None
    is_fifo: bool


class _Receive:
    """A receive that waits; what `poll` brings is its own."""

    def __init__(self, receiver: Receiver, call: ICall, most: int, invisible_ms: int) -> None:
        self.receiver = receiver
        self.call = call
        self.most = most
        self.invisible_ms = invisible_ms
        self.poll = _Poll(self)
        self.messages: Deferred[list[PoppedMessage]] = Deferred()


class _Poll:
    """A poll at a broker, for how long it hides messages, and the receive that it is for now."""

    def __init__(self, receive: _Receive) -> None:
        self.receive = receive
        self.invisible_ms = receive.invisible_ms


class Polls:
    """Asks brokers for the messages of receives."""

    def __init__(self, popped: PopClient, clients: ProxyClients) -> None:
        self._popped = popped
        self._clients = clients
        #: Those whose calls are not over; the one that waits longest is first.
        self._waiting: dict[_Wanted, dict[_Receive, None]] = {}

    def pop(
        self, broker_name: str, header: PopMessageRequestHeader, receiver: Receiver, call: ICall
    ) -> Deferred[list[PoppedMessage]]:
        """Fires with what a receive gets, or fails as `PopClient.pop` does. Where its call is over
        nothing is popped any more; what was popped before that nobody else waits for is its own
        all the same."""
        receive = _Receive(receiver, call, header.max_msg_nums, header.invisible_time)
        if call.is_over:
            receive.messages.callback([])
            return receive.messages
        wanted = _Wanted(
            broker_name,
            header.consumer_group,
            header.topic,
            header.exp_type,
            header.exp,
            bool(header.order),
        )
        self._waiting.setdefault(wanted, {})[receive] = None
        call.on_end(lambda: self._leave(wanted, receive))
        asked = Deferred.fromCoroutine(self._popped.pop(broker_name, header, receiver.client))
        asked.addBoth(self._come, wanted, receive.poll)
        return receive.messages

    def _come(self, result: list[PoppedMessage] | Failure, wanted: _Wanted, poll: _Poll) -> None:
        receive = poll.receive
        if isinstance(result, Failure):
            self._leave(wanted, receive)
            receive.messages.errback(result)
            return
        if result and self._is_gone(receive):
            receive = self._take_over(wanted, poll, len(result))
        self._leave(wanted, receive)
        if result and poll.invisible_ms != receive.invisible_ms and not self._is_gone(receive):
            fitted = Deferred.fromCoroutine(self._fit(receive, result))
            fitted.addCallbacks(receive.messages.callback, receive.messages.errback)
        else:
            receive.messages.callback(result)

    async def _fit(self, receive: _Receive, messages: list[PoppedMessage]) -> list[PoppedMessage]:
        """Returns the messages that are hidden for as long as a receive wants, which another poll
        hid for another time. Those with which that fails come back when that is over."""
        asked = [Deferred.fromCoroutine(self._hide(receive, message)) for message in messages]
        found: list[PoppedMessage | None] = await gatherResults(asked, consumeErrors=True)
        return [message for message in found if message is not None]

    async def _hide(self, receive: _Receive, message: PoppedMessage) -> PoppedMessage | None:
        receiver = receive.receiver
        try:
            handle = await self._popped.hide(
                receiver.topic,
                receiver.group,
                message.handle,
                receive.invisible_ms,
                receiver.client,
            )
        except (StatusError, RequestError, RemotingError) as error:
            _log.info(
                "a message of {topic} that another receive popped is not given out: {error}",
                topic=receiver.topic,
                error=error,
            )
            return None
        return evolve(message, handle=handle)

    def _take_over(self, wanted: _Wanted, poll: _Poll, number: int) -> _Receive:
        """Returns who gets what a poll brought for a receive that is over: the other one that waits
        longest and takes so many, whose poll is for the first one from now on. That is the first
        one itself where no other waits."""
        gone = poll.receive
        for other in islice(self._waiting.get(wanted, ()), _MOST_LOOKED_AT):
            if number <= other.most and not self._is_gone(other):
                gone.poll, other.poll = other.poll, poll
                gone.poll.receive, poll.receive = gone, other
                return other
        return gone

    def _is_gone(self, receive: _Receive) -> bool:
        """Returns whether nobody would get, or renew, the messages of a receive."""
        receiver = receive.receiver
        return receive.call.is_over or (receiver.renews and receiver.has_gone(self._clients))

    def _leave(self, wanted: _Wanted, receive: _Receive) -> None:
        waiting = self._waiting.get(wanted)
        if waiting is not None:
            waiting.pop(receive, None)
            if not waiting:
                del self._waiting[wanted]
