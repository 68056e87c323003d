"""Renewal: messages stay hidden from others while the client that received them is at work on them.

A receive with `auto_renew` hides its messages for a short time; shortly before that ends, the proxy
asks the broker for more. The client keeps the receipt handle that came with the message: the one
that brokers accept now is found here.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.message.extra_info import ExtraInfo
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.proxy.brokers import IProxyClient
from rocketmq_tw.proxy.clients import ProxyClients
from rocketmq_tw.proxy.messaging.backoff import retry_delay_ms
from rocketmq_tw.proxy.messaging.broker_turns import BrokerTurns
from rocketmq_tw.proxy.messaging.left_messages import LeftMessages
from rocketmq_tw.proxy.messaging.popped import PopClient
from rocketmq_tw.proxy.messaging.receipt_handles import ReceiptHandle
from rocketmq_tw.proxy.messaging.statuses import StatusError
from rocketmq_tw.proxy.metadata import Metadata
from rocketmq_tw.proxy.proto.messaging_pb2 import Code
from rocketmq_tw.runtime.alarm import Alarm
from rocketmq_tw.runtime.lazy_heap import LazyHeap
from rocketmq_tw.runtime.waiters import Waiters
from rocketmq_tw.wire.errors import RequestError

_log = Logger()

_MINUTE = 60_000
#: How much longer each renewal hides a message, in ms; the last one stands for all after it.
STEPS = tuple(minutes * _MINUTE for minutes in (1, 3, 5, 10, 30, 60))
#: Messages that are renewed, some 1 KiB each, and those of one client among them.
MAX_RENEWED = 200_000
MAX_OF_CLIENT = 20_000
#: Requests of renewals to one broker at a time.
_MOST_UNDER_WAY = 128
#: Seconds that a stop may take to have messages come back.
STOP_SECONDS = 10.0
#: Messages that one turn of the reactor looks at.
_MOST_IN_TURN = 500


class _Place(NamedTuple):
    """Where a message is; a group has one delivery of it at a time."""

    group: str
    topic: str
    broker_name: str
    kind: str
    queue_id: int
    offset: int


def _place(group: str, topic: str, handle: ReceiptHandle) -> _Place:
    info = handle.info
    return _Place(group, topic, info.broker_name, info.kind, info.queue_id, info.offset)


class RenewedMessage:
    """A message that is kept hidden. `handle` is what brokers accept for it now."""

    __slots__ = (
        "_waiting",
        "claims",
        "client_id",
        "due",
        "failures",
        "handle",
        "handle_ends",
        "hidden_until",
        "is_busy",
        "is_left",
        "is_queued",
        "place",
        "popped",
        "received_at",
        "renewals",
        "retries",
    )

    def __init__(
        self, place: _Place, handle: ReceiptHandle, client_id: str, retries: int, now: int
    ) -> None:
        self.place = place
        self.handle = handle
        self.client_id = client_id
        #: How often the message was delivered before.
        self.retries = retries
        #: What the client's handle says of the pop.
        self.popped = handle.info
        #: In ms of the clock: when it was received, and when it is renewed next.
        self.received_at = self.due = now
        #: In ms of the clock: when the client's handle is over, and until when it is hidden.
        self.handle_ends = self.hidden_until = now + handle.info.invisible_time
        self.renewals = 0
        self.failures = 0
        #: Requests of the client about the message that are under way.
        self.claims = 0
        #: Whether its client is gone, so that it comes back unless a claim settles it.
        self.is_left = False
        self.is_busy = False
        self.is_queued = False
        self._waiting: Waiters[None] | None = None

    def is_of(self, handle: ReceiptHandle) -> bool:
        """Returns whether a client has this handle, or had it, for this delivery of the message."""
        return self.popped.pop_time == handle.info.pop_time

    def when_idle(self) -> Deferred[None]:
        """Fires once the broker has answered what it was asked about the message."""
        if not self.is_busy:
            return succeed(None)
        if self._waiting is None:
            self._waiting = Waiters()
        return self._waiting.wait()

    def set_idle(self) -> None:
        """Notes that nothing is asked about the message any more."""
        self.is_busy = False
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.fire(None)


class Renewal:
    """Keeps the messages hidden that clients have received with `auto_renew`, until they are
    acknowledged, `renewMaxTimeMillis` are over or the client is gone: then they come back soon."""

    def __init__(
        self,
        clock: IReactorTime,
        popped: PopClient,
        clients: ProxyClients,
        metadata: Metadata,
        config: ProxyConfig,
    ) -> None:
        self._clock = clock
        self._popped = popped
        self._clients = clients
        self._metadata = metadata
        self._config = config
        self._messages: dict[_Place, RenewedMessage] = {}
        self._of_client: dict[str, dict[_Place, RenewedMessage]] = {}
        self._of_handle: dict[ExtraInfo, RenewedMessage] = {}
        self._due = LazyHeap[RenewedMessage](self._is_renewed)
        #: Those that nobody works on any more, though their handles are not over.
        self._left = LeftMessages[RenewedMessage]()
        #: How many of them brokers are to be asked about: they come back.
        self._released = 0
        self._turns = BrokerTurns[Callable[[], None]](_MOST_UNDER_WAY)
        self._alarm = Alarm(clock, self._go_on)
        self._idle = Waiters[None]()
        self._is_stopped = False
        #: Brokers that did not answer since the stop began: they are not asked again.
        self._out_of_reach: set[str] = set()
        clients.gone.add(self._client_gone)

    def __len__(self) -> int:
        return len(self._messages) + self._released

    def room(self, client_id: str) -> int:
        """Returns how many messages more of a client can be renewed."""
        of_client = len(self._of_client.get(client_id, ()))
        room = MAX_RENEWED - len(self) - len(self._left)
        return max(0, min(MAX_OF_CLIENT - of_client, room))

    def add(
        self, client_id: str, group: str, topic: str, handle: ReceiptHandle, retries: int
    ) -> None:
        """Keeps a message hidden from now on; `retries` is how often it was delivered before."""
        if self._is_stopped:
            return
        place = _place(group, topic, handle)
        former = self._messages.get(place)
        if former is not None:
            self._forget(former)
        message = RenewedMessage(place, handle, client_id, retries, self._now())
        self._messages[place] = message
        self._of_client.setdefault(client_id, {})[place] = message
        self._of_handle[message.popped] = message
        self._queue(message, handle.info.invisible_time)

    async def claim(self, group: str, topic: str, handle: ReceiptHandle) -> RenewedMessage | None:
        """Returns the message that a client's handle stands for, whose renewals pause until it is
        settled or given back; None where it is not renewed: the client's handle counts then, unless
        it `was_left`. Raises `StatusError` (INVALID_RECEIPT_HANDLE) where it is of another group or
        topic."""
        message = self._find(group, topic, handle)
        if message is None:
            message = self._find_left(group, topic, handle)
        if message is None:
            self._check_received(group, topic, handle)
            return None
        message.claims += 1
        # Its handle changes with the answer.
        while message.is_busy:
            await message.when_idle()
        if message.hidden_until <= self._now():
            # Others may have it by now.
            message.claims -= 1
            return None
        return message

    def was_left(self, group: str, topic: str, handle: ReceiptHandle) -> bool:
        """Returns whether a client's handle stands for no message any more, although it is not
        over: the message has come back."""
        return self._find_left(group, topic, handle) is not None

    def settle(self, message: RenewedMessage) -> None:
        """Ends a claim and the renewals with it: the client is done with the message."""
        message.claims -= 1
        message.is_left = False
        self._left.discard(message)
        self._forget(message)

    def give_back(self, message: RenewedMessage) -> None:
        """Ends a claim that came to nothing; the renewals go on."""
        message.claims -= 1
        if self._is_renewed(message):
            self._enqueue(message)
        elif message.claims == 0 and message.is_left:
            self._release(message)

    def bring_back(self, group: str, topic: str, handle: ReceiptHandle) -> None:
        """Has a message come back soon whose client has not got it; one that it is asking about has
        come to it after all."""
        message = self._find(group, topic, handle)
        if message is not None and not message.claims:
            self._forget(message)
            self._leave(message)

    def renews(self, group: str, topic: str, handle: ReceiptHandle) -> bool:
        """Returns whether a message is kept hidden still."""
        return self._find(group, topic, handle) is not None

    def _find(self, group: str, topic: str, handle: ReceiptHandle) -> RenewedMessage | None:
        """Returns the message of a client's handle; None where it is not renewed, or delivered once
        more."""
        message = self._messages.get(_place(group, topic, handle))
        return message if message is not None and message.is_of(handle) else None

    def _find_left(self, group: str, topic: str, handle: ReceiptHandle) -> RenewedMessage | None:
        message = self._left.get(_place(group, topic, handle), self._now())
        return message if message is not None and message.is_of(handle) else None

    def _check_received(self, group: str, topic: str, handle: ReceiptHandle) -> None:
        """Raises `StatusError` where a message is renewed that has a handle like this one, which
        says neither group nor topic."""
        message = self._of_handle.get(handle.info)
        # In order, all groups that pop at one time have handles alike.
        if message is not None and not handle.info.is_orderly:
            place = message.place
            raise StatusError(
                Code.INVALID_RECEIPT_HANDLE,
                f"{place.group} received the message from {place.topic}, not {group} from {topic}:"
                " give the group and topic that it was received with",
            )

    def _client_gone(self, client: IProxyClient) -> None:
        """Has the messages of a client come back."""
        for message in self._of_client.pop(client.client_id, {}).values():
            self._drop(message)
            self._leave(message)

    def stop(self) -> Deferred[None]:
        """Ends all renewals; fires once brokers have been asked for that, after `STOP_SECONDS` at
        the latest. What was renewed comes back: the handle that brokers accept for it is known here
        only. What was not stays hidden to the end of its time, since its client may acknowledge it
        at another proxy."""
        self._is_stopped = True
        of_client, self._of_client = self._of_client, {}
        self._messages.clear()
        self._of_handle.clear()
        self._due = LazyHeap(self._is_renewed)
        self._alarm.cancel()
        for messages in of_client.values():
            for message in messages.values():
                if message.renewals:
                    self._leave(message)
        self._go_on()
        if not self._turns:
            return succeed(None)
        limit = Alarm(self._clock, self._give_up)
        limit.set(STOP_SECONDS)
        return self._idle.wait().addCallback(lambda _: limit.cancel())

    def _give_up(self) -> None:
        """Leaves the messages that have not come back yet to the end of their time."""
        _log.warn("{number} messages come back later: brokers are slow", number=len(self))
        self._turns.clear()
        self._released = 0
        self._idle.fire(None)

    def _is_renewed(self, message: RenewedMessage) -> bool:
        return self._messages.get(message.place) is message

    def _forget(self, message: RenewedMessage) -> None:
        if self._is_renewed(message):
            self._drop(message)
            of_client = self._of_client[message.client_id]
            del of_client[message.place]
            if not of_client:
                del self._of_client[message.client_id]

    def _drop(self, message: RenewedMessage) -> None:
        del self._messages[message.place]
        if self._of_handle.get(message.popped) is message:
            del self._of_handle[message.popped]

    def _now(self) -> int:
        return int(self._clock.seconds() * 1000)

    def _queue(self, message: RenewedMessage, hidden_ms: int) -> None:
        """Has a message renewed before `hidden_ms` are over."""
        message.due = self._now() + max(hidden_ms - self._config.renew_ahead_time_millis, 0)
        self._enqueue(message)

    def _enqueue(self, message: RenewedMessage) -> None:
        if not (message.is_queued or message.is_busy or message.claims):
            message.is_queued = True
            self._due.push(message.due, message)
            self._alarm.set_no_later(max(message.due - self._now(), 0) / 1000)

    def _leave(self, message: RenewedMessage) -> None:
        """Has a message come back, at once or when a claim comes to nothing."""
        message.is_left = True
        self._left.add(message, self._now())
        if not message.claims:
            self._release(message)

    def _release(self, message: RenewedMessage) -> None:
        self._released += 1

        def begin() -> None:
            self._released -= 1
            # Its client may be asking about it, or be done with it.
            is_wanted = message.is_left and not message.claims
            self._do(message, self._bring_back if is_wanted else None)

        self._turns.add(message.place.broker_name, begin, urgent=False)
        self._alarm.set_no_later(0)

    def _go_on(self) -> None:
        """Asks brokers about what is due, a bounded number at a time."""
        now = self._now()
        for _ in range(_MOST_IN_TURN):
            message = self._due.take(now)
            if message is None:
                break
            if self._is_renewed(message):
                begin = partial(self._begin_renewal, message)
                self._turns.add(message.place.broker_name, begin, urgent=True)
        for _ in range(_MOST_IN_TURN):
            begin_next = self._turns.next()
            if begin_next is None:
                break
            begin_next()
        else:
            self._alarm.set_no_later(0)
        if self._due.front is not None:
            self._alarm.set_no_later(max(self._due.front - now, 0) / 1000)
        if self._is_stopped and not self._turns:
            self._idle.fire(None)

    def _begin_renewal(self, message: RenewedMessage) -> None:
        message.is_queued = False
        is_wanted = self._is_renewed(message) and not message.claims
        if is_wanted and message.hidden_until <= self._now():
            # Brokers did not answer in time, or this process stood still: others may have it.
            self._forget(message)
            is_wanted = False
        self._do(message, self._renew if is_wanted else None)

    def _do(
        self,
        message: RenewedMessage,
        work: Callable[[RenewedMessage], Coroutine[Any, Any, None]] | None,
    ) -> None:
        """Does what it is a message's turn for, if that is wanted still."""

        def over(_: None) -> None:
            self._turns.over(message.place.broker_name)
            self._alarm.set_no_later(0)

        if work is None:
            over(None)
            return
        done = Deferred.fromCoroutine(work(message))
        done.addErrback(lambda failure: _log.failure("renewing a message", failure=failure))
        done.addCallback(over)

    async def _bring_back(self, message: RenewedMessage) -> None:
        while message.is_busy:
            await message.when_idle()
        # What its client asks about meanwhile comes back when that comes to nothing.
        is_wanted = message.hidden_until > self._now() and not message.claims
        if is_wanted and message.place.broker_name not in self._out_of_reach:
            message.is_busy = True
            try:
                await self._hide(message, self._config.invisible_time_millis_when_clear)
            finally:
                message.set_idle()

    async def _renew(self, message: RenewedMessage) -> None:
        """Hides a message for longer; queues it for its next renewal, or gives it up."""
        config = self._config
        hidden_ms = None
        message.is_busy = True
        try:
            client = self._clients.get(message.client_id)
            if client is None:
                # It never said who it is, or is gone since.
                await self._hide(message, config.invisible_time_millis_when_clear)
            elif not client.has_stream:
                # It may go on at another proxy, where only the handle that it has counts.
                hidden_ms = config.renew_ahead_time_millis + config.renew_schedule_period_millis
            elif self._now() - message.received_at >= config.renew_max_time_millis:
                place = message.place
                group = await self._metadata.group_or_none(place.group, [place.topic])
                await self._hide(message, retry_delay_ms(group, message.retries))
            else:
                step = STEPS[min(message.renewals, len(STEPS) - 1)]
                hidden_ms = await self._hide(message, step)
        finally:
            message.set_idle()
            if hidden_ms is None:
                self._forget(message)
        if hidden_ms is not None and self._is_renewed(message):
            self._queue(message, hidden_ms)

    async def _hide(self, message: RenewedMessage, invisible_ms: int) -> int | None:
        """Hides a message for a time. Returns how long it is hidden in ms, less where the broker is
        to be asked again soon; None where no broker can do it."""
        place, config = message.place, self._config
        client = self._clients.get(message.client_id)
        try:
            message.handle = await self._popped.hide(
                place.topic, place.group, message.handle, invisible_ms, client
            )
        except RemotingError as error:
            if self._is_stopped:
                self._out_of_reach.add(place.broker_name)
            message.failures += 1
            _log.warn(
                "a message stays hidden no longer for now, {place}: {error}",
                place=place,
                error=error,
            )
            if message.failures >= config.max_renew_retry_times:
                return None
            return config.renew_ahead_time_millis + config.renew_schedule_period_millis
        except (StatusError, RequestError) as error:
            _log.info("a message is renewed no more, {place}: {error}", place=place, error=error)
            return None
        message.hidden_until = self._now() + invisible_ms
        message.renewals += 1
        message.failures = 0
        return invisible_ms
