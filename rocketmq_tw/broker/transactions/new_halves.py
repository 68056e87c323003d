"""Half messages that a master keeps in memory for a while, as it has just stored them.

Format: docs/formats/transactions.md.
"""

from __future__ import annotations

from collections.abc import Callable

from rocketmq_tw.broker.transactions.halves import Half

#: Half messages that are kept in memory for a decision that comes soon, and bytes of the largest.
_MAX_REMEMBERED, _MAX_REMEMBERED_BYTES = 1_024, 16_384
#: Bytes that those take at most that are in no queue yet: while nothing is confirmed, they are all
#: that producers send.
_MOST_KEPT_BYTES = 64 << 20
#: Bytes that one takes beside its body and properties.
_OF_EACH = 1024


class NewHalves:
    """Half messages in memory: those that were stored and are in no queue yet, and in `recent`, by
    their position in the log, the last ones, which most decisions are about."""

    def __init__(self, no_room: Callable[[Half], None]) -> None:
        """`no_room` is called with one that was stored and is not kept: nothing comes of it once it
        is in the queue."""
        self._no_room = no_room
        self._sent: Half | None = None
        self._by_offset: dict[int, Half] = {}
        #: Bytes of those.
        self._kept_bytes = 0
        self.recent: dict[int, Half] = {}

    def sent(self, half: Half) -> None:
        """Takes one that is about to be stored, and gets its queue offset then."""
        self._keep_sent()
        self._sent = half

    def stored(self, half: Half) -> None:
        """Takes one that has its queue offset."""
        # The log may have lost one that had this offset.
        self._take(half.offset)
        size = _size_of(half)
        if self._kept_bytes + size > _MOST_KEPT_BYTES:
            self._no_room(half)
            return
        self._kept_bytes += size
        self._by_offset[half.offset] = half

    def arrived(self, offset: int) -> Half | None:
        """Gives out the one that is in the queue now, at `offset`, if it was taken."""
        self._keep_sent()
        return self._take(offset)

    def remember(self, half: Half) -> None:
        """Makes it one of the recent ones, unless it is large."""
        if len(half.message.body) <= _MAX_REMEMBERED_BYTES:
            self.recent[half.message.physical_offset] = half
            if len(self.recent) > _MAX_REMEMBERED:
                del self.recent[next(iter(self.recent))]

    def _take(self, offset: int) -> Half | None:
        half = self._by_offset.pop(offset, None)
        if half is not None:
            self._kept_bytes -= _size_of(half)
        return half

    def _keep_sent(self) -> None:
        sent, self._sent = self._sent, None
        # One that was refused has no offset of its own.
        if sent is not None and sent.message.was_stored:
            self.stored(sent)


def _size_of(half: Half) -> int:
    """Returns about how many bytes it takes in memory, where properties stand twice."""
    message = half.message
    return len(message.body) + 2 * len(message.properties) + _OF_EACH
