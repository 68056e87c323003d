"""The messages of one queue that a push consumer holds, and which of them are done: a book without
I/O, stock's ProcessQueue."""

from __future__ import annotations

from collections.abc import Iterable

from rocketmq_tw.client.message import ReceivedMessage

#: What is pulled ahead of a queue at most, as in stock's push consumer: messages, bytes of their
#: bodies, unpacked, and between the offsets of the first and the last one.
MAX_AHEAD = 1000
MAX_AHEAD_BYTES = 100 * 1024 * 1024
MAX_AHEAD_SPAN = 2000


class ProcessQueue:
    """Messages may be consumed in any order; the offset to commit is the first one that is not
    done, so that after a crash nothing is left out."""

    def __init__(self, offset: int) -> None:
        #: Where to pull next.
        self.next_offset = offset
        #: By offset; the size stands beside it, as a listener may change the message's body.
        self._open: dict[int, tuple[ReceivedMessage, int]] = {}
        self._bytes = 0
        self._last = offset

    def __len__(self) -> int:
        return len(self._open)

    @property
    def size(self) -> int:
        """Bytes of the bodies that are held, unpacked."""
        return self._bytes

    @property
    def commit_offset(self) -> int:
        """The offset to commit: every message before it is done."""
        for offset in self._open:
            return offset
        return self.next_offset

    @property
    def full(self) -> bool:
        """Whether to wait before the next pull: too many, too large, or too far apart since one
        message takes long."""
        return (
            len(self._open) > MAX_AHEAD
            or self._bytes > MAX_AHEAD_BYTES
            or self.span > MAX_AHEAD_SPAN
        )

    @property
    def span(self) -> int:
        """How far the first and the last open message are apart."""
        return self._last - self.commit_offset if self._open else 0

    def add(self, messages: Iterable[ReceivedMessage], next_offset: int) -> None:
        """Takes what a pull brought, in the order of the queue; pulls go on at `next_offset`."""
        for message in messages:
            size = len(message.body)
            self._open[message.queue_offset] = message, size
            self._bytes += size
            self._last = message.queue_offset
        self.next_offset = next_offset

    def first(self) -> ReceivedMessage | None:
        """Returns the first message that is not done."""
        for message, _ in self._open.values():
            return message
        return None

    def is_open(self, message: ReceivedMessage) -> bool:
        """Returns whether the message counts: it is neither done nor from before a restart."""
        found = self._open.get(message.queue_offset)
        return found is not None and found[0] is message

    def done(self, message: ReceivedMessage) -> None:
        """Notes that the message need not be consumed again."""
        if self.is_open(message):
            _, size = self._open.pop(message.queue_offset)
            self._bytes -= size

    def restart(self, offset: int) -> None:
        """Forgets what is open: pulls go on at `offset`, and others may come at the same
        offsets."""
        self._open.clear()
        self._bytes = 0
        self._last = self.next_offset = offset
