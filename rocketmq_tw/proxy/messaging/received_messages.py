"""The messages that clients have received, as far as a proxy has to know them: what a client's
receipt handle stands for."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.message.extra_info import ExtraInfo
from rocketmq_tw.proxy.messaging.left_messages import LeftMessages
from rocketmq_tw.proxy.messaging.receipt_handles import ReceiptHandle
from rocketmq_tw.proxy.messaging.renewed_message import (
    OneDelivery,
    Place,
    RenewedMessage,
    message_place,
)
from rocketmq_tw.proxy.messaging.statuses import StatusError
from rocketmq_tw.proxy.proto.messages import Code

#: Messages that are not renewed and remembered since a change of their time got no answer, or its
#: client none.
_MOST_DOUBTED = 10_000
#: Messages that clients are done with and that are remembered, late in their time only.
_MOST_SETTLED = 10_000


class ReceivedMessages:
    """Finds the messages that are renewed by place, client and handle, and by the handle of their
    client those that are renewed no more though it is not over."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._messages: dict[Place, RenewedMessage] = {}
        self._of_client: dict[str, dict[Place, RenewedMessage]] = {}
        self._of_handle: dict[ExtraInfo, RenewedMessage] = {}
        self._left = LeftMessages[RenewedMessage]()
        self._settled = LeftMessages[RenewedMessage]()

    def __len__(self) -> int:
        """How many are renewed."""
        return len(self._messages)

    def __contains__(self, message: RenewedMessage) -> bool:
        """Whether a message is renewed."""
        return self._messages.get(message.place) is message

    @property
    def clients(self) -> int:
        """How many clients have messages that are renewed."""
        return len(self._of_client)

    @property
    def left(self) -> int:
        """How many are remembered that are renewed no more."""
        self._left.forget_over(self._now())
        return len(self._left)

    def number_of(self, client_id: str) -> int:
        """Returns how many of a client's messages are renewed."""
        return len(self._of_client.get(client_id, ()))

    def add(self, message: RenewedMessage) -> None:
        """Takes in a message that is renewed from now on; a former delivery of it is over."""
        place = message.place
        former = self._messages.get(place)
        if former is not None:
            former.hidden_until = self._now()
            self.remove(former)
            self.leave(former)
        self._messages[place] = message
        self._of_client.setdefault(message.client_id, {})[place] = message
        self._of_handle[message.popped] = message

    def find(self, group: str, topic: str, handle: ReceiptHandle) -> RenewedMessage | None:
        """Returns the message of a client's handle; None where it is not renewed, or delivered once
        more."""
        message = self._messages.get(message_place(group, topic, handle))
        return message if message is not None and message.is_of(handle) else None

    def find_left(self, group: str, topic: str, handle: ReceiptHandle) -> RenewedMessage | None:
        """Returns the message of a client's handle that is renewed no more; None where there is
        none, or the handle is over."""
        if not self._left:
            # As mostly; and each acknowledgement asks twice.
            return None
        delivery = OneDelivery(message_place(group, topic, handle), handle.info.pop_time)
        return self._left.get(delivery, self._now())

    def check_received(self, group: str, topic: str, handle: ReceiptHandle) -> None:
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

    def remove(self, message: RenewedMessage) -> None:
        """Forgets a message, which is renewed no more."""
        if message not in self:
            return
        del self._messages[message.place]
        if self._of_handle.get(message.popped) is message:
            del self._of_handle[message.popped]
        # Those of a client that was taken are not there any more.
        of_client = self._of_client.get(message.client_id, {})
        if of_client.get(message.place) is message:
            del of_client[message.place]
            if not of_client:
                del self._of_client[message.client_id]

    def leave(self, message: RenewedMessage) -> None:
        """Remembers one that is renewed no more as long as its client's handle is not over."""
        self._left.add(message, self._now())

    def doubt(self, message: RenewedMessage) -> None:
        """Does as `leave` where there are not too many: a message whose client may have a handle
        that brokers do not accept."""
        self._left.add(message, self._now(), _MOST_DOUBTED)

    def give_up(self, message: RenewedMessage) -> None:
        """Forgets a message, but for what its client's handle stands for where brokers would say OK
        to that one, which is void."""
        self.remove(message)
        if message.may_be_void:
            self.leave(message)

    def settle(self, message: RenewedMessage) -> None:
        """Forgets all of a message, with which its client is done."""
        self._left.discard(message)
        self.remove(message)

    def remember_settled(self, message: RenewedMessage) -> None:
        """Remembers that a client is done with a message as long as its handle is not over, where
        there are not too many."""
        self._settled.add(message, self._now(), _MOST_SETTLED)

    def was_settled(self, message: RenewedMessage) -> bool:
        """Returns whether a client is known to be done with this delivery of a message."""
        return self._settled.get(message.delivery, self._now()) is not None

    def take_client(self, client_id: str) -> Iterator[RenewedMessage]:
        """Returns the messages of a client, which counts no more; each is found until it is
        removed."""
        return iter(self._of_client.pop(client_id, {}).values())

    def take_all(self) -> Iterator[RenewedMessage]:
        """Does as `take_client` with the messages of all clients."""
        of_client, self._of_client = self._of_client, {}
        return chain.from_iterable(each.values() for each in of_client.values())

    def _now(self) -> int:
        return int(self._clock.seconds() * 1000)
