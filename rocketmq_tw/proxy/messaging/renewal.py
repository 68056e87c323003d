"""Renewal: messages stay hidden from others while the client that received them is at work on them.

A receive with `auto_renew` hides its messages for a short time; shortly before that ends, the proxy
asks the broker for more (`renewing`). The client keeps the receipt handle that came with the
message: the one that brokers accept now is found here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.proxy.brokers import IProxyClient
from rocketmq_tw.proxy.clients import ProxyClients
from rocketmq_tw.proxy.messaging.hiding import Hiding
from rocketmq_tw.proxy.messaging.popped import PopClient
from rocketmq_tw.proxy.messaging.receipt_handles import ReceiptHandle
from rocketmq_tw.proxy.messaging.received_messages import ReceivedMessages
from rocketmq_tw.proxy.messaging.renewed_message import OneDelivery, RenewedMessage, message_place
from rocketmq_tw.proxy.messaging.renewing import Renewing
from rocketmq_tw.proxy.messaging.statuses import StatusError
from rocketmq_tw.proxy.metadata import Metadata
from rocketmq_tw.proxy.proto.messages import Code
from rocketmq_tw.runtime.alarm import Alarm
from rocketmq_tw.runtime.log_throttle import LogThrottle
from rocketmq_tw.runtime.slices import Slices, every

_log = Logger()

#: Messages that are renewed, some 1 KiB each, and those of one client among them.
MAX_RENEWED = 200_000
MAX_OF_CLIENT = 20_000
#: By so much another proxy may be earlier with a renewal than by our clock, in ms.
_EARLIER_MS = 3_000
#: So long after an acknowledgement, in ms, its client may repeat it, not having got the answer.
_REPEATED_MS = 30_000
#: Messages of one receive.
MAX_MESSAGES = 32
#: Until the log says again that no more can be renewed, in ms.
_SAY_AGAIN_MS = 600_000
#: Seconds that a stop may take to have messages come back.
_STOP_SECONDS = 10.0


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
        self._config = config
        self._hiding = Hiding(clock, popped, clients)
        self._received = ReceivedMessages(clock)
        self._renewing = Renewing(clock, self._hiding, self._received, clients, metadata, config)
        #: Claims of messages that are not renewed, as long as they last.
        self._unrenewed: dict[OneDelivery, RenewedMessage] = {}
        self._in_slices = Slices(clock)
        self._said_full = LogThrottle[int](_SAY_AGAIN_MS)
        clients.gone.add(self._client_gone)

    def __len__(self) -> int:
        return len(self._received) + self._renewing.returning

    def has_room(self, number: int) -> bool:
        """Returns whether so many messages more can be renewed, whichever clients have the others.
        Where not, messages are received without it, as from stock's proxies, and come again after
        their time; the log says so."""
        room = MAX_RENEWED - len(self) - self._received.left
        if room >= number:
            return True
        if self._said_full.is_due(MAX_RENEWED, self._now()):
            _log.warn(
                "{number} messages are renewed for {clients} clients, and no more can be: further"
                " ones come again when their time is over",
                number=len(self),
                clients=self._received.clients,
            )
        return False

    def room_of(self, client_id: str) -> int:
        """Returns how many messages more of a client can be renewed."""
        return max(0, MAX_OF_CLIENT - self._received.number_of(client_id))

    def takes(self, client_id: str, number: int) -> bool:
        """Returns whether so many messages of a client can be renewed. Receives that wait ask when
        their messages come: others may have taken the room that there was."""
        return number <= self.room_of(client_id) and self.has_room(number)

    def add(
        self,
        client_id: str,
        group: str,
        topic: str,
        handle: ReceiptHandle,
        retries: int,
        left_ms: int,
    ) -> None:
        """Keeps a message hidden from now on, which it is for `left_ms` still; `retries` is how
        often it was delivered before."""
        if self._renewing.is_stopped:
            return
        place = message_place(group, topic, handle)
        message = RenewedMessage(place, handle, client_id, retries, self._now(), left_ms)
        self._received.add(message)
        self._renewing.begin(message, left_ms)

    def deliver(self, group: str, topic: str, handle: ReceiptHandle) -> bool:
        """Notes that a message is about to go to its client, so that the delivery counts; returns
        whether it is kept hidden still."""
        message = self._received.find(group, topic, handle)
        if message is None:
            return False
        message.is_delivered = True
        return True

    async def claim(self, group: str, topic: str, handle: ReceiptHandle) -> RenewedMessage | None:
        """Returns the message that a client's handle stands for, whose renewals pause until it is
        settled or given back; None where it is not renewed: the client's handle counts then, unless
        it `was_left`. Raises `StatusError` (INVALID_RECEIPT_HANDLE) where it is of another group or
        topic."""
        message = self._received.find(group, topic, handle)
        if message is None:
            message = self._received.find_left(group, topic, handle)
        if message is None:
            self._received.check_received(group, topic, handle)
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
        return self._received.find_left(group, topic, handle) is not None

    async def claim_unrenewed(
        self,
        client_id: str,
        group: str,
        topic: str,
        handle: ReceiptHandle,
        left_ms: int,
        least_ms: int,
    ) -> RenewedMessage:
        """Returns a claim of a message that is not renewed, once nothing else is asked about it:
        its handle may change with the answer. The client's is over in `left_ms`.

        It is made sure of where another proxy may have renewed the message, which it may have had
        before it was gone, or where it may be over by the broker's time: brokers say OK to a handle
        that is void. It is good for `least_ms` still, or longer; 0 where that is not known. One
        that this proxy is done with is not doubted: its client may not have
        got the answer, and brokers hide no message that was acknowledged."""
        message = self._new(client_id, group, topic, handle, left_ms)
        known = self._unrenewed.setdefault(message.delivery, message)
        # A handle that says anything else of it is none of the client's.
        if known is not message and known.popped == handle.info:
            message = known
        else:
            message.is_uncertain = self._may_be_void(message, least_ms) and not (
                self._received.was_settled(message)
            )
        message.claims += 1
        while message.is_busy:
            await message.when_idle()
        return message

    def _new(
        self, client_id: str, group: str, topic: str, handle: ReceiptHandle, left_ms: int
    ) -> RenewedMessage:
        place = message_place(group, topic, handle)
        message = RenewedMessage(place, handle, client_id, 0, self._now(), left_ms)
        message.is_delivered = True
        return message

    def _end_claim(self, message: RenewedMessage) -> None:
        message.claims -= 1
        if not message.claims and self._unrenewed.get(message.delivery) is message:
            del self._unrenewed[message.delivery]

    def _may_be_void(self, message: RenewedMessage, least_ms: int) -> bool:
        config, popped = self._config, message.popped
        is_renewable = popped.invisible_time == config.default_invisible_time_mills
        is_due = least_ms <= config.renew_ahead_time_millis + _EARLIER_MS
        is_renewable = is_renewable and config.enable_proxy_auto_renew
        # In order, a message keeps its handle.
        return ((is_renewable and is_due) or not least_ms) and not popped.is_orderly

    def is_late(self, message: RenewedMessage) -> bool:
        """Returns whether the time for which a message is hidden is over."""
        return message.is_late(self._now())

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
        self._end_claim(message)
        message.is_left = False
        if message in self._received:
            self._received.give_up(message)
        elif message.has_another_handle:
            # Its client may acknowledge it by the former one all the same.
            self.remember(message)
        return message.handle

    def settle(self, message: RenewedMessage) -> None:
        """Ends a claim and the renewals with it: the client is done with the message."""
        self._end_claim(message)
        message.is_left = False
        self._received.settle(message)
        if self._may_be_void(message, message.handle_ends - self._now() - _REPEATED_MS):
            self._received.remember_settled(message)

    def give_back(self, message: RenewedMessage) -> None:
        """Ends a claim that came to nothing; the renewals go on."""
        self._end_claim(message)
        if message in self._received:
            self._renewing.go_on_with(message)
        elif message.is_left:
            if message.claims == 0:
                self._renewing.bring_back(message)
        elif message.may_be_void:
            self.remember(message)

    def remember(self, message: RenewedMessage) -> None:
        """Has the handle that a client has go on to stand for a message that is not renewed: the
        one that brokers accept is another by now, or may be, and its client does not know it."""
        self._received.doubt(message)

    def void(self, message: RenewedMessage) -> None:
        """Ends a claim, and the renewals with it, since brokers do not know the handle."""
        self._end_claim(message)
        message.is_left = False
        self._received.give_up(message)

    def bring_back(self, group: str, topic: str, handle: ReceiptHandle) -> None:
        """Has a message come back soon whose client has not got it; one that it is asking about has
        come to it after all."""
        message = self._received.find(group, topic, handle)
        if message is not None and not message.claims:
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
        message = self._new(client_id, group, topic, handle, left_ms)
        message.claims = 1
        message.is_delivered = counts
        message.returns_in = returns_in
        message.is_left = True
        self.give_back(message)

    def _client_gone(self, client: IProxyClient) -> None:
        """Has the messages of a client come back."""
        messages = self._received.take_client(client.client_id)
        self._in_slices.unwatched(self._leave_all(messages), "having messages come back")

    def _leave_all(self, messages: Iterable[RenewedMessage]) -> Iterator[None]:
        for number, message in enumerate(messages):
            if message in self._received:
                self._leave(message)
            if every(number):
                yield

    def _leave(self, message: RenewedMessage) -> None:
        """Renews a message no more and has it come back, at once or when a claim comes to
        nothing."""
        self._received.remove(message)
        message.is_left = True
        message.is_queued = False
        message.failures = 0
        self._received.leave(message)
        if not message.claims:
            self._renewing.bring_back(message)

    def stop(self) -> Deferred[None]:
        """Ends all renewals; fires once brokers have been asked for that, after `_STOP_SECONDS` at
        the latest. What was renewed comes back: the handle that brokers accept for it is known here
        only. What was not stays hidden to the end of its time, since its client may acknowledge it
        at another proxy."""
        self._renewing.stop()
        all_back: Deferred[None] = Deferred()
        limit = Alarm(self._clock, lambda: self._stop_waiting(all_back))
        limit.set(_STOP_SECONDS)
        left = self._in_slices(self._end_all(self._received.take_all(), all_back))
        left.addErrback(
            lambda failure: _log.failure("giving messages back at the stop failed", failure=failure)
        )
        left.addCallback(lambda _: self._renewing.finish(all_back))
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
        if message not in self._received:
            return
        if message.has_another_handle:
            self._leave(message)
        else:
            self._received.remove(message)

    def _stop_waiting(self, all_back: Deferred[None]) -> None:
        """Leaves the messages that have not come back yet to the end of their time."""
        _log.warn(
            "brokers answer too slowly for this stop: {number} messages stay hidden until their"
            " time is over",
            number=len(self),
        )
        self._renewing.give_up()
        all_back.callback(None)

    def _now(self) -> int:
        return int(self._clock.seconds() * 1000)
