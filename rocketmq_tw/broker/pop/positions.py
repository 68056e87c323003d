"""Where the next pop of a queue begins, ahead of what is committed.

A pop moves the position at once, so that no other one gets the same messages; the group's offset
follows only once the check points up to it are stored. Where one cannot be, the position goes back
to it: its messages were given to nobody.
"""

from __future__ import annotations

from collections import deque

from rocketmq_tw.broker.tables.offsets.table import OffsetTable

#: Topic, group, queue id.
PoppedQueue = tuple[str, str, int]


class Claim:
    """Messages of a queue from `start` up to `end`, which one pop takes."""

    __slots__ = ("end", "queue", "start", "stored")

    def __init__(self, queue: PoppedQueue, start: int, end: int) -> None:
        self.queue = queue
        self.start = start
        self.end = end
        #: Its check point is, or there is none to store.
        self.stored = False


class Positions:
    """Claims of each queue whose check points are on their way into the log."""

    def __init__(self, offsets: OffsetTable) -> None:
        self._offsets = offsets
        self._claims: dict[PoppedQueue, deque[Claim]] = {}

    def next(self, queue: PoppedQueue) -> int | None:
        """Where the next pop begins; None where the committed offset says it."""
        claims = self._claims.get(queue)
        return claims[-1].end if claims else None

    def claim(self, queue: PoppedQueue, start: int, end: int) -> Claim:
        claim = Claim(queue, start, end)
        self._claims.setdefault(queue, deque()).append(claim)
        return claim

    def stored(self, claim: Claim) -> None:
        """The messages of `claim` may be consumed; the offset follows."""
        claim.stored = True
        claims = self._claims.get(claim.queue)
        if claims is None or claim not in claims:
            return
        topic, group, queue_id = claim.queue
        end = None
        while claims and claims[0].stored:
            end = claims.popleft().end
        if not claims:
            del self._claims[claim.queue]
        if end is not None and not self._offsets.has_reset(group, topic, queue_id):
            self._offsets.commit(group, topic, queue_id, end, "pop")

    def failed(self, claim: Claim) -> None:
        """The messages of `claim` are not hidden from anyone: they are popped again, and those
        behind them."""
        claims = self._claims.get(claim.queue)
        if claims is None or claim not in claims:
            return
        while claims.pop() is not claim:
            pass
        if not claims:
            del self._claims[claim.queue]

    def forget(self, queue: PoppedQueue) -> None:
        """The committed offset counts from now on: it was reset."""
        self._claims.pop(queue, None)

    def clear(self) -> None:
        self._claims.clear()
