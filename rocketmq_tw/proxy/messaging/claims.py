"""Receipt handles of clients, as brokers accept them now."""

from __future__ import annotations

from rocketmq_tw.proxy.messaging.broker_times import BrokerTimes
from rocketmq_tw.proxy.messaging.receipt_handles import ReceiptHandle, parse_receipt_handle
from rocketmq_tw.proxy.messaging.renewal import Renewal
from rocketmq_tw.proxy.messaging.renewed_message import RenewedMessage
from rocketmq_tw.proxy.messaging.statuses import StatusError
from rocketmq_tw.proxy.proto.messages import Code


def handle_of(text: str) -> ReceiptHandle:
    """Returns what a client's receipt handle says; raises `StatusError` (INVALID_RECEIPT_HANDLE)
    where it is none."""
    try:
        return parse_receipt_handle(text)
    except ValueError as error:
        raise StatusError(Code.INVALID_RECEIPT_HANDLE, str(error)) from None


class Claim:
    """A message that a client asks something for, which is renewed only afterwards. `done`,
    `failed`, `give_back` or a `hide` that succeeds ends the claim."""

    def __init__(self, renewal: Renewal, message: RenewedMessage) -> None:
        self._renewal = renewal
        self._message = message

    @property
    def handle(self) -> ReceiptHandle:
        """What brokers accept for the message."""
        return self._message.handle

    @property
    def is_late(self) -> bool:
        """Whether others may have the message by now."""
        return self._renewal.is_late(self._message)

    async def make_sure(self) -> None:
        """Has an acknowledgement, which follows at once, not come to nothing; raises as
        `Renewal.make_sure` does where it would."""
        await self._renewal.make_sure(self._message)

    async def hide(self, invisible_ms: int) -> ReceiptHandle:
        """Hides the message for a time from now on, and returns its handle from now on; raises as
        `PopClient.hide` does."""
        return await self._renewal.change(self._message, invisible_ms)

    def unheard(self) -> None:
        """Notes that the client did not hear of the handle from a `hide` that succeeded: the one
        that it has goes on to count."""
        self._renewal.remember(self._message)

    def done(self) -> None:
        """Notes that the client has no more to do with the message."""
        self._renewal.settle(self._message)

    def failed(self, error: BaseException) -> None:
        """Notes that it came to nothing: the client may try it again, unless no such message was
        popped."""
        if isinstance(error, StatusError) and error.code == Code.INVALID_RECEIPT_HANDLE:
            self._renewal.void(self._message)
        else:
            self.give_back()

    def give_back(self) -> None:
        """Notes that nothing was asked for."""
        self._renewal.give_back(self._message)


class Claims:
    """Finds what clients' handles stand for."""

    def __init__(self, renewal: Renewal, times: BrokerTimes) -> None:
        self._renewal = renewal
        self._times = times

    async def claim(self, client_id: str, topic: str, group: str, handle: ReceiptHandle) -> Claim:
        """Returns the message of a client's handle; raises `StatusError` (INVALID_RECEIPT_HANDLE)
        where others may have the message by now."""
        claim = await self.find(client_id, topic, group, handle)
        if claim is not None:
            return claim
        if self._renewal.was_left(group, topic, handle):
            raise StatusError(
                Code.INVALID_RECEIPT_HANDLE,
                "the message is delivered once more: its client had gone, its receive was cut off,"
                " or its time was changed",
            )
        # Brokers say OK to an acknowledgement that comes too late.
        late_ms = -self._times.left_ms(handle)
        raise StatusError(
            Code.INVALID_RECEIPT_HANDLE,
            f"the receipt handle expired {late_ms} ms ago, the message is delivered once more:"
            " ask for a longer invisible duration",
        )

    async def find(
        self, client_id: str, topic: str, group: str, handle: ReceiptHandle
    ) -> Claim | None:
        """Returns the message of a client's handle; None where others may have it by now."""
        message = await self._renewal.claim(group, topic, handle)
        if message is not None:
            return Claim(self._renewal, message)
        left_ms = self._times.left_ms(handle)
        if left_ms <= 0 or self._renewal.was_left(group, topic, handle):
            return None
        is_known = self._times.has_heard_of(handle.info.broker_name)
        least_ms = left_ms if is_known else 0
        message = await self._renewal.claim_unrenewed(
            client_id, group, topic, handle, left_ms, least_ms
        )
        return Claim(self._renewal, message)
