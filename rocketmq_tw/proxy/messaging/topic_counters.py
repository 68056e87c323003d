"""Counts by topic, so that the queues and brokers of each topic take turns whatever is asked of
other topics."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

#: Topics that are remembered; those that are forgotten begin anew.
_MOST_TOPICS = 10_000


class TopicCounters:
    """A counter from 0 on for each topic."""

    def __init__(self) -> None:
        self._counters: dict[str, Iterator[int]] = {}

    def of(self, topic: str) -> Iterator[int]:
        """Returns the counter of a topic, which gives one number after the other."""
        counter = self._counters.get(topic)
        if counter is None:
            while len(self._counters) >= _MOST_TOPICS:
                del self._counters[next(iter(self._counters))]
            counter = self._counters[topic] = count()
        return counter
