"""Polls of receives at brokers, which hold them to their end, also where the receive is over by
then. What such a poll brings goes to another receive that waits for the same: it would come back
for the next poll of that kind to take it, and be a dead letter before any client saw it."""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rocketmq_tw.proxy.clients import ProxyClients
from rocketmq_tw.proxy.grpc.interfaces import ICall
from rocketmq_tw.proxy.messaging.delivery import Receiver
from rocketmq_tw.proxy.messaging.popped import PopClient, PoppedMessage
from rocketmq_tw.wire.headers.pop import PopMessageRequestHeader

#: Receives that are looked at to find one that takes so many messages.
_MOST_LOOKED_AT = 32


class _Wanted(NamedTuple):
    """What a receive waits for; all that wait for the same can take each other's messages."""

    broker_name: str
    group: str
    topic: str
    expression_type: str | None
    expression: str | None
    is_fifo: bool
    invisible_ms: int


class _Receive:
    """A receive that waits; what `poll` brings is its own."""

    def __init__(self, receiver: Receiver, call: ICall, most: int) -> None:
        self.receiver = receiver
        self.call = call
        self.most = most
        self.poll = _Poll(self)
        self.messages: Deferred[list[PoppedMessage]] = Deferred()


class _Poll:
    """A poll at a broker, and the receive that it is for now."""

    def __init__(self, receive: _Receive) -> None:
        self.receive = receive


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
        receive = _Receive(receiver, call, header.max_msg_nums)
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
            header.invisible_time,
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
        receive.messages.callback(result)

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
