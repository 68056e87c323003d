"""Moves the offsets of a former slave behind what its former master has delivered.

A slave has its master's offsets as of some place of the log, seconds ago. What was delivered
behind that place stands in the log, with the properties with which it waited. So a new master
passes over the first messages of a level that stand there. What cannot be told apart for sure is
delivered again, as after a crash.

The place is where the master's log ended before it told the offsets, so what was delivered in
between stands behind it and is counted in the offsets already. Rules: docs/controller.md, "Delayed
messages after a change of master".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b

from rocketmq_tw.broker.delay.delivery import BATCH_BYTES, BATCH_MESSAGES
from rocketmq_tw.broker.delay.levels import DelayLevels, delivered_level, queue_of
from rocketmq_tw.broker.delay.offsets import DelayOffsets
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.names import SCHEDULE_TOPIC
from rocketmq_tw.message.record import RecordHead, decode_records
from rocketmq_tw.store.interface import IMessageStore

#: Records of the log that are looked at in one step, and in all; what was delivered behind them is
#: delivered again, as where a slave could not ask its master for long.
STEP_RECORDS = 200
MOST_RECORDS = 1_000_000

#: Level and a hash of the properties.
_Key = tuple[int, bytes]


class CatchUp:
    """Moves `offsets`, which are as of the place `begin` of the log of `store`, in `steps`. All of
    the log is in the queues by then, and nothing is delivered meanwhile."""

    def __init__(
        self, store: IMessageStore, levels: DelayLevels, offsets: DelayOffsets, begin: int
    ) -> None:
        self._store = store
        self._levels = levels
        self._offsets = offsets
        self._begin = begin
        self._delivered: Counter[_Key] = Counter()
        #: How many messages were passed over.
        self.count = 0

    def steps(self) -> Iterator[None]:
        """Yields the steps of the work, to be done in slices; not to go on once the role is over,
        since the log may be cut then."""
        yield from self._count_delivered()
        for level in sorted({level for level, _ in self._delivered}):
            yield from self._pass_over(level)

    def _count_delivered(self) -> Iterator[None]:
        for count, head in enumerate(self._store.records(self._begin), 1):
            if count > MOST_RECORDS:
                return
            self._add(head)
            if count % STEP_RECORDS == 0:
                yield

    def _add(self, head: RecordHead) -> None:
        level = delivered_level(head)
        # Without an id nobody knows that it is this one.
        if level is not None and b"UNIQ_KEY" in head.properties:
            self._delivered[_key(self._levels.waited_at(level, self._store), head.properties)] += 1

    def _pass_over(self, level: int) -> Iterator[None]:
        known = self._offsets.get(level)
        yield from self._leave_out_before(level, known)
        offset, has_more = known, True
        while has_more:
            waiting, _ = self._read(level, offset, BATCH_MESSAGES)
            has_more = bool(waiting)
            for each in waiting:
                if not self._is_delivered(level, each):
                    has_more = False
                    break
                offset = each.queue_offset + 1
            yield
        self.count += offset - known
        self._offsets.set(level, offset)

    def _leave_out_before(self, level: int, known: int) -> Iterator[None]:
        """Leaves out messages in front of `known` that were delivered behind `begin`: they are no
        copies of waiting ones."""
        end, has_more = known, True
        while has_more and end > 0:
            begin = max(0, end - BATCH_MESSAGES)
            waiting: list[StoredMessage] = []
            while begin < end:
                read, begin = self._read(level, begin, end - begin)
                waiting += read
                yield
            has_more = bool(waiting)
            for each in reversed(waiting):
                if each.queue_offset != end - 1 or not self._is_delivered(level, each):
                    has_more = False
                    break
                end = each.queue_offset

    def _read(self, level: int, offset: int, count: int) -> tuple[list[StoredMessage], int]:
        """Reads at most `count` messages from an offset on; returns them with the offset behind
        them."""
        read = self._store.read_queue(SCHEDULE_TOPIC, queue_of(level), offset, count, BATCH_BYTES)
        return list(decode_records(read.data)), max(read.next_offset, offset + 1)

    def _is_delivered(self, level: int, waiting: StoredMessage) -> bool:
        """Returns whether one that was delivered is this one; it stands for no other then."""
        key = _key(level, waiting.properties)
        if not self._delivered[key]:
            return False
        self._delivered[key] -= 1
        return True


def _key(level: int, properties: bytes) -> _Key:
    return level, blake2b(properties, digest_size=16).digest()
