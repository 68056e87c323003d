"""Receipt handles of clients, as brokers accept them now."""

from __future__ import annotations

from collections.abc import Callable

from rocketmq_tw.proxy.messaging.receipt_handles import ReceiptHandle, parse_receipt_handle
from rocketmq_tw.proxy.messaging.renewal import Renewal, RenewedMessage
from rocketmq_tw.proxy.messaging.statuses import StatusError
from rocketmq_tw.proxy.proto.messaging_pb2 import Code
from rocketmq_tw.runtime.clock import wall_clock_ms


class Claim:
    """A message that a client asks something for, which is renewed only afterwards. `handle` is
    what brokers accept for it; either `done` or `failed` ends the claim."""

    def __init__(
        self, handle: ReceiptHandle, renewal: Renewal, renewed: RenewedMessage | None
    ) -> None:
        self.handle = handle
        self._renewal = renewal
        self._renewed = renewed

    def done(self) -> None:
        """Notes that the client has no more to do with the message."""
        if self._renewed is not None:
            self._renewal.settle(self._renewed)

    def failed(self, error: BaseException) -> None:
        """Notes that it came to nothing: the client may try it again, unless no such message was
        popped."""
        if self._renewed is None:
            return
        if isinstance(error, StatusError) and error.code == Code.INVALID_RECEIPT_HANDLE:
            self._renewal.settle(self._renewed)
        else:
            self._renewal.give_back(self._renewed)


class Claims:
    """Finds what clients' handles stand for. `now_ms` is the time of day."""

    def __init__(self, renewal: Renewal, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        self._renewal = renewal
        self._now_ms = now_ms

    async def claim(self, topic: str, group: str, text: str) -> Claim:
        """Returns the message of a handle; raises `StatusError` (INVALID_RECEIPT_HANDLE) where the
        handle is none, or others may have the message by now."""
        try:
            handle = parse_receipt_handle(text)
        except ValueError as error:
            raise StatusError(Code.INVALID_RECEIPT_HANDLE, str(error)) from None
        renewed = await self._renewal.claim(group, topic, handle)
        if renewed is not None:
            return Claim(renewed.handle, self._renewal, renewed)
        if self._renewal.was_left(group, topic, handle):
            raise StatusError(
                Code.INVALID_RECEIPT_HANDLE,
                "the client had gone, or its receive was cut off, so the message is delivered once"
                " more",
            )
        late = self._now_ms() - handle.visible_at
        if late >= 0:
            raise StatusError(
                Code.INVALID_RECEIPT_HANDLE,
                f"the receipt handle expired {late} ms ago, the message is delivered once more: ask"
                " for a longer invisible duration",
            )
        return Claim(handle, self._renewal, None)
