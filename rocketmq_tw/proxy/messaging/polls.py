"""Polls of receives at brokers, which hold them to their end, also where the receive is over by
then, but for a broker of this process, where it is withdrawn. What such a poll brings goes to
another receive that waits for the same. Where none does it comes back once no such poll is left:
each would take it, and it would be a dead letter before any client saw it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.proxy.brokers import IBrokers
from rocketmq_tw.proxy.clients import ProxyClients
from rocketmq_tw.proxy.grpc.interfaces import ICall
from rocketmq_tw.proxy.messaging.delivery import Receiver
from rocketmq_tw.proxy.messaging.popped import Poll, PoppedMessage
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


class _Source(NamedTuple):
    """What messages are taken of; all polls of it can take those that come back."""

    broker_name: str
    group: str
    topic: str


class _Wanted(NamedTuple):
    """What a receive waits for; all that wait for the same can take each other's messages."""

    source: _Source
    expression_type: str | None
    expression: str | None
    invisible_ms: int
    is_fifo: bool


class _Receive:
    """A receive, and what it gets. It does not know its call, which may be over before its poll.

    `wanted` is None for an attempt of a group that receives in order: the broker locks a queue for
    the one whose poll took from it, which gets the same messages when it is made again.
    """

    def __init__(
        self, receiver: Receiver, source: _Source, wanted: _Wanted | None, most: int, poll: Poll
    ) -> None:
        self.receiver = receiver
        self.source = source
        self.wanted = wanted
        self.most = most
        self.poll = poll
        #: When the broker holds its poll no more, in seconds of the clock.
        self.poll_ends = 0.0
        #: Whether it takes messages still.
        self.waits = True
        #: Whether its poll is held though it takes none.
        self.left_poll = False
        self.messages: Deferred[list[PoppedMessage]] = Deferred()


class _LeftPolls:
    """How many polls of one source are held though their receives take nothing, and until when."""

    def __init__(self) -> None:
        self.count = 0
        self.ends = 0.0


class Polls:
    """Asks brokers for the messages of receives. `bring_back` has a message come back that was
    popped for a receiver which is gone: in so many ms, or soon."""

    def __init__(
        self,
        clock: IReactorTime,
        brokers: IBrokers,
        clients: ProxyClients,
        config: ProxyConfig,
        bring_back: Callable[[Receiver, PoppedMessage, int | None], None],
    ) -> None:
        self._clock = clock
        self._brokers = brokers
        self._clients = clients
        self._config = config
        self._bring_back = bring_back
        #: Those whose calls are not over; the one that waits longest is first.
        self._waiting: dict[_Wanted, dict[_Receive, None]] = {}
        self._left_polls: dict[_Source, _LeftPolls] = {}
        #: Receives that have ended before their polls.
        self._ended = 0

    def pop(
        self, broker_name: str, header: PopMessageRequestHeader, receiver: Receiver, call: ICall
    ) -> Deferred[list[PoppedMessage]]:
        """Fires with what a receive gets, or fails as `Poll.messages` does. It fires with nothing
        when the call is over; what is popped for it after that goes to another receive, or comes
        back."""
        source = _Source(broker_name, header.consumer_group, header.topic)
        wanted = None
        if not header.order or header.attempt_id is None:
            wanted = _Wanted(
                source, header.exp_type, header.exp, header.invisible_time, bool(header.order)
            )
        poll = Poll(self._brokers, broker_name, header, receiver.client)
        receive = _Receive(receiver, source, wanted, header.max_msg_nums, poll)
        if call.is_over:
            receive.messages.callback([])
            return receive.messages
        receive.poll_ends = self._clock.seconds() + poll.seconds
        if wanted is not None:
            self._waiting.setdefault(wanted, {})[receive] = None
        call.on_end(lambda: self._call_ended(receive))
        Deferred.fromCoroutine(poll.messages()).addBoth(self._poll_ended, receive)
        return receive.messages

    def _call_ended(self, receive: _Receive) -> None:
        if receive.waits:
            self._stop_waiting(receive)
            self._leave_poll(receive)
            if self._ended < MOST_LEFT:
                self._end_before_poll(receive, [])

    def _poll_ended(self, result: list[PoppedMessage] | Failure, receive: _Receive) -> None:
        has_ended = receive.messages.called
        if has_ended:
            self._ended -= 1
        if receive.left_poll:
            self._forget_poll(receive)
        if isinstance(result, list) and result and self._is_gone(receive):
            self._pass_on(receive, result)
            result = []
        if not has_ended:
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
                self._leave_poll(other)
                self._end_before_poll(other, messages)
                return
        for message in messages:
            self._bring_back(receive.receiver, message, self._returns_in(receive, message))

    def _returns_in(self, receive: _Receive, message: PoppedMessage) -> int | None:
        """Returns after how many ms a message is to come back, so that no poll takes it that nobody
        waits for; None: soon."""
        if receive.waits and message.stored.reconsume_times:
            # Its client is gone, whose other calls may be open too.
            return self._config.grpc_client_consumer_max_long_polling_timeout_millis
        left = self._left_polls.get(receive.source)
        if left is None:
            return None
        left_ms = max(0, int((left.ends - self._clock.seconds()) * 1000))
        return left_ms + self._config.invisible_time_millis_when_clear

    def _end_before_poll(self, receive: _Receive, messages: list[PoppedMessage]) -> None:
        """Ends a receive whose poll may go on at its broker."""
        self._ended += 1
        receive.messages.callback(messages)

    def _leave_poll(self, receive: _Receive) -> None:
        """Has the poll be held no more of a receive that takes nothing, or sees to it that it takes
        no message that comes back."""
        if not receive.poll.withdraw():
            receive.left_poll = True
            left = self._left_polls.setdefault(receive.source, _LeftPolls())
            left.count += 1
            left.ends = max(left.ends, receive.poll_ends)

    def _forget_poll(self, receive: _Receive) -> None:
        left = self._left_polls[receive.source]
        left.count -= 1
        if not left.count:
            del self._left_polls[receive.source]

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
