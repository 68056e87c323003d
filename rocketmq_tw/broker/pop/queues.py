"""Chooses the queues that a pop, a peek or a notification looks at, and their order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rocketmq_tw.broker.pop.check_points import PoppedQueue
from rocketmq_tw.broker.tables.topics.table import TopicTable
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.message.names import pop_retry_topic
from rocketmq_tw.wire.bodies.topics import TopicConfig

#: How often, in percent, peeks and notifications look at the group's retry topics first, as in
#: stock.
_RETRY_FIRST = 20


class PopQueues:
    """Queues of topics and of their groups' retry topics. `luck`, a number from 0 to 99, is drawn
    for each request and spreads requests over the queues."""

    def __init__(self, config: BrokerConfig, topics: TopicTable) -> None:
        self._config = config
        self._topics = topics

    def of_topic(self, topic: TopicConfig, group: str, luck: int) -> Iterator[PoppedQueue]:
        """Yields all queues of a topic; which one is the first depends on `luck`."""
        count = topic.read_queue_nums
        for step in range(count):
            yield topic.topic_name, group, (luck + step) % count

    def retry_first(self, luck: int) -> bool:
        """Returns whether a pop takes from the retry topics first; now and then it does, so that
        neither they nor the topic wait for ever."""
        return luck < self._config.pop_from_retry_probability

    def retry_topics(self, topic: str, group: str, luck: int) -> Sequence[TopicConfig]:
        """Returns the retry topics that a pop looks at, one after the other until one has
        messages."""
        return self._existing(topic, group, (1, 2) if luck % 2 == 0 else (2, 1))

    def to_peek_at(self, topic: str, group: str, queue_id: int, luck: int) -> Iterator[PoppedQueue]:
        """Yields the queue, or all of the topic where `queue_id` is negative, and the queues of the
        group's retry topics, which sometimes come first, as `luck` decides."""
        retries = self._existing(topic, group, (2, 1))
        of_retries = [queue for found in retries for queue in self.of_topic(found, group, 0)]
        if luck < _RETRY_FIRST:
            yield from of_retries
        if queue_id >= 0:
            yield topic, group, queue_id
        else:
            found = self._topics.get(topic)
            if found is not None:
                yield from self.of_topic(found, group, luck)
        if luck >= _RETRY_FIRST:
            yield from of_retries

    def _existing(self, topic: str, group: str, versions: Sequence[int]) -> list[TopicConfig]:
        """Returns the retry topics of these versions that a group has: of both where
        `enableRetryTopicV2` was changed, unless the first version is not wanted any more."""
        config = self._config
        if config.enable_retry_topic_v2 and not config.retrieve_message_from_pop_retry_topic_v1:
            versions = (2,)
        names = (pop_retry_topic(topic, group, version) for version in versions)
        return [found for name in names if (found := self._topics.get(name)) is not None]
