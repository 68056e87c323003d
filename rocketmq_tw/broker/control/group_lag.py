"""Tells monitoring how far groups are behind: the names are stock 5.3.3's.

A message of a queue is consumed below the group's committed offset, in flight up to where it was
pulled, and ready behind that.
"""

from __future__ import annotations

from collections.abc import Iterator

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.message.names import RETRY_PREFIX, SYSTEM_GROUP_PREFIX
from rocketmq_tw.metrics.instruments import Metric, gauge, truth
from rocketmq_tw.store.interface import IMessageStore

#: Pairs of a group and a topic that are told of; the limit of stock's exporter divided by its
#: figures of a pair.
MAX_LAG_PAIRS = 10_000


class GroupLag:
    """Compares consumer offsets with the ends of the queues."""

    def __init__(self, host: Host, tables: Tables, store: IMessageStore) -> None:
        self._now_ms = host.now_ms
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._store = store

    def metrics(self) -> Iterator[Metric]:
        """Yields five figures for each group and topic that it has offsets in."""
        pairs = 0
        for group in list(self._groups.all()):
            for topic in sorted(self._offsets.topics_of(group)):
                if pairs == MAX_LAG_PAIRS:
                    return
                if self._topics.get(topic) is not None:
                    pairs += 1
                    yield from self._of_pair(group, topic)

    def _of_pair(self, group: str, topic: str) -> Iterator[Metric]:
        store, pulled = self._store, self._offsets.pulled
        lag = in_flight = ready = 0
        unconsumed = unpulled = now = self._now_ms()
        for queue_id, offset in list(self._offsets.of(group, topic).items()):
            end = store.max_queue_offset(topic, queue_id)
            consumed = min(max(offset, store.min_queue_offset(topic, queue_id)), end)
            read = min(max(consumed, pulled.query(group, topic, queue_id)), end)
            lag += end - consumed
            in_flight += read - consumed
            ready += end - read
            unconsumed = min(unconsumed, self._stored_at(topic, queue_id, consumed, end, now))
            unpulled = min(unpulled, self._stored_at(topic, queue_id, read, end, now))
        is_system = self._topics.is_system(topic) or group.startswith(SYSTEM_GROUP_PREFIX)
        labels = {
            "consumer_group": group,
            "topic": topic,
            "is_retry": truth(topic.startswith(RETRY_PREFIX)),
            "is_system": truth(is_system),
        }
        yield gauge("rocketmq_consumer_lag_messages", lag, labels)
        yield gauge("rocketmq_consumer_inflight_messages", in_flight, labels)
        yield gauge("rocketmq_consumer_ready_messages", ready, labels)
        lag_ms, queueing_ms = now - unconsumed, now - unpulled
        yield gauge("rocketmq_consumer_lag_latency", lag_ms, labels, "milliseconds")
        yield gauge("rocketmq_consumer_queueing_latency", queueing_ms, labels, "milliseconds")

    def _stored_at(self, topic: str, queue_id: int, offset: int, end: int, now: int) -> int:
        """Returns when the message at `offset` was stored, in ms; `now` where there is none."""
        stored = self._store.store_time(topic, queue_id, offset) if offset < end else 0
        return stored if stored > 0 else now
