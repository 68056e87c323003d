"""Tables by pairs of a topic and a group: an index by either of them, and pull offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rocketmq_tw.message.names import pair_key, split_pair

#: Pairs of a topic and a group that are remembered; further ones show what is committed.
MAX_PULLED_PAIRS = 100_000
#: Pairs that one step forgets.
_STEP = 500


class PairIndex:
    """The groups of each topic and the topics of each group."""

    def __init__(self) -> None:
        self._groups: dict[str, set[str]] = {}
        self._topics: dict[str, set[str]] = {}

    def fill(self, keys: Iterable[str]) -> None:
        """Adds all of `keys`."""
        for key in keys:
            self.add(key)

    def add(self, key: str) -> None:
        """Adds the pair of a key `topic@group`."""
        topic, group = split_pair(key)
        self._groups.setdefault(topic, set()).add(group)
        self._topics.setdefault(group, set()).add(topic)

    def discard(self, key: str) -> None:
        """Removes the pair of a key `topic@group`, if it is there."""
        topic, group = split_pair(key)
        for index, name, other in ((self._groups, topic, group), (self._topics, group, topic)):
            others = index.get(name)
            if others is not None:
                others.discard(other)
                if not others:
                    del index[name]

    def take_topic(self, topic: str) -> set[str]:
        """Removes a topic and returns its groups; `discard` is still to be called for each pair."""
        return self._groups.pop(topic, set())

    def take_group(self, group: str) -> set[str]:
        """Removes a group and returns its topics; `discard` is still to be called for each pair."""
        return self._topics.pop(group, set())

    def topics_of(self, group: str) -> set[str]:
        """Returns the topics of a group."""
        return set(self._topics.get(group, ()))

    def groups_of(self, topic: str) -> set[str]:
        """Returns the groups of a topic."""
        return set(self._groups.get(topic, ()))


class PullOffsets:
    """(group, topic) → queue id → where the group's next pull begins: what is between that and the
    group's consumer offset is being consumed. Kept in memory only, as in stock."""

    def __init__(self) -> None:
        self._offsets: dict[str, dict[int, int]] = {}
        self._pairs = PairIndex()

    def note(self, group: str, topic: str, queue_id: int, next_offset: int) -> None:
        """Sets where the next pull begins: the last one was told to go on at `next_offset`."""
        key = pair_key(topic, group)
        queues = self._offsets.get(key)
        if queues is None:
            if len(self._offsets) >= MAX_PULLED_PAIRS:
                return
            queues = self._offsets[key] = {}
            self._pairs.add(key)
        queues[queue_id] = next_offset

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Returns the offset; -1 where none is known."""
        return self._offsets.get(pair_key(topic, group), {}).get(queue_id, -1)

    def clear(self, group: str, topic: str) -> None:
        """Forgets a group's offsets in a topic, since it was reset there."""
        key = pair_key(topic, group)
        if self._offsets.pop(key, None) is not None:
            self._pairs.discard(key)

    def remove_group(self, group: str) -> Iterator[None]:
        """Forgets a group; a step for each 500 topics."""
        for number, topic in enumerate(self._pairs.topics_of(group), 1):
            self.clear(group, topic)
            if number % _STEP == 0:
                yield

    def remove_topic(self, topic: str) -> Iterator[None]:
        """Forgets a topic; a step for each 500 groups."""
        for number, group in enumerate(self._pairs.groups_of(topic), 1):
            self.clear(group, topic)
            if number % _STEP == 0:
                yield

    def all(self) -> Mapping[str, dict[int, int]]:
        """Returns `topic@group` → queue id → offset; the live table."""
        return self._offsets
