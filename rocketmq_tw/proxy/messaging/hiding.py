"""Messages that clients have in hand are hidden for another time, and what becomes of their handles
where a broker's answer does not come."""

from __future__ import annotations

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rocketmq_tw.net.errors import ConnectError, RemotingError
from rocketmq_tw.proxy.broker_lines import BrokerLines
from rocketmq_tw.proxy.clients import ProxyClients
from rocketmq_tw.proxy.messaging.popped import ACK_TIMEOUT_SECONDS, PopClient
from rocketmq_tw.proxy.messaging.renewed_message import Place, RenewedMessage
from rocketmq_tw.proxy.messaging.statuses import StatusError
from rocketmq_tw.proxy.proto.messages import Code
from rocketmq_tw.wire.errors import RequestError

#: What brokers refuse for good: they have no such message, or are none of this cluster.
_FOR_GOOD = frozenset({Code.INVALID_RECEIPT_HANDLE, Code.BAD_REQUEST})
#: What they refuse before they have done anything.
_NOT_DONE = _FOR_GOOD | {Code.TOO_MANY_REQUESTS}
#: For so long at least a message is hidden that is about to be acknowledged, in ms.
_SURE_MS = 10_000
#: Seconds that a broker gets at most to answer what nobody else is waiting for.
_PATIENT_SECONDS = 10.0

_log = Logger()

#: What hiding a message fails with.
HidingError = StatusError | RequestError | RemotingError


def is_for_good(error: HidingError) -> bool:
    """Returns whether it makes no sense to ask for it once more."""
    return isinstance(error, StatusError) and error.code in _FOR_GOOD


def is_busy(error: HidingError) -> bool:
    """Returns whether the broker takes no such request now, as where its role has just begun."""
    return isinstance(error, StatusError) and error.code == Code.TOO_MANY_REQUESTS


def may_be_done(error: BaseException) -> bool:
    """Returns whether the message may be hidden all the same."""
    if isinstance(error, StatusError):
        return error.code not in _NOT_DONE
    return not isinstance(error, ConnectError)


class Hiding:
    """Hides messages, each under a new handle: brokers void the one before, and say OK to an
    acknowledgement with it, which comes to nothing."""

    def __init__(self, clock: IReactorTime, popped: PopClient, clients: ProxyClients) -> None:
        self._clock = clock
        self._popped = popped
        self._clients = clients
        self._said_refused = BrokerLines(clock)
        self._said_failed = BrokerLines(clock)

    async def renew(self, message: RenewedMessage, invisible_ms: int) -> HidingError | None:
        """Hides a message as `hide` does, and waits longer for the answer: until others may have
        the message. What is asked about it meanwhile waits too."""
        return await self.hide(message, invisible_ms, self._patience(message))

    async def hide(
        self, message: RenewedMessage, invisible_ms: int, seconds: float = ACK_TIMEOUT_SECONDS
    ) -> HidingError | None:
        """Hides a message from now on, while nothing else is asked about it; returns what it failed
        with, of which the log has a line about its broker now and then. The broker gets so many
        seconds."""
        message.is_busy = True
        try:
            await self._hide(message, invisible_ms, seconds)
        except (StatusError, RequestError, RemotingError) as error:
            message.failures += 1
            self._say(message.place, error)
            return error
        finally:
            message.set_idle()
        message.failures = 0
        return None

    async def change(
        self, message: RenewedMessage, invisible_ms: int, seconds: float = ACK_TIMEOUT_SECONDS
    ) -> None:
        """Hides a message as its client asks for; raises as `PopClient.hide` does. The broker gets
        so many seconds."""
        while message.is_busy:
            await message.when_idle()
        message.is_busy = True
        try:
            await self._hide(message, invisible_ms, seconds)
        finally:
            message.set_idle()

    async def make_sure(self, message: RenewedMessage) -> None:
        """Returns once it is known which handle the message has; raises as `PopClient.hide` does,
        `StatusError` (INVALID_RECEIPT_HANDLE) where it has one that nobody knows."""
        while message.is_uncertain:
            if message.is_busy:
                await message.when_idle()
            else:
                hidden_ms = max(message.hidden_until - self._now(), _SURE_MS)
                await self.change(message, hidden_ms, self._patience(message))

    async def _hide(self, message: RenewedMessage, invisible_ms: int, seconds: float) -> None:
        place = message.place
        client = self._clients.get(message.client_id)
        asked_at = self._now()
        try:
            handle = await self._popped.hide(
                place.topic,
                place.group,
                message.handle,
                invisible_ms,
                client,
                seconds,
                is_undelivered=message.is_undelivered,
            )
        except Exception as error:
            # In order, a message keeps its handle.
            if may_be_done(error) and not message.popped.is_orderly:
                message.is_uncertain = True
            raise
        message.handle = handle
        # However late the answer comes: the broker may have hidden it at once.
        message.hidden_until = asked_at + invisible_ms
        message.is_uncertain = False

    def _say(self, place: Place, error: HidingError) -> None:
        if is_for_good(error):
            if self._said_refused.is_due(place.broker_name):
                _log.info(
                    "the message at {place} is hidden no more: {error}", place=place, error=error
                )
        elif self._said_failed.is_due(place.broker_name):
            _log.warn(
                "the message at {place} is not hidden anew: {error}", place=place, error=error
            )

    def _patience(self, message: RenewedMessage) -> float:
        """Returns how many seconds a broker gets to answer: where an answer is missed, nobody knows
        the handle that is good from then on."""
        if message.popped.is_orderly:
            # The handle stays good, and another try may help.
            return ACK_TIMEOUT_SECONDS
        left = (message.hidden_until - self._now()) / 1000
        return min(max(left, ACK_TIMEOUT_SECONDS), _PATIENT_SECONDS)

    def _now(self) -> int:
        return int(self._clock.seconds() * 1000)
