"""Keeps which topics have queues on which brokers, found by topic and by broker alike."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from heapq import merge
from itertools import islice

from rocketmq_tw.wire.bodies.route import QueueData
from rocketmq_tw.wire.bodies.topics import TopicQueueMappingInfo

_NOTHING: Mapping[str, QueueData] = {}

#: What a topic takes in memory beside its name, each broker that has it, and a mapping; roughly.
TOPIC_BYTES, QUEUE_BYTES, MAPPING_BYTES, MAPPED_QUEUE_BYTES = 450, 250, 400, 130
#: Topics that one step looks at.
_STEP = 500
#: New topics that are sorted at once.
_RUN = 5_000


class TopicQueues:
    """Topic -> broker name -> queues. A change costs the same however many topics there are; work
    on all topics of a broker comes in steps, between which anything may change.

    `len()` counts each topic once for each of its brokers.
    """

    def __init__(self) -> None:
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._mappings: dict[str, dict[str, TopicQueueMappingInfo]] = {}
        #: Broker name -> its topics. What is in `_topics` and not here is about to go.
        self._of_brokers: dict[str, set[str]] = {}
        self._entries = 0
        self._sweeps = 0
        #: About what all takes in memory.
        self.size = 0
        #: The topics in order, as they were when somebody asked last, and those that came since.
        self._sorted: list[str] = []
        self._came: list[str] = []
        self._has_lost = False
        #: More came than there are: topics that come and go while nobody asks. They are sorted
        #: from the beginning then.
        self._is_unsorted = False

    def __len__(self) -> int:
        return self._entries

    def of_topic(self, topic: str) -> Mapping[str, QueueData]:
        """Returns broker name to queues; not to be changed."""
        brokers = self._topics.get(topic, _NOTHING)
        if self._sweeps:
            return {name: queues for name, queues in brokers.items() if self.has(topic, name)}
        return brokers

    def has(self, topic: str, broker_name: str) -> bool:
        """Returns whether a broker has a topic."""
        return topic in self._of_brokers.get(broker_name, ())

    def of_broker(self, broker_name: str) -> frozenset[str]:
        """Returns the topics of a broker."""
        return frozenset(self._of_brokers.get(broker_name, ()))

    def new_of(self, broker_name: str, topics: Iterable[str]) -> tuple[int, int]:
        """Returns how many of `topics` the broker does not have yet, and what they would take in
        memory."""
        known = self._of_brokers.get(broker_name, set())
        new = [topic for topic in topics if topic not in known]
        unheard = [topic for topic in new if topic not in self._topics]
        return len(new), len(new) * QUEUE_BYTES + size_of_topics(unheard)

    def mappings(self, topic: str) -> dict[str, TopicQueueMappingInfo] | None:
        """Returns broker name to the mapping of a static topic; None where it has none."""
        mappings = self._mappings.get(topic)
        if mappings and self._sweeps:
            return {name: info for name, info in mappings.items() if self.has(topic, name)}
        return mappings

    def put(self, topic: str, queues: QueueData) -> None:
        """Sets the queues that a topic has on `queues.broker_name`."""
        brokers = self._topics.get(topic)
        if brokers is None:
            brokers = self._topics[topic] = {}
            self._note_new(topic)
            self.size += TOPIC_BYTES + len(topic)
        name = queues.broker_name
        if name not in brokers:
            self._entries += 1
            self.size += QUEUE_BYTES
        elif self._sweeps and not self.has(topic, name):
            # It was about to go, and its mapping with it.
            self._forget_mapping(self._mappings.get(topic, {}), name)
        self._of_brokers.setdefault(name, set()).add(topic)
        brokers[name] = queues

    def put_mapping(self, topic: str, broker_name: str, info: TopicQueueMappingInfo) -> None:
        """Sets the mapping of a static topic. Ignored where the broker has no queues of it: nothing
        would remove the mapping."""
        if self.has(topic, broker_name):
            mappings = self._mappings.setdefault(topic, {})
            self._forget_mapping(mappings, broker_name)
            mappings[broker_name] = info
            self.size += size_of_mapping(info)

    def remove(self, topic: str, broker_name: str) -> bool:
        """Forgets a topic of a broker; False where it did not have it."""
        brokers = self._topics.get(topic)
        if brokers is None or broker_name not in brokers:
            return False
        del brokers[broker_name]
        self._entries -= 1
        self.size -= QUEUE_BYTES
        topics = self._of_brokers.get(broker_name)
        if topics is not None:
            topics.discard(topic)
            if not topics:
                del self._of_brokers[broker_name]
        mappings = self._mappings.get(topic)
        if mappings is not None:
            self._forget_mapping(mappings, broker_name)
        if not brokers:
            del self._topics[topic]
            self._mappings.pop(topic, None)
            self._has_lost = True
            self.size -= TOPIC_BYTES + len(topic)
        return True

    def remove_broker(self, broker_name: str) -> Iterator[None]:
        """Forgets all topics of a broker: they are invisible from now on, and the steps free their
        memory."""
        topics = self._of_brokers.pop(broker_name, None)
        if topics is None:
            return iter(())
        self._sweeps += 1
        self._has_lost = True
        return self._sweep(topics, broker_name)

    def _sweep(self, topics: Iterable[str], broker_name: str) -> Iterator[None]:
        try:
            for number, topic in enumerate(topics):
                # A broker of this name may be back, with topics.
                if not self.has(topic, broker_name):
                    self.remove(topic, broker_name)
                if number % _STEP == _STEP - 1:
                    yield
        finally:
            self._sweeps -= 1

    def change_permission(
        self,
        broker_name: str,
        change: Callable[[int], int],
        changed: dict[tuple[int, int], int] | None = None,
    ) -> Iterator[None]:
        """Changes the permission of all topics that a broker has now; counts in `changed`, by new
        and old permission, the topics whose permission is another now."""
        for number, topic in enumerate(self.of_broker(broker_name)):
            queues = self._topics.get(topic, _NOTHING).get(broker_name)
            if queues is not None:
                before, queues.perm = queues.perm, change(queues.perm)
                if changed is not None and queues.perm != before:
                    kind = queues.perm, before
                    changed[kind] = changed.get(kind, 0) + 1
            if number % _STEP == _STEP - 1:
                yield

    def count_of(self, broker_name: str) -> int:
        """Returns how many topics a broker has."""
        return len(self._of_brokers.get(broker_name, ()))

    def names(self, found: list[str]) -> Iterator[None]:
        """Adds all topics to `found`, sorted. Finish the steps of one call before the next."""
        if self._came or self._has_lost or self._is_unsorted:
            yield from self._sort()
        found += self._sorted

    def _note_new(self, topic: str) -> None:
        if self._is_unsorted:
            return
        self._came.append(topic)
        if len(self._came) > len(self._topics) + _RUN:
            self._is_unsorted = True
            self._sorted, self._came = [], []

    def _sort(self) -> Iterator[None]:
        if self._is_unsorted:
            self._is_unsorted = False
            self._sorted, self._came = [], list(self._topics)
        came, self._came, self._has_lost = self._came, [], False
        try:
            self._sorted = yield from self._merged(came)
            came = []
        finally:
            self._came += came

    def _merged(self, came: list[str]) -> Generator[None, None, list[str]]:
        runs = [self._sorted]
        for start in range(0, len(came), _RUN):
            if start:
                yield
            runs.append(sorted(came[start : start + _RUN]))
        merged = merge(*runs)
        found: list[str] = []
        while part := list(islice(merged, _STEP)):
            if found:
                yield
            for topic in part:
                if self.of_topic(topic) and (not found or found[-1] != topic):
                    found.append(topic)
        return found

    def _forget_mapping(self, mappings: dict[str, TopicQueueMappingInfo], broker_name: str) -> None:
        info = mappings.pop(broker_name, None)
        if info is not None:
            self.size -= size_of_mapping(info)


def size_of_topics(topics: Iterable[str]) -> int:
    """Returns what the topics take in memory without their queues, roughly."""
    names = list(topics)
    return len(names) * TOPIC_BYTES + sum(map(len, names))


def size_of_mapping(info: TopicQueueMappingInfo) -> int:
    """Returns what a mapping takes in memory, roughly."""
    names = len(info.topic or "") + len(info.scope or "") + len(info.bname or "")
    return MAPPING_BYTES + names + MAPPED_QUEUE_BYTES * len(info.curr_id_map)
