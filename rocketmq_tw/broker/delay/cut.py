"""What a delay level delivered behind a place of the log, before that is cut, waits again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rocketmq_tw.broker.assembly.log_cut import LogCut
from rocketmq_tw.broker.delay.levels import (
    DelayLevels,
    delivered_level,
    due_message,
    queue_of,
)
from rocketmq_tw.broker.delay.offsets import DelayOffsets
from rocketmq_tw.broker.interfaces import IMessageStore
from rocketmq_tw.message.names import SCHEDULE_TOPIC
from rocketmq_tw.message.record import RecordHead

#: Waiting messages that are looked at in one step.
STEPS_BACK = 50


class DeliveredBehind:
    """Finds out about what `cut` takes away."""

    def __init__(self, store: IMessageStore, levels: DelayLevels, cut: LogCut) -> None:
        self._store = store
        self._levels = levels
        self._cut = cut
        self._delivered: Counter[int] = Counter()
        #: When the first record there was stored.
        self._since: int | None = None
        cut.keep(SCHEDULE_TOPIC)
        cut.tell(self._see)

    def _see(self, head: RecordHead) -> None:
        since = self._since
        self._since = head.store_timestamp if since is None else min(since, head.store_timestamp)
        level = delivered_level(head)
        if level is not None:
            self._delivered[min(level, self._levels.max_level)] += 1

    def take_back(self, offsets: DelayOffsets) -> Iterator[None]:
        """Takes each level's offset back, in steps, by as many messages as were delivered there,
        and by all that were due since the first record there: that one may come twice, and none is
        missing. Nothing is delivered meanwhile."""
        if self._since is not None:
            for level in range(1, self._levels.max_level + 1):
                stored_since = self._since - self._levels.delay_ms(level)
                yield from self._level_back(offsets, level, stored_since)

    def _level_back(self, offsets: DelayOffsets, level: int, stored_since: int) -> Iterator[None]:
        """Goes back by what was delivered, and by all that are stored since a time."""
        cut, queue_id, known = self._cut, queue_of(level), offsets.get(level)
        back = min(known, cut.end_of(SCHEDULE_TOPIC, queue_id))
        # Of what was delivered, this waited behind the cut itself.
        waited_there = min(known - back, cut.count_gone(SCHEDULE_TOPIC, queue_id))
        count = self._delivered[level] - waited_there
        least = self._store.min_queue_offset(SCHEDULE_TOPIC, queue_id)
        for offset in range(back - 1, least - 1, -1):
            message = cut.message(SCHEDULE_TOPIC, queue_id, offset)
            if message is not None:
                if count <= 0 and message.store_timestamp < stored_since:
                    break
                # Any other was passed over, not delivered.
                count -= due_message(message) is not None
                back = offset
            if offset % STEPS_BACK == 0:
                yield
        if back < known:
            offsets.set(level, back)
