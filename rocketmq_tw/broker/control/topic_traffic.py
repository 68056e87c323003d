"""What came into each topic and went out to each group, as figures for monitoring: the names are
stock 5.3.3's."""

from __future__ import annotations

from collections.abc import Iterator

from rocketmq_tw.broker.stats.traffic import DEAD, GROUP_GET, TOPIC_PUT, Traffic
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.metrics.instruments import Metric, counter, truth


class TopicTraffic:
    """Tells what `traffic` has counted by topic, and by topic and group."""

    def __init__(self, tables: Tables, traffic: Traffic) -> None:
        self._topics = tables.topics
        self._traffic = traffic

    def metrics(self) -> Iterator[Metric]:
        """Yields messages and bytes, in and out, and the messages given up by groups."""
        for key, (messages, size) in self._traffic.totals(TOPIC_PUT):
            labels = {} if key is None else self._labels(key)
            yield counter("rocketmq_messages_in_total", messages, labels)
            yield counter("rocketmq_throughput_in_total", size, labels)
        for key, (messages, size) in self._traffic.totals(GROUP_GET):
            labels = {} if key is None else self._pair_labels(key)
            yield counter("rocketmq_messages_out_total", messages, labels)
            yield counter("rocketmq_throughput_out_total", size, labels)
        for key, (messages, _) in self._traffic.totals(DEAD):
            labels = {} if key is None else self._pair_labels(key)
            yield counter("rocketmq_send_to_dlq_messages_total", messages, labels)

    def _pair_labels(self, key: str) -> dict[str, str]:
        topic, _, group = key.partition("@")
        return {"consumer_group": group, **self._labels(topic)}

    def _labels(self, topic: str) -> dict[str, str]:
        return {"topic": topic, "is_system": truth(self._topics.is_system(topic))}
