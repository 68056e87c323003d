"""How far each group has pulled each queue: what is between that and its consumer offset is being
consumed. Kept in memory only, as in stock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rocketmq_tw.broker.tables.pairs import PairIndex, pair_key

#: Pairs of a topic and a group that are remembered; further ones show what is committed.
MAX_PULLED = 100_000
#: Pairs that one step forgets.
_STEP = 500


class PullOffsets:
    """(group, topic) → queue id → where the group's next pull begins."""

    def __init__(self) -> None:
        self._offsets: dict[str, dict[int, int]] = {}
        self._pairs = PairIndex()

    def note(self, group: str, topic: str, queue_id: int, next_offset: int) -> None:
        """A pull was told to go on at `next_offset`."""
        key = f"{topic}@{group}"
        queues = self._offsets.get(key)
        if queues is None:
            if len(self._offsets) >= MAX_PULLED:
                return
            queues = self._offsets[key] = {}
            self._pairs.add(key)
        queues[queue_id] = next_offset

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The offset; -1 where nothing is known."""
        return self._offsets.get(pair_key(topic, group), {}).get(queue_id, -1)

    def clear(self, group: str, topic: str) -> None:
        """The group was reset in the topic: what it has pulled says nothing any more."""
        key = pair_key(topic, group)
        if self._offsets.pop(key, None) is not None:
            self._pairs.discard(key)

    def remove_group(self, group: str) -> Iterator[None]:
        """A step for some topics."""
        for number, topic in enumerate(self._pairs.topics_of(group), 1):
            self.clear(group, topic)
            if number % _STEP == 0:
                yield

    def remove_topic(self, topic: str) -> Iterator[None]:
        """A step for some groups."""
        for number, group in enumerate(self._pairs.groups_of(topic), 1):
            self.clear(group, topic)
            if number % _STEP == 0:
                yield

    def all(self) -> Mapping[str, dict[int, int]]:
        """`topic@group` → queue id → offset; the live table."""
        return self._offsets
