"""Polls of receives at brokers, which hold them to their end, also where the receive is over by
then. What such a poll brings goes to another receive that waits for the same: it would come back
for the next poll of that kind to take it, and be a dead letter before any client saw it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from twisted.internet.defer import Deferred
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
#: Polls whose receives have ended before them. Where there are so many, a receive that is cut ends
#: with its poll, and has its place among the calls of its connection until then: clients that
#: begin and cut receives would have brokers hold polls without limit.
MOST_LEFT = 1024

_log = Logger()


class _Wanted(NamedTuple):
    """What a receive waits for; all that wait for the same can take each other's messages."""

    broker_name: str
    group: str
    topic: str
    expression_type: str | None
    expression: str | None
    invisible_ms: int


class _Receive:
    """A receive, and what it gets. It does not know its call, which may be over before its poll.

    `wanted` is None in a group that receives in order: the broker locks a queue for the attempt
    whose poll took from it, which gets the same messages when it is made again.
    """

    def __init__(self, receiver: Receiver, wanted: _Wanted | None, most: int) -> None:
        self.receiver = receiver
        self.wanted = wanted
        self.most = most
        #: Whether it takes messages still.
        self.waits = True
        self.messages: Deferred[list[PoppedMessage]] = Deferred()


class Polls:
    """Asks brokers for the messages of receives. `bring_back` has messages come back that were
    popped for a receiver which is gone."""

    def __init__(
        self,
        popped: PopClient,
        clients: ProxyClients,
        bring_back: Callable[[Receiver, list[PoppedMessage]], None],
    ) -> None:
        self._popped = popped
        self._clients = clients
        self._bring_back = bring_back
        #: Those whose calls are not over; the one that waits longest is first.
        self._waiting: dict[_Wanted, dict[_Receive, None]] = {}
        #: Polls whose receives have ended before them.
        self._left = 0

    def pop(
        self, broker_name: str, header: PopMessageRequestHeader, receiver: Receiver, call: ICall
    ) -> Deferred[list[PoppedMessage]]:
        """Fires with what a receive gets, or fails as `PopClient.pop` does. It fires with nothing
        when the call is over; what is popped for it after that goes to another receive, or comes
        back."""
        wanted = None
        if not header.order:
            wanted = _Wanted(
                broker_name,
                header.consumer_group,
                header.topic,
                header.exp_type,
                header.exp,
                header.invisible_time,
            )
        receive = _Receive(receiver, wanted, header.max_msg_nums)
        if call.is_over:
            receive.messages.callback([])
            return receive.messages
        if wanted is not None:
            self._waiting.setdefault(wanted, {})[receive] = None
        call.on_end(lambda: self._call_ended(receive))
        asked = Deferred.fromCoroutine(self._popped.pop(broker_name, header, receiver.client))
        asked.addBoth(self._poll_ended, receive)
        return receive.messages

    def _call_ended(self, receive: _Receive) -> None:
        if receive.waits:
            self._stop_waiting(receive)
            if self._left < MOST_LEFT:
                self._end_before_poll(receive, [])

    def _poll_ended(self, result: list[PoppedMessage] | Failure, receive: _Receive) -> None:
        is_left = receive.messages.called
        if is_left:
            self._left -= 1
        if isinstance(result, list) and result and self._is_gone(receive):
            self._pass_on(receive, result)
            result = []
        if not is_left:
            self._stop_waiting(receive)
            receive.messages.callback(result)
        elif isinstance(result, Failure) and not result.check(
            StatusError, RequestError, RemotingError
        ):
            _log.failure("a poll for {topic} failed", failure=result, topic=receive.receiver.topic)

    def _pass_on(self, receive: _Receive, messages: list[PoppedMessage]) -> None:
        """Gives what was popped for a receive that is over to the one of the others that waits
        longest and takes so many; has it come back where there is none."""
        waiting = () if receive.wanted is None else self._waiting.get(receive.wanted, ())
        for other in islice(waiting, _MOST_LOOKED_AT):
            if len(messages) <= other.most and not self._is_gone(other):
                self._stop_waiting(other)
                self._end_before_poll(other, messages)
                return
        self._bring_back(receive.receiver, messages)

    def _end_before_poll(self, receive: _Receive, messages: list[PoppedMessage]) -> None:
        """Ends a receive whose poll goes on at its broker."""
        self._left += 1
        receive.messages.callback(messages)

    def _is_gone(self, receive: _Receive) -> bool:
        """Returns whether nobody would get, or renew, the messages of a receive."""
        receiver = receive.receiver
        return not receive.waits or (receiver.renews and receiver.has_gone(self._clients))

    def _stop_waiting(self, receive: _Receive) -> None:
        receive.waits = False
        wanted = receive.wanted
        if wanted is None:
            return
        waiting = self._waiting.get(wanted)
        if waiting is not None:
            waiting.pop(receive, None)
            if not waiting:
                del self._waiting[wanted]
