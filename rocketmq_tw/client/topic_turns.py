"""Round robin over the queues or brokers of each topic, whatever is asked of other topics."""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Iterator, Sequence
from itertools import count
from operator import attrgetter

from rocketmq_tw.wire.bodies.queues import MessageQueue

#: Topics that are remembered; those that are forgotten begin anew.
_MOST_TOPICS = 10_000


class TopicTurns:
    """Counts up for each topic, for the first one from `first` on and for each further one from the
    next number: a number by chance spreads what many processes, or many starts of one, ask for
    first."""

    def __init__(self, first: int = 0) -> None:
        self._first = first
        self._counters: dict[str, Iterator[int]] = {}

    @classmethod
    def by_chance(cls) -> TopicTurns:
        """Makes one that begins somewhere."""
        return cls(random.randrange(1 << 16))

    def next_number(self, topic: str) -> int:
        """Returns the next number of a topic."""
        return next(self._counter(topic))

    def next_queue(
        self,
        queues: Sequence[MessageQueue],
        avoid: Container[str | None] = (),
        broker_of: Callable[[MessageQueue], str | None] = attrgetter("broker_name"),
    ) -> MessageQueue:
        """Returns the next queue of a broker that is not among `avoid` where there is one. `queues`
        are all of one topic, `broker_of` names a queue's broker."""
        counter = self._counter(queues[0].topic)
        for _ in queues:
            queue = queues[next(counter) % len(queues)]
            if broker_of(queue) not in avoid:
                return queue
        return queue

    def _counter(self, topic: str) -> Iterator[int]:
        counter = self._counters.get(topic)
        if counter is None:
            while len(self._counters) >= _MOST_TOPICS:
                del self._counters[next(iter(self._counters))]
            counter = self._counters[topic] = count(self._first)
            # Few messages of each of many topics are spread too.
            self._first += 1
        return counter
