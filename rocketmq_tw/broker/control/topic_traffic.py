"""Tells monitoring what came into each topic and went out to each group: the names are stock
5.3.3's."""

from __future__ import annotations

from collections.abc import Iterator

from rocketmq_tw.broker.stats.traffic import DEAD, GROUP_GET, Traffic
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.writing.incoming import Incoming, TopicAndType
from rocketmq_tw.message.names import split_pair
from rocketmq_tw.metrics.instruments import Metric, counter, truth


class TopicTraffic:
    """Tells what `incoming` has counted by topic and type, `traffic` by topic and group."""

    def __init__(self, tables: Tables, incoming: Incoming, traffic: Traffic) -> None:
        self._topics = tables.topics
        self._incoming = incoming
        self._traffic = traffic

    def metrics(self) -> Iterator[Metric]:
        """Yields messages and bytes, in and out, and the messages given up by groups."""
        for kind, messages, size in self._incoming.totals():
            labels = {} if kind is None else self._kind_labels(kind)
            yield counter("rocketmq_messages_in_total", messages, labels)
            yield counter("rocketmq_throughput_in_total", size, labels)
        for key, (messages, size) in self._traffic.totals(GROUP_GET):
            labels = {} if key is None else self._pair_labels(key)
            yield counter("rocketmq_messages_out_total", messages, labels)
            yield counter("rocketmq_throughput_out_total", size, labels)
        for key, (messages, _) in self._traffic.totals(DEAD):
            labels = {} if key is None else self._pair_labels(key)
            yield counter("rocketmq_send_to_dlq_messages_total", messages, labels)

    def _kind_labels(self, kind: TopicAndType) -> dict[str, str]:
        return {"message_type": kind.type.lower(), **self._labels(kind.topic)}

    def _pair_labels(self, key: str) -> dict[str, str]:
        topic, group = split_pair(key)
        return {"consumer_group": group, **self._labels(topic)}

    def _labels(self, topic: str) -> dict[str, str]:
        return {"topic": topic, "is_system": truth(self._topics.is_system(topic))}
