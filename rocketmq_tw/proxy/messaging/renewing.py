"""Brokers are asked in time to hide messages for longer, and to have those come back that nobody
works on any more."""

from __future__ import annotations

from functools import partial

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.proxy.clients import ProxyClients
from rocketmq_tw.proxy.messaging.backoff import retry_delay_ms
from rocketmq_tw.proxy.messaging.broker_work import BrokerWork
from rocketmq_tw.proxy.messaging.hiding import Hiding, is_busy, is_for_good
from rocketmq_tw.proxy.messaging.received_messages import ReceivedMessages
from rocketmq_tw.proxy.messaging.renewed_message import RenewedMessage
from rocketmq_tw.proxy.messaging.returns import Returns
from rocketmq_tw.proxy.metadata import Metadata
from rocketmq_tw.runtime.alarm import Alarm
from rocketmq_tw.runtime.lazy_heap import LazyHeap

_MINUTE = 60_000
#: Milliseconds until a broker is asked again that takes no such request now.
_BUSY_MS = 1_000
#: How much longer each renewal hides a message, in ms; the last one stands for all after it.
STEPS = tuple(minutes * _MINUTE for minutes in (1, 3, 5, 10, 30, 60))
#: Requests of renewals to one broker at a time.
_MOST_UNDER_WAY = 128
#: Messages that one turn of the reactor looks at.
_MOST_IN_TURN = 500


class Renewing:
    """Renews the messages of `received` before they are visible again, one after the other where
    many are due."""

    def __init__(
        self,
        clock: IReactorTime,
        hiding: Hiding,
        received: ReceivedMessages,
        clients: ProxyClients,
        metadata: Metadata,
        config: ProxyConfig,
    ) -> None:
        self._clock = clock
        self._hiding = hiding
        self._received = received
        self._clients = clients
        self._metadata = metadata
        self._config = config
        self._due = LazyHeap[RenewedMessage](received.__contains__)
        self._alarm = Alarm(clock, self._go_on)
        wake = self._alarm.set_no_later
        self._work = BrokerWork(_MOST_UNDER_WAY, lambda: wake(0))
        self._returns = Returns(clock, hiding, self._work, config, wake)
        self.is_stopped = False
        #: Fires once all have come back after the stop; there is none until all were left.
        self._all_back: Deferred[None] | None = None

    @property
    def returning(self) -> int:
        """How many messages are to come back, about which a broker is to be asked still."""
        return len(self._returns)

    def begin(self, message: RenewedMessage, hidden_ms: int) -> None:
        """Has a message renewed before `hidden_ms` are over."""
        message.due = self._now() + max(hidden_ms - self._config.renew_ahead_time_millis, 0)
        self.go_on_with(message)

    def go_on_with(self, message: RenewedMessage) -> None:
        """Has a message renewed when it is due, unless something else is asked about it."""
        is_idle = not (message.is_queued or message.is_busy or message.claims)
        if is_idle and not self.is_stopped:
            message.is_queued = True
            self._due.push(message.due, message)
            self._alarm.set_no_later(max(message.due - self._now(), 0) / 1000)

    def bring_back(self, message: RenewedMessage) -> None:
        """Has a message come back that nobody asks anything about."""
        self._returns.add(message)

    def stop(self) -> None:
        """Renews no more, and gives each message that is to come back one more chance."""
        self.is_stopped = True
        self._returns.hurry()
        self._alarm.cancel()

    def finish(self, all_back: Deferred[None]) -> None:
        """Fires `all_back` once brokers were asked about all that is to come back."""
        self._all_back = all_back
        self._go_on()

    def give_up(self) -> None:
        """Leaves what has not come back yet to the end of its time."""
        self._work.clear()
        self._returns.give_up()

    def _go_on(self) -> None:
        """Asks brokers about what is due, a bounded number at a time."""
        if not self.is_stopped:
            self._take_due()
        self._returns.take_due()
        self._work.go_on()
        for due in (None if self.is_stopped else self._due.front, self._returns.next_due):
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
            if message in self._received:
                work = partial(self._begin_renewal, message)
                self._work.add(message.place.broker_name, work, urgent=True)

    async def _begin_renewal(self, message: RenewedMessage) -> None:
        message.is_queued = False
        if message.claims or message not in self._received:
            return
        if message.is_late(self._now()):
            # Brokers did not answer in time, or this process stood still: others may have it.
            self._received.give_up(message)
            return
        try:
            await self._renew(message)
        except Exception:
            self._received.give_up(message)
            raise

    async def _renew(self, message: RenewedMessage) -> None:
        """Hides a message for longer; has it renewed again in time, or gives it up."""
        config = self._config
        soon_ms = config.renew_ahead_time_millis + config.renew_schedule_period_millis
        client = self._clients.get(message.client_id)
        if client is None or not client.has_stream:
            # It may go on at another proxy, where only the handle that it has counts.
            self.begin(message, soon_ms)
            return
        is_last = self._now() - message.received_at >= config.renew_max_time_millis
        hidden_ms = STEPS[min(message.renewals, len(STEPS) - 1)]
        if is_last:
            place = message.place
            group = await self._metadata.group_or_none(place.group, [place.topic])
            hidden_ms = retry_delay_ms(group, message.retries)
            if message.claims or message not in self._received:
                return
        error = await self._hiding.renew(message, hidden_ms)
        if message not in self._received:
            return
        if error is not None and is_busy(error):
            # It may take one from one moment to the next.
            message.failures -= 1
            self.begin(message, config.renew_ahead_time_millis + _BUSY_MS)
        elif error is not None and not is_for_good(error):
            if message.failures < config.max_renew_retry_times:
                self.begin(message, soon_ms)
            else:
                # Until then its client may be done with it.
                message.due = message.hidden_until
                self.go_on_with(message)
        elif error is not None or is_last:
            self._received.give_up(message)
        else:
            message.renewals += 1
            self.begin(message, message.hidden_until - self._now())

    def _now(self) -> int:
        return int(self._clock.seconds() * 1000)
