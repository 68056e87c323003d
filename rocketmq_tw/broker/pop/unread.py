"""Records that a master has put into its revive queues and not read there yet.

The books (`pending.py`) know what was read. With this they know at any moment what waits, also
while slaves have not confirmed the last records, which are in no queue before that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from rocketmq_tw.broker.pop.check_points import (
    CheckPointKey,
    PoppedAt,
    ReviveRecord,
    acknowledged_offsets,
    check_point_key,
    popped_at,
    popped_distances,
)
from rocketmq_tw.wire.bodies.pop import AckMsg

#: An acknowledgement's offsets: the first one and a bit for each from there on, or all where they
#: lie far apart.
_Offsets = tuple[int, int] | frozenset[int]
#: How far the last offset of a bit may be from the first.
_MOST_BITS = 1_024


def _packed(offsets: Sequence[int]) -> _Offsets:
    first = min(offsets, default=0)
    if not offsets or max(offsets) - first >= _MOST_BITS:
        return frozenset(offsets)
    bits = 0
    for offset in offsets:
        bits |= 1 << offset - first
    return first, bits


def _has(offsets: _Offsets, offset: int) -> bool:
    if isinstance(offsets, frozenset):
        return offset in offsets
    first, bits = offsets
    return offset >= first and bits >> offset - first & 1 == 1


class _Point(NamedTuple):
    """A check point, and how far each of its messages is behind its start."""

    key: CheckPointKey
    start: int
    distances: Sequence[int]

    def has(self, offset: int) -> bool:
        return offset - self.start in self.distances


class UnreadRecords:
    """Check points and acknowledgements on their way through the log; `own_name` is the broker's.
    Each is added once, and removed once: when it is read, or could not be stored."""

    def __init__(self, own_name: str) -> None:
        self._own_name = own_name
        self._points: dict[PoppedAt, list[_Point]] = {}
        #: How many acknowledgements there are of the same offsets.
        self._acks: dict[CheckPointKey, Counter[_Offsets]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, record: ReviveRecord) -> None:
        """Takes in a record that is being stored."""
        key = check_point_key(record, self._own_name)
        if isinstance(record, AckMsg):
            self._acks.setdefault(key, Counter())[_packed(acknowledged_offsets(record))] += 1
        else:
            # What was acknowledged before was another one of its name.
            self._count -= self._acks.pop(key, Counter()).total()
            point = _Point(key, record.start_offset, popped_distances(record))
            self._points.setdefault(popped_at(key), []).append(point)
        self._count += 1

    def remove(self, record: ReviveRecord) -> None:
        """Forgets a record; one that was not added is ignored."""
        key = check_point_key(record, self._own_name)
        if isinstance(record, AckMsg):
            acks, offsets = self._acks.get(key), _packed(acknowledged_offsets(record))
            if acks is not None and acks[offsets]:
                acks[offsets] -= 1
                self._count -= 1
                if not acks[offsets]:
                    del acks[offsets]
                if not acks:
                    del self._acks[key]
            return
        points = self._points.get(popped_at(key), [])
        for number, point in enumerate(points):
            if point.key == key:
                del points[number]
                self._count -= 1
                if not points:
                    del self._points[popped_at(key)]
                return

    def clear(self) -> None:
        """Forgets all."""
        self._points, self._acks, self._count = {}, {}, 0

    def has_point(self, key: CheckPointKey) -> bool:
        """Returns whether a check point of this name is on its way."""
        return any(point.key == key for point in self._points.get(popped_at(key), ()))

    def another(self, key: CheckPointKey, offset: int) -> CheckPointKey | None:
        """Returns the name of a check point on its way that has the message at this offset, and
        differs in nothing but the topic or the group; None where there is none."""
        for point in self._points.get(popped_at(key), ()):
            if point.key != key and point.has(offset):
                return point.key
        return None

    def is_acknowledged(self, key: CheckPointKey, offset: int) -> bool:
        """Returns whether an acknowledgement of a check point's message is on its way."""
        return any(_has(offsets, offset) for offsets in self._acks.get(key, ()))
