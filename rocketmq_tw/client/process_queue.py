"""The messages of one queue that were pulled and are not consumed yet."""

from collections.abc import Iterable

from rocketmq_tw.client.message import ReceivedMessage

# As in stock's push consumer.
MAX_MESSAGES = 1000
MAX_BYTES = 100 * 1024 * 1024
MAX_SPAN = 2000


class ProcessQueue:
    """Messages may be consumed in any order; the offset to commit is the first one that is not
    done, so that after a crash nothing is left out."""

    def __init__(self, offset: int) -> None:
        #: Where to pull next.
        self.next_offset = offset
        self._open: dict[int, ReceivedMessage] = {}
        self._bytes = 0
        self._last = offset

    def __len__(self) -> int:
        return len(self._open)

    @property
    def size(self) -> int:
        """Bytes of the stored records that are held."""
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
        return len(self._open) > MAX_MESSAGES or self._bytes > MAX_BYTES or self.span > MAX_SPAN

    @property
    def span(self) -> int:
        """How far the first and the last open message are apart."""
        return self._last - self.commit_offset if self._open else 0

    def add(self, messages: Iterable[ReceivedMessage], next_offset: int) -> None:
        """Takes what a pull brought, in the order of the queue; pulls go on at `next_offset`."""
        for message in messages:
            self._open[message.queue_offset] = message
            self._bytes += message.store_size
            self._last = message.queue_offset
        self.next_offset = next_offset

    def first(self) -> ReceivedMessage | None:
        """The first message that is not done."""
        for message in self._open.values():
            return message
        return None

    def done(self, message: ReceivedMessage) -> None:
        """The message need not be consumed again."""
        if self._open.pop(message.queue_offset, None) is not None:
            self._bytes -= message.store_size
