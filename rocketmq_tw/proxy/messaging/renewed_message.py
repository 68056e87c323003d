"""A message that is kept hidden while its client works on it: where it is, and what is known of
it."""

from __future__ import annotations

from typing import NamedTuple

from twisted.internet.defer import Deferred, succeed

from rocketmq_tw.proxy.messaging.receipt_handles import ReceiptHandle
from rocketmq_tw.runtime.waiters import Waiters


class Place(NamedTuple):
    """Where a message is; a group has one delivery of it at a time."""

    group: str
    topic: str
    broker_name: str
    kind: str
    queue_id: int
    offset: int


class OneDelivery(NamedTuple):
    """One delivery of the message at a place; `pop_time` is in ms."""

    place: Place
    pop_time: int


def message_place(group: str, topic: str, handle: ReceiptHandle) -> Place:
    """Returns where the message is that `group` received from `topic` with a handle."""
    info = handle.info
    return Place(group, topic, info.broker_name, info.kind, info.queue_id, info.offset)


class RenewedMessage:
    """A message that is kept hidden, and is for `left_ms` from `now`, in ms of the clock. `handle`
    is what brokers accept for it now, as far as that is known."""

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
        "is_delivered",
        "is_left",
        "is_queued",
        "is_uncertain",
        "place",
        "popped",
        "received_at",
        "renewals",
        "retries",
        "returns_in",
    )

    def __init__(
        self,
        place: Place,
        handle: ReceiptHandle,
        client_id: str,
        retries: int,
        now: int,
        left_ms: int,
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
        self.handle_ends = self.hidden_until = now + left_ms
        self.renewals = 0
        #: How often it was not hidden, one time after the other.
        self.failures = 0
        #: Requests of the client about the message that are under way.
        self.claims = 0
        #: Whether its client is gone, so that it comes back unless a claim settles it.
        self.is_left = False
        #: Whether its client got it, or may have.
        self.is_delivered = False
        #: In how many ms it is to come back once it is left, where that is not to be soon.
        self.returns_in: int | None = None
        #: Whether a broker may have hidden it without that its answer came: `handle` is void then.
        self.is_uncertain = False
        self.is_busy = False
        self.is_queued = False
        self._waiting: Waiters[None] | None = None

    @property
    def delivery(self) -> OneDelivery:
        """Which delivery of the message this is."""
        return OneDelivery(self.place, self.popped.pop_time)

    @property
    def has_another_handle(self) -> bool:
        """Whether brokers accept another handle than the client's."""
        return self.handle.info != self.popped

    @property
    def may_be_void(self) -> bool:
        """Whether brokers may not accept the client's handle."""
        return self.is_uncertain or self.has_another_handle

    @property
    def is_undelivered(self) -> bool:
        """Whether it comes back without that any client got it, in a group that receives in order:
        brokers of ours give it to others at once, and do not count the delivery."""
        return self.is_left and not self.is_delivered and self.popped.is_orderly

    def is_late(self, now: int) -> bool:
        """Returns whether the time for which it is hidden is over; `now` in ms of the clock."""
        return self.hidden_until <= now

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
