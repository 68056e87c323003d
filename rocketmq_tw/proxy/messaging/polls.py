"""Polls of receives at brokers, which hold them to their end, also where the receive is over by
then, but for a broker of this process, where it is withdrawn. What such a poll brings goes to
another receive that waits for the same. Where none does it comes back once none of the polls is
left that are now: each would take it, and it would be a dead letter before any client saw it.
Brokers of ours go by that in groups out of order alone: in order they give it to the next one at
once, and do not count the delivery."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.proxy.brokers import IBrokers
from rocketmq_tw.proxy.clients import ProxyClients
from rocketmq_tw.proxy.grpc.interfaces import ICall
from rocketmq_tw.proxy.messaging.broker_times import BrokerTimes
from rocketmq_tw.proxy.messaging.delivery import Receiver
from rocketmq_tw.proxy.messaging.popped import Poll, PopClient, PoppedMessage
from rocketmq_tw.proxy.messaging.statuses import StatusError
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.pop import PopMessageRequestHeader

#: Receives that are looked at to find one that takes so many messages.
_MOST_LOOKED_AT = 32
#: Polls whose receives have ended before them. Where there are so many, a receive that is cut ends
#: with its poll, and has its place among the calls of its connection until then: clients that
#: begin and cut receives would have brokers hold polls without limit.
MOST_LEFT = 1024
#: Attempts that are remembered since others have their messages.
_MOST_PASSED_ON = 1024

_log = Logger()


class _Source(NamedTuple):
    """What messages are taken of; all polls of it can take those that come back."""

    broker_name: str
    group: str
    topic: str


class _Wanted(NamedTuple):
    """What a receive waits for; all that wait for the same can take each other's messages.

    In a group that receives in order, the broker locks a queue for the attempt whose poll took from
    it, which gets the same messages when it is made again: they are for no other one."""

    source: _Source
    expression_type: str | None
    expression: str | None
    invisible_ms: int
    is_fifo: bool
    attempt_id: str | None

    @property
    def filtered(self) -> _Filtered:
        return _Filtered(self.source, self.expression_type, self.expression)


class _Filtered(NamedTuple):
    """What receives get messages of that differ in how long they hide them, or in their attempt."""

    source: _Source
    expression_type: str | None
    expression: str | None


class _Attempt(NamedTuple):
    """An attempt of a group that receives in order."""

    source: _Source
    id: str


class _Receive:
    """A receive, and what it gets. It does not know its call, which may be over before its poll."""

    def __init__(
        self, receiver: Receiver, wanted: _Wanted, header: PopMessageRequestHeader, poll_ends: float
    ) -> None:
        self.receiver = receiver
        self.wanted = wanted
        self.header = header
        #: When the broker is to hold its poll no more, in seconds of the clock.
        self.poll_ends = poll_ends
        #: None as long as the attempt's former poll is held.
        self.poll: Poll | None = None
        #: Whether it takes messages still.
        self.waits = True
        #: Whether its poll is held though it takes none.
        self.left_poll = False
        #: Whether its client goes on with another attempt, so that this one is not made again.
        self.is_given_up = wanted.attempt_id is None
        #: Client id -> the same attempt, made again, which polls when this one's poll is over.
        self.next_tries: dict[str, _Receive] = {}
        self.messages: Deferred[list[PoppedMessage]] = Deferred()

    @property
    def attempt(self) -> _Attempt | None:
        """None where it may not be made again."""
        wanted = self.wanted
        return None if wanted.attempt_id is None else _Attempt(wanted.source, wanted.attempt_id)


class _LeftPolls:
    """Counts the polls of one source that are held though their receives take nothing, and until
    when."""

    def __init__(self) -> None:
        self.count = 0
        self.ends = 0.0
        #: Client id -> those of attempts that the client may make again.
        self.attempts: dict[str, set[_Receive]] = {}


class Polls:
    """Asks brokers for the messages of receives. `bring_back` has a message come back that was
    popped for a receiver which is gone: in so many ms, or soon."""

    def __init__(
        self,
        clock: IReactorTime,
        brokers: IBrokers,
        popped: PopClient,
        times: BrokerTimes,
        clients: ProxyClients,
        config: ProxyConfig,
        bring_back: Callable[[Receiver, PoppedMessage, int | None], None],
    ) -> None:
        self._clock = clock
        self._brokers = brokers
        self._popped = popped
        self._times = times
        self._clients = clients
        self._config = config
        self._bring_back = bring_back
        #: Those whose calls are not over; the one that waits longest is first.
        self._waiting: dict[_Wanted | _Filtered, dict[_Receive, None]] = {}
        self._left_polls: dict[_Source, _LeftPolls] = {}
        #: The receives of attempts whose polls are not over.
        self._polling: dict[_Attempt, _Receive] = {}
        #: Attempts whose messages others have, the newest last. Brokers would give an attempt that
        #: is made again after all the same messages.
        self._passed_on: dict[_Attempt, None] = {}
        #: Receives that have ended before their polls.
        self._ended = 0

    def pop(
        self, broker_name: str, header: PopMessageRequestHeader, receiver: Receiver, call: ICall
    ) -> Deferred[list[PoppedMessage]]:
        """Fires with what a receive gets, or fails as `Poll.messages` does. It fires with nothing
        when the call is over; what is popped for it after that goes to another receive, or comes
        back."""
        source = _Source(broker_name, header.consumer_group, header.topic)
        if header.attempt_id and _Attempt(source, header.attempt_id) in self._passed_on:
            header.attempt_id = None
        wanted = _Wanted(
            source,
            header.exp_type,
            header.exp,
            header.invisible_time,
            bool(header.order),
            header.attempt_id if header.order else None,
        )
        poll_ends = self._clock.seconds() + header.poll_time / 1000
        receive = _Receive(receiver, wanted, header, poll_ends)
        if call.is_over:
            receive.messages.callback([])
            return receive.messages
        for key in (wanted, wanted.filtered):
            self._waiting.setdefault(key, {})[receive] = None
        self._give_up_attempts(receive)
        call.on_end(lambda: self._call_ended(receive))
        attempt = receive.attempt
        former = None if attempt is None else self._polling.get(attempt)
        if former is None:
            self._poll(receive)
        else:
            self._try_again(former, receive)
        return receive.messages

    def _poll(self, receive: _Receive) -> None:
        header, attempt = receive.header, receive.attempt
        header.poll_time = max(int((receive.poll_ends - self._clock.seconds()) * 1000), 0)
        broker_name = receive.wanted.source.broker_name
        client = receive.receiver.client
        receive.poll = Poll(self._brokers, self._times, broker_name, header, client)
        if attempt is not None:
            self._polling[attempt] = receive
        Deferred.fromCoroutine(receive.poll.messages()).addBoth(self._poll_ended, receive)

    def _try_again(self, former: _Receive, receive: _Receive) -> None:
        """Has an attempt take the place of its client's former try. Where the broker holds that
        one's poll on there is no second one: what either of them takes would void the handles of
        the other's messages, which are the same."""
        client_id = receive.receiver.client_id
        for each in (former, former.next_tries.get(client_id)):
            if each is not None and each.waits and each.receiver.client_id == client_id:
                self._call_ended(each)
        if former.left_poll:
            former.is_given_up = False
            former.next_tries[client_id] = receive
        else:
            self._poll(receive)

    def _give_up_attempts(self, receive: _Receive) -> None:
        """Notes which attempts a client does not make again, since it goes on with another one."""
        left = self._left_polls.get(receive.wanted.source)
        if left is None:
            return
        attempts = left.attempts.get(receive.receiver.client_id, set())
        for each in list(attempts):
            if each.attempt != receive.attempt:
                each.is_given_up = True
                attempts.discard(each)

    def _call_ended(self, receive: _Receive) -> None:
        if receive.waits:
            self._stop_waiting(receive)
            self._leave_poll(receive)
            if self._ended < MOST_LEFT or receive.poll is None:
                self._end_before_poll(receive, [])

    def _poll_ended(self, result: list[PoppedMessage] | Failure, receive: _Receive) -> None:
        has_ended = receive.messages.called
        if has_ended:
            self._ended -= 1
        if receive.left_poll:
            self._forget_poll(receive)
        attempt = receive.attempt
        if attempt is not None and self._polling.get(attempt) is receive:
            del self._polling[attempt]
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
        for next_try in receive.next_tries.values():
            if next_try.waits:
                self._poll(next_try)

    def _pass_on(self, receive: _Receive, messages: list[PoppedMessage]) -> None:
        """Gives what was popped for a receive that is over to the one of the others that waits
        longest and takes so many; has it come back where there is none."""
        wanted = receive.wanted
        other = self._find(wanted.filtered if receive.is_given_up else wanted, len(messages))
        ends_attempt = receive.is_given_up and receive.attempt is not None
        if other is None:
            # Made again the attempt gets the same ones, which stay hidden for that.
            if not any(each.waits for each in receive.next_tries.values()):
                self._bring_all_back(receive, messages)
        elif other.wanted.invisible_ms == wanted.invisible_ms and not ends_attempt:
            self._give(other, messages)
        else:
            if ends_attempt and receive.attempt is not None:
                self._note_passed_on(receive.attempt)
            work = self._hide_and_pass_on(receive, messages, other.wanted.invisible_ms)
            Deferred.fromCoroutine(work).addErrback(_failed, receive)

    def _note_passed_on(self, attempt: _Attempt) -> None:
        self._passed_on[attempt] = None
        if len(self._passed_on) > _MOST_PASSED_ON:
            del self._passed_on[next(iter(self._passed_on))]

    async def _hide_and_pass_on(
        self, receive: _Receive, messages: list[PoppedMessage], invisible_ms: int
    ) -> None:
        """Passes messages on to one of the receives that hide them for so long. The client may have
        made their attempt again at another proxy, where it would get them too."""
        receiver, hidden = receive.receiver, []
        try:
            for message in messages:
                handle = await self._popped.hide(
                    receiver.topic,
                    receiver.group,
                    message.handle,
                    invisible_ms,
                    receiver.client,
                    ends_attempt=receive.is_given_up and receive.attempt is not None,
                )
                hidden.append(attrs.evolve(message, handle=handle))
        except (StatusError, RequestError, RemotingError) as error:
            _log.warn(
                "messages of {topic} are passed on to nobody, and come back: {error}",
                topic=receiver.topic,
                error=error,
            )
            self._bring_all_back(receive, [*hidden, *messages[len(hidden) :]])
            return
        other = self._find(receive.wanted.filtered, len(hidden), invisible_ms)
        if other is None:
            self._bring_all_back(receive, hidden)
        else:
            self._give(other, hidden)

    def _find(
        self, wanted: _Wanted | _Filtered, count: int, invisible_ms: int | None = None
    ) -> _Receive | None:
        """Returns the receive that waits longest, of those that take so many messages, and hide
        them for so long; None where it is not among the first ones."""
        for each in islice(self._waiting.get(wanted, ()), _MOST_LOOKED_AT):
            if invisible_ms not in (None, each.wanted.invisible_ms):
                continue
            if count <= each.header.max_msg_nums and not self._is_gone(each):
                return each
        return None

    def _give(self, receive: _Receive, messages: list[PoppedMessage]) -> None:
        """Ends a receive with messages that another one's poll has brought."""
        self._stop_waiting(receive)
        self._leave_poll(receive)
        self._end_before_poll(receive, messages)

    def _bring_all_back(self, receive: _Receive, messages: list[PoppedMessage]) -> None:
        for message in messages:
            self._bring_back(receive.receiver, message, self._returns_in(receive, message))

    def _returns_in(self, receive: _Receive, message: PoppedMessage) -> int | None:
        """Returns after how many ms a message is to come back, so that no poll takes it that nobody
        waits for; None: soon."""
        if receive.waits and message.stored.reconsume_times:
            # Its client is gone, whose other calls may be open too.
            return self._config.grpc_client_consumer_max_long_polling_timeout_millis
        left = self._left_polls.get(receive.wanted.source)
        if left is None:
            return None
        left_ms = max(0, int((left.ends - self._clock.seconds()) * 1000))
        return left_ms + self._config.invisible_time_millis_when_clear

    def _end_before_poll(self, receive: _Receive, messages: list[PoppedMessage]) -> None:
        """Ends a receive whose poll may go on at its broker."""
        if receive.poll is not None:
            self._ended += 1
        receive.messages.callback(messages)

    def _leave_poll(self, receive: _Receive) -> None:
        """Has the poll be held no more of a receive that takes nothing, or sees to it that it takes
        no message that comes back."""
        if receive.poll is not None and not receive.poll.withdraw():
            receive.left_poll = True
            left = self._left_polls.setdefault(receive.wanted.source, _LeftPolls())
            left.count += 1
            left.ends = max(left.ends, receive.poll_ends)
            if receive.attempt is not None:
                left.attempts.setdefault(receive.receiver.client_id, set()).add(receive)

    def _forget_poll(self, receive: _Receive) -> None:
        source = receive.wanted.source
        left = self._left_polls[source]
        left.count -= 1
        attempts = left.attempts.get(receive.receiver.client_id)
        if attempts is not None:
            attempts.discard(receive)
            if not attempts:
                del left.attempts[receive.receiver.client_id]
        if not left.count:
            del self._left_polls[source]

    def _is_gone(self, receive: _Receive) -> bool:
        """Returns whether nobody would get, or renew, the messages of a receive."""
        receiver = receive.receiver
        return not receive.waits or (receiver.renews and receiver.has_gone(self._clients))

    def _stop_waiting(self, receive: _Receive) -> None:
        receive.waits = False
        for key in (receive.wanted, receive.wanted.filtered):
            waiting = self._waiting.get(key)
            if waiting is not None:
                waiting.pop(receive, None)
                if not waiting:
                    del self._waiting[key]


def _failed(failure: Failure, receive: _Receive) -> None:
    _log.failure(
        "passing on messages of {topic} failed", failure=failure, topic=receive.receiver.topic
    )
