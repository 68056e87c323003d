"""Messages that come back: nobody works on them any more, or only this proxy, which stops, knows
the handles that brokers accept for them."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.proxy.messaging.broker_work import BrokerWork
from rocketmq_tw.proxy.messaging.hiding import Hiding, is_for_good
from rocketmq_tw.proxy.messaging.renewed_message import RenewedMessage
from rocketmq_tw.runtime.lazy_heap import LazyHeap

#: Messages that one turn of the reactor looks at.
_MOST_IN_TURN = 500
#: Later than all times, in ms.
_NEVER = 1 << 62


class Returns:
    """Has brokers hide such messages for a moment only. `wake` has `take_due` called in so many
    seconds."""

    def __init__(
        self,
        clock: IReactorTime,
        hiding: Hiding,
        work: BrokerWork,
        config: ProxyConfig,
        wake: Callable[[float], None],
    ) -> None:
        self._clock = clock
        self._hiding = hiding
        self._work = work
        self._config = config
        self._wake = wake
        #: How many brokers are to be asked about.
        self._waiting = 0
        #: Those about which a broker is to be asked once more.
        self._refused = LazyHeap[RenewedMessage](lambda message: message.is_left)
        self._is_last = False
        #: Brokers that did not answer since `hurry`: they are not asked again.
        self._out_of_reach: set[str] = set()

    def __len__(self) -> int:
        return self._waiting + len(self._refused)

    @property
    def next_due(self) -> int | None:
        """When `take_due` has something to do, in ms of the clock; None where nobody waits."""
        front = self._refused.front
        return 0 if self._is_last and front is not None else front

    def add(self, message: RenewedMessage) -> None:
        """Has a message come back that nobody asks anything about, where it `is_left` then."""
        self._waiting += 1

        async def begin() -> None:
            self._waiting -= 1
            await self._bring_back(message)

        self._work.add(message.place.broker_name, begin, urgent=False)

    def hurry(self) -> None:
        """Gives each message one more chance, since this proxy stops."""
        self._is_last = True

    def give_up(self) -> None:
        """Leaves those that wait to the end of their time; their work is dropped."""
        self._waiting = 0

    def take_due(self) -> None:
        """Has brokers asked once more, about a bounded number of messages."""
        last = _NEVER if self._is_last else self._now()
        for _ in range(_MOST_IN_TURN):
            message = self._refused.take(last)
            if message is None:
                break
            message.is_queued = False
            if message.is_left:
                self.add(message)

    async def _bring_back(self, message: RenewedMessage) -> None:
        while message.is_busy:
            await message.when_idle()
        # Its client may be done with it. What it asks about comes back when that comes to nothing.
        is_wanted = message.is_left and not message.claims and message.hidden_until > self._now()
        broker_name = message.place.broker_name
        if not is_wanted or broker_name in self._out_of_reach:
            return
        wait_ms, left_ms = message.returns_in, message.hidden_until - self._now()
        if wait_ms is None:
            wait_ms = self._config.invisible_time_millis_when_clear
        elif left_ms <= wait_ms:
            # It comes back by itself, which brokers of ours need not wait for.
            if not message.is_undelivered:
                return
            wait_ms = left_ms
        error = await self._hiding.hide(message, wait_ms)
        if error is None or is_for_good(error):
            return
        if not self._is_last:
            self._try_later(message)
        elif isinstance(error, RemotingError):
            self._out_of_reach.add(broker_name)

    def _try_later(self, message: RenewedMessage) -> None:
        """Has a broker asked once more, each time after twice as long, until the message comes back
        by itself."""
        wait_ms = self._config.renew_schedule_period_millis << message.failures - 1
        message.due = self._now() + wait_ms
        if message.due < message.hidden_until and not message.is_queued:
            message.is_queued = True
            self._refused.push(message.due, message)
            self._wake(wait_ms / 1000)

    def _now(self) -> int:
        return int(self._clock.seconds() * 1000)
