"""Renewal: messages stay hidden from others while the client that received them is at work on them.

A receive with `auto_renew` hides its messages for a short time; shortly before that ends, the proxy
asks the broker for more. The client keeps the receipt handle that came with the message: the one
that brokers accept now is found here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.message.extra_info import ExtraInfo
from rocketmq_tw.proxy.brokers import IProxyClient
from rocketmq_tw.proxy.clients import ProxyClients
from rocketmq_tw.proxy.messaging.backoff import retry_delay_ms
from rocketmq_tw.proxy.messaging.broker_work import BrokerWork
from rocketmq_tw.proxy.messaging.hiding import Hiding, is_for_good
from rocketmq_tw.proxy.messaging.left_messages import LeftMessages
from rocketmq_tw.proxy.messaging.popped import PopClient
from rocketmq_tw.proxy.messaging.receipt_handles import ReceiptHandle
from rocketmq_tw.proxy.messaging.renewed_message import (
    OneDelivery,
    Place,
    RenewedMessage,
    message_place,
)
from rocketmq_tw.proxy.messaging.returns import Returns
from rocketmq_tw.proxy.messaging.statuses import StatusError
from rocketmq_tw.proxy.metadata import Metadata
from rocketmq_tw.proxy.proto.messaging_pb2 import Code
from rocketmq_tw.runtime.alarm import Alarm
from rocketmq_tw.runtime.lazy_heap import LazyHeap
from rocketmq_tw.runtime.log_throttle import LogThrottle
from rocketmq_tw.runtime.slices import Slices, every

_log = Logger()

_MINUTE = 60_000
#: How much longer each renewal hides a message, in ms; the last one stands for all after it.
STEPS = tuple(minutes * _MINUTE for minutes in (1, 3, 5, 10, 30, 60))
#: Messages that are renewed, some 1 KiB each, and those of one client among them.
MAX_RENEWED = 200_000
MAX_OF_CLIENT = 20_000
#: Messages of one receive.
MAX_MESSAGES = 32
#: Until the log says again that no more can be renewed.
_SAY_AGAIN_MS = 10 * _MINUTE
#: Requests of renewals to one broker at a time.
_MOST_UNDER_WAY = 128
#: Seconds that a stop may take to have messages come back.
STOP_SECONDS = 10.0
#: Messages that one turn of the reactor looks at.
_MOST_IN_TURN = 500
#: Messages that are not renewed and remembered since a change of their time got no answer, or its
#: client none.
_MOST_DOUBTED = 10_000


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
        self._hiding = Hiding(clock, popped, clients)
        self._clients = clients
        self._metadata = metadata
        self._config = config
        self._messages: dict[Place, RenewedMessage] = {}
        self._of_client: dict[str, dict[Place, RenewedMessage]] = {}
        self._of_handle: dict[ExtraInfo, RenewedMessage] = {}
        self._due = LazyHeap[RenewedMessage](self._is_renewed)
        #: Those that nobody works on any more, though their handles are not over.
        self._left = LeftMessages[RenewedMessage]()
        self._alarm = Alarm(clock, self._go_on)
        wake = self._alarm.set_no_later
        self._work = BrokerWork(_MOST_UNDER_WAY, lambda: wake(0))
        self._returns = Returns(clock, self._hiding, self._work, config, wake)
        self._in_slices = Slices(clock)
        self._is_stopped = False
        self._said_full = LogThrottle[int](_SAY_AGAIN_MS)
        #: Fires once all have come back after the stop; there is none until all were left.
        self._all_back: Deferred[None] | None = None
        clients.gone.add(self._client_gone)

    def __len__(self) -> int:
        return len(self._messages) + len(self._returns)

    def has_room(self) -> bool:
        """Returns whether the messages of one more receive can be renewed, whichever clients
        have the others.
        Where not, messages are received without it, as from stock's proxies, and come again after
        their time; the log says so."""
        self._left.forget_over(self._now())
        room = MAX_RENEWED - len(self) - len(self._left)
        if room >= MAX_MESSAGES:
            return True
        if self._said_full.is_due(MAX_RENEWED, self._now()):
            _log.warn(
                "{number} messages are renewed for {clients} clients, and no more can be: further"
                " ones come again when their time is over",
                number=len(self),
                clients=len(self._of_client),
            )
        return False

    def room_of(self, client_id: str) -> int:
        """Returns how many messages more of a client can be renewed."""
        return max(0, MAX_OF_CLIENT - len(self._of_client.get(client_id, ())))

    def add(
        self, client_id: str, group: str, topic: str, handle: ReceiptHandle, retries: int
    ) -> None:
        """Keeps a message hidden from now on; `retries` is how often it was delivered before."""
        if self._is_stopped:
            return
        place = message_place(group, topic, handle)
        former = self._messages.get(place)
        if former is not None:
            former.hidden_until = self._now()
            self._forget(former)
            self._left.add(former, self._now())
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
        if self.is_late(message):
            # Others may have it by now.
            message.claims -= 1
            return None
        return message

    def was_left(self, group: str, topic: str, handle: ReceiptHandle) -> bool:
        """Returns whether a client's handle stands for no message any more, although it is not
        over: the message has come back."""
        return self._find_left(group, topic, handle) is not None

    def unrenewed(
        self, client_id: str, group: str, topic: str, handle: ReceiptHandle, left_ms: int
    ) -> RenewedMessage:
        """Returns a claim of a message that is not renewed, whose handle is over in `left_ms`."""
        message = RenewedMessage(
            message_place(group, topic, handle), handle, client_id, 0, self._now()
        )
        message.handle_ends = message.hidden_until = self._now() + left_ms
        message.is_delivered = True
        message.claims = 1
        return message

    def is_late(self, message: RenewedMessage) -> bool:
        """Returns whether the time for which a message is hidden is over."""
        return message.hidden_until <= self._now()

    async def make_sure(self, message: RenewedMessage) -> None:
        """Has brokers accept the handle of a claimed message; raises `StatusError`
        (INVALID_RECEIPT_HANDLE) where they do not, or others may have the message, and what
        `PopClient.hide` fails with."""
        if message.is_uncertain:
            await self._hiding.make_sure(message)
        if self.is_late(message):
            raise StatusError(
                Code.INVALID_RECEIPT_HANDLE,
                "the message came back before its acknowledgement came to its turn: acknowledge"
                " fewer at once",
            )

    async def change(self, message: RenewedMessage, invisible_ms: int) -> ReceiptHandle:
        """Hides a claimed message for the time that its client wants, and ends the claim and the
        renewals; returns the handle from now on. Where it fails, as `PopClient.hide` does, the
        claim goes on."""
        await self._hiding.change(message, invisible_ms)
        message.claims -= 1
        message.is_left = False
        if self._is_renewed(message):
            self._give_up(message)
        return message.handle

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
        elif message.is_left:
            if message.claims == 0:
                self._returns.add(message)
        elif message.is_uncertain:
            self.remember(message)

    def remember(self, message: RenewedMessage) -> None:
        """Has the handle that a client has go on to stand for a message that is not renewed: the
        one that brokers accept is another by now, or may be, and its client does not know it."""
        if len(self._left) < _MOST_DOUBTED:
            self._left.add(message, self._now())

    def void(self, message: RenewedMessage) -> None:
        """Ends a claim, and the renewals with it, since brokers do not know the handle."""
        message.claims -= 1
        message.is_left = False
        self._give_up(message)

    def bring_back(self, group: str, topic: str, handle: ReceiptHandle) -> None:
        """Has a message come back soon whose client has not got it; one that it is asking about has
        come to it after all."""
        message = self._find(group, topic, handle)
        if message is not None and not message.claims:
            self._forget(message)
            self._leave(message)

    def bring_back_unrenewed(
        self,
        client_id: str,
        group: str,
        topic: str,
        handle: ReceiptHandle,
        left_ms: int,
        returns_in: int | None = None,
        *,
        counts: bool = False,
    ) -> None:
        """Has a message come back that nobody has got, and that is hidden for `left_ms`: in so many
        ms, or soon. Brokers of ours count the delivery in a group in order only where it
        `counts`."""
        message = self.unrenewed(client_id, group, topic, handle, left_ms)
        message.is_delivered = counts
        message.returns_in = returns_in
        message.is_left = True
        self.give_back(message)

    def deliver(self, group: str, topic: str, handle: ReceiptHandle) -> bool:
        """Notes that a message is about to go to its client, so that the delivery counts; returns
        whether it is kept hidden still."""
        message = self._find(group, topic, handle)
        if message is None:
            return False
        message.is_delivered = True
        return True

    def _find(self, group: str, topic: str, handle: ReceiptHandle) -> RenewedMessage | None:
        """Returns the message of a client's handle; None where it is not renewed, or delivered once
        more."""
        message = self._messages.get(message_place(group, topic, handle))
        return message if message is not None and message.is_of(handle) else None

    def _find_left(self, group: str, topic: str, handle: ReceiptHandle) -> RenewedMessage | None:
        if not self._left:
            # As mostly; and each acknowledgement asks twice.
            return None
        delivery = OneDelivery(message_place(group, topic, handle), handle.info.pop_time)
        return self._left.get(delivery, self._now())

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
        messages = self._of_client.pop(client.client_id, {}).values()
        self._in_slices.unwatched(self._leave_all(messages), "having messages come back")

    def _leave_all(self, messages: Iterable[RenewedMessage]) -> Iterator[None]:
        for number, message in enumerate(messages):
            if self._is_renewed(message):
                self._drop(message)
                self._leave(message)
            if every(number):
                yield

    def stop(self) -> Deferred[None]:
        """Ends all renewals; fires once brokers have been asked for that, after `STOP_SECONDS` at
        the latest. What was renewed comes back: the handle that brokers accept for it is known here
        only. What was not stays hidden to the end of its time, since its client may acknowledge it
        at another proxy."""
        self._is_stopped = True
        self._returns.hurry()
        self._alarm.cancel()
        all_back: Deferred[None] = Deferred()
        limit = Alarm(self._clock, lambda: self._stop_waiting(all_back))
        limit.set(STOP_SECONDS)
        of_client, self._of_client = self._of_client, {}

        def all_left(_: object) -> None:
            self._all_back = all_back
            self._go_on()

        messages = chain.from_iterable(each.values() for each in of_client.values())
        left = self._in_slices(self._end_all(messages, all_back))
        left.addErrback(
            lambda failure: _log.failure("giving messages back at the stop failed", failure=failure)
        )
        left.addCallback(all_left)
        return all_back.addCallback(lambda _: limit.cancel())

    def _end_all(
        self, messages: Iterable[RenewedMessage], all_back: Deferred[None]
    ) -> Iterator[None]:
        for number, message in enumerate(messages):
            if all_back.called:
                return
            if message.is_busy:
                self._end_later(message)
            else:
                self._end(message)
            if every(number):
                yield

    def _end_later(self, message: RenewedMessage) -> None:
        # Its handle changes with the answer.
        message.when_idle().addCallback(lambda _: self._end(message))

    def _end(self, message: RenewedMessage) -> None:
        if self._is_renewed(message):
            self._drop(message)
            if message.has_another_handle:
                self._leave(message)

    def _stop_waiting(self, all_back: Deferred[None]) -> None:
        """Leaves the messages that have not come back yet to the end of their time."""
        _log.warn(
            "brokers answer too slowly for this stop: {number} messages stay hidden until their"
            " time is over",
            number=len(self),
        )
        self._work.clear()
        self._returns.give_up()
        all_back.callback(None)

    def _is_renewed(self, message: RenewedMessage) -> bool:
        return self._messages.get(message.place) is message

    def _forget(self, message: RenewedMessage) -> None:
        if self._is_renewed(message):
            self._drop(message)
            # Those of a client that is gone are not there any more.
            of_client = self._of_client.get(message.client_id, {})
            if of_client.get(message.place) is message:
                del of_client[message.place]
                if not of_client:
                    del self._of_client[message.client_id]

    def _give_up(self, message: RenewedMessage) -> None:
        """Renews a message no more; brokers would say OK to its client's handle, which is void."""
        self._forget(message)
        if message.is_uncertain or message.has_another_handle:
            self._left.add(message, self._now())

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
        is_idle = not (message.is_queued or message.is_busy or message.claims)
        if is_idle and not self._is_stopped:
            message.is_queued = True
            self._due.push(message.due, message)
            self._alarm.set_no_later(max(message.due - self._now(), 0) / 1000)

    def _leave(self, message: RenewedMessage) -> None:
        """Has a message come back, at once or when a claim comes to nothing."""
        message.is_left = True
        message.is_queued = False
        message.failures = 0
        self._left.add(message, self._now())
        if not message.claims:
            self._returns.add(message)

    def _go_on(self) -> None:
        """Asks brokers about what is due, a bounded number at a time."""
        if not self._is_stopped:
            self._take_due()
        self._returns.take_due()
        self._work.go_on()
        for due in (None if self._is_stopped else self._due.front, self._returns.next_due):
            if due is not None:
                self._alarm.set_no_later(max(due - self._now(), 0) / 1000)
        all_back = self._all_back
        is_over = not self._work and not self._returns
        if all_back is not None and is_over and not all_back.called:
            all_back.callback(None)

    def _take_due(self) -> None:
        now = self._now()
        for _ in range(_MOST_IN_TURN):
            message = self._due.take(now)
            if message is None:
                break
            if self._is_renewed(message):
                work = partial(self._begin_renewal, message)
                self._work.add(message.place.broker_name, work, urgent=True)

    async def _begin_renewal(self, message: RenewedMessage) -> None:
        message.is_queued = False
        if message.claims or not self._is_renewed(message):
            return
        if self.is_late(message):
            # Brokers did not answer in time, or this process stood still: others may have it.
            self._give_up(message)
            return
        try:
            await self._renew(message)
        except Exception:
            self._give_up(message)
            raise

    async def _renew(self, message: RenewedMessage) -> None:
        """Hides a message for longer; queues it for its next renewal, or gives it up."""
        config = self._config
        soon_ms = config.renew_ahead_time_millis + config.renew_schedule_period_millis
        client = self._clients.get(message.client_id)
        if client is None or not client.has_stream:
            # It may go on at another proxy, where only the handle that it has counts.
            self._queue(message, soon_ms)
            return
        is_last = self._now() - message.received_at >= config.renew_max_time_millis
        hidden_ms = STEPS[min(message.renewals, len(STEPS) - 1)]
        if is_last:
            place = message.place
            group = await self._metadata.group_or_none(place.group, [place.topic])
            hidden_ms = retry_delay_ms(group, message.retries)
            if message.claims or not self._is_renewed(message):
                return
        error = await self._hiding.renew(message, hidden_ms)
        if not self._is_renewed(message):
            return
        if error is not None and not is_for_good(error):
            if message.failures < config.max_renew_retry_times:
                self._queue(message, soon_ms)
            else:
                # Until then its client may be done with it.
                message.due = message.hidden_until
                self._enqueue(message)
        elif error is not None or is_last:
            self._give_up(message)
        else:
            message.renewals += 1
            self._queue(message, hidden_ms)
