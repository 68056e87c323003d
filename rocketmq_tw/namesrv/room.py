"""Bounds how many brokers and topics a name server has room for, and says which broker gives way to
another one where there is no more."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rocketmq_tw.config.namesrv import NamesrvConfig
from rocketmq_tw.namesrv.brokers import LiveBroker, Registration
from rocketmq_tw.namesrv.living_brokers import LivingBrokers, newest_of_crowd
from rocketmq_tw.namesrv.topic_queues import (
    QUEUE_BYTES,
    TopicQueues,
    size_of_mapping,
    size_of_topics,
)
from rocketmq_tw.wire.bodies.route import MASTER_ID
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

#: More than any cluster has, and little enough for memory.
MAX_BROKERS = 20_000
MAX_QUEUE_ENTRIES = 2_000_000
#: Of one name; each change of one of them looks at the others.
MAX_BROKERS_OF_NAME = 1_000


class Room:
    """Counts the brokers of `living` and the topics of `queues`.

    `addresses` of its methods are those of a group by id; none where the name is new.
    """

    def __init__(self, config: NamesrvConfig, living: LivingBrokers, queues: TopicQueues) -> None:
        self._config = config
        self._living = living
        self._queues = queues

    def check(self, new: Registration, addresses: Mapping[int, str]) -> None:
        """Raises `RequestError` where there is no room for a broker, or for its topics."""
        if new.key not in self._living and len(self._living) >= MAX_BROKERS:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"{MAX_BROKERS} brokers are registered already"
            )
        if new.broker_id not in addresses and len(addresses) >= MAX_BROKERS_OF_NAME:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"{MAX_BROKERS_OF_NAME} brokers named {new.broker_name} are registered already",
            )
        topics = new.topics.topic_config_table
        mappings = sum(
            map(size_of_mapping, (new.topics.topic_queue_mapping_info_map or {}).values())
        )
        size = mappings + len(topics) * QUEUE_BYTES + size_of_topics(topics)
        if not self._has_room(len(topics), size):
            # It may know most of them.
            entries, size = self._queues.new_of(new.broker_name, topics)
            self.check_topics(entries, size + mappings)

    def check_topics(self, entries: int, size: int) -> None:
        """Raises `RequestError` where there is no room for so many topics of brokers, which take
        `size` bytes."""
        if entries and not self._has_room(entries, size):
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"{len(self._queues)} topics of brokers are registered already and take"
                f" {self._queues.size} bytes: there is room for {MAX_QUEUE_ENTRIES}, and for"
                f" {self._config.max_topic_bytes} bytes (maxTopicBytes of the name server)",
            )

    def giving_way(
        self, new: Registration, addresses: Mapping[int, str], clusters: Collection[str]
    ) -> LiveBroker | None:
        """Returns the newest slave of the host that has most members of a full group, or the newest
        broker of the host that has most of all where there are as many as there may be. None where
        there is room, and where the host of `new` has about as many: nobody fills a group, or all
        of them, for others. `clusters` are those that the group is registered for."""
        if new.broker_id in addresses or len(addresses) < MAX_BROKERS_OF_NAME:
            if new.key in self._living or len(self._living) < MAX_BROKERS:
                return None
            return self._living.newest_of_crowd(new.host)
        slaves = [
            live
            for broker_id, address in addresses.items()
            if broker_id != MASTER_ID and (live := self._living.at(address, clusters)) is not None
        ]
        return newest_of_crowd(slaves, new.host)

    def _has_room(self, entries: int, size: int) -> bool:
        return (
            len(self._queues) + entries <= MAX_QUEUE_ENTRIES
            and self._queues.size + size <= self._config.max_topic_bytes
        )
