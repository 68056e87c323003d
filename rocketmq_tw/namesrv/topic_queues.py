"""Which topics have queues on which brokers, found by topic and by broker alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from rocketmq_tw.wire.bodies.route import QueueData
from rocketmq_tw.wire.bodies.topics import TopicQueueMappingInfo

_NOTHING: Mapping[str, QueueData] = {}


class TopicQueues:
    """Topic -> broker name -> queues. A change costs the same however many topics there are.

    `len()` counts each topic once for each of its brokers.
    """

    def __init__(self) -> None:
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._mappings: dict[str, dict[str, TopicQueueMappingInfo]] = {}
        #: Broker name -> its topics.
        self._of_brokers: dict[str, set[str]] = {}
        self._entries = 0
        #: The topics in order, as they were when somebody asked last, and those that came since.
        self._sorted: list[str] = []
        self._came: list[str] = []
        self._has_lost = False

    def __len__(self) -> int:
        return self._entries

    def of_topic(self, topic: str) -> Mapping[str, QueueData]:
        """Broker name to queues; not to be changed."""
        return self._topics.get(topic, _NOTHING)

    def has(self, topic: str, broker_name: str) -> bool:
        return broker_name in self._topics.get(topic, _NOTHING)

    def of_broker(self, broker_name: str) -> frozenset[str]:
        """The topics of a broker."""
        return frozenset(self._of_brokers.get(broker_name, ()))

    def new_of(self, broker_name: str, topics: Iterable[str]) -> int:
        """How many of `topics` the broker does not have yet."""
        known = self._of_brokers.get(broker_name, set())
        return sum(topic not in known for topic in topics)

    def mappings(self, topic: str) -> dict[str, TopicQueueMappingInfo] | None:
        """Broker name to the mapping of a static topic; None where it has none."""
        return self._mappings.get(topic)

    def put(self, topic: str, queues: QueueData) -> None:
        """Sets the queues that a topic has on `queues.broker_name`."""
        brokers = self._topics.get(topic)
        if brokers is None:
            brokers = self._topics[topic] = {}
            self._came.append(topic)
        name = queues.broker_name
        if name not in brokers:
            self._entries += 1
            self._of_brokers.setdefault(name, set()).add(topic)
        brokers[name] = queues

    def put_mapping(self, topic: str, broker_name: str, info: TopicQueueMappingInfo) -> None:
        """Sets the mapping of a static topic; passed over where the broker has no queues of it,
        with which it would go again."""
        if self.has(topic, broker_name):
            self._mappings.setdefault(topic, {})[broker_name] = info

    def remove(self, topic: str, broker_name: str) -> bool:
        """Forgets a topic of a broker; False where it did not have it."""
        brokers = self._topics.get(topic)
        if brokers is None or broker_name not in brokers:
            return False
        del brokers[broker_name]
        self._entries -= 1
        topics = self._of_brokers[broker_name]
        topics.discard(topic)
        if not topics:
            del self._of_brokers[broker_name]
        mappings = self._mappings.get(topic)
        if mappings is not None:
            mappings.pop(broker_name, None)
        if not brokers:
            del self._topics[topic]
            self._mappings.pop(topic, None)
            self._has_lost = True
        return True

    def remove_broker(self, broker_name: str) -> None:
        """Forgets all topics of a broker."""
        for topic in self.of_broker(broker_name):
            self.remove(topic, broker_name)

    def change_permission(self, broker_name: str, change: Callable[[int], int]) -> int:
        """Changes the permission of all topics of a broker; returns how many those are."""
        topics = self._of_brokers.get(broker_name, ())
        for topic in topics:
            queues = self._topics[topic][broker_name]
            queues.perm = change(queues.perm)
        return len(topics)

    def names(self) -> list[str]:
        """All topics, sorted; not to be changed."""
        if self._came or self._has_lost:
            # What is nearly in order takes one look at each to put it there.
            came = set(self._came)
            found = [one for one in self._sorted if one in self._topics and one not in came]
            found += [one for one in came if one in self._topics]
            found.sort()
            self._sorted, self._came, self._has_lost = found, [], False
        return self._sorted
