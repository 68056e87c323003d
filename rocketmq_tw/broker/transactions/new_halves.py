"""Half messages that a master keeps in memory for a while, as it has just stored them.

Format: docs/formats/transactions.md.
"""

from __future__ import annotations

from rocketmq_tw.broker.transactions.halves import Half

#: Half messages that are kept in memory for a decision that comes soon, and bytes of the largest.
_MAX_REMEMBERED, _MAX_REMEMBERED_BYTES = 1_024, 16_384


class NewHalves:
    """Half messages in memory: those that were stored and are in no queue yet, and in `recent`, by
    their position in the log, the last ones, which most decisions are about."""

    def __init__(self) -> None:
        self._sent: Half | None = None
        self._by_offset: dict[int, Half] = {}
        self.recent: dict[int, Half] = {}

    def sent(self, half: Half) -> None:
        """Takes one that is about to be stored, and gets its queue offset then."""
        self._keep_sent()
        self._sent = half

    def stored(self, half: Half) -> None:
        """Takes one that has its queue offset."""
        self._by_offset[half.offset] = half

    def arrived(self, offset: int) -> Half | None:
        """Gives out the one that is in the queue now, at `offset`, if it was taken."""
        self._keep_sent()
        return self._by_offset.pop(offset, None)

    def remember(self, half: Half) -> None:
        """Makes it one of the recent ones, unless it is large."""
        if len(half.message.body) <= _MAX_REMEMBERED_BYTES:
            self.recent[half.message.physical_offset] = half
            if len(self.recent) > _MAX_REMEMBERED:
                del self.recent[next(iter(self.recent))]

    def _keep_sent(self) -> None:
        sent, self._sent = self._sent, None
        # One that was refused has no offset of its own.
        if sent is not None and sent.message.was_stored:
            self._by_offset[sent.offset] = sent
