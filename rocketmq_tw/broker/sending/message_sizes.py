"""Counts how large sent messages are, as stock 5.3.3's histogram `rocketmq_message_size`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from rocketmq_tw.broker.writing.incoming import TopicAndType
from rocketmq_tw.message.types import MESSAGE_TYPES
from rocketmq_tw.metrics.instruments import Histogram, Metric, truth
from rocketmq_tw.store.interface import Appended

#: Upper bounds of the buckets, in bytes, as in stock.
_BOUNDS = (1024, 4 * 1024, 512 * 1024, 1024 * 1024, 2 * 1024 * 1024, 4 * 1024 * 1024)


class MessageSizes:
    """Counts what sent messages take in the log, by topic and type; a batch counts as one message
    of the average size, as in stock. `is_system` tells whether a topic is the system's."""

    def __init__(self, is_system: Callable[[str], bool]) -> None:
        self._is_system = is_system
        self._sizes: Histogram[TopicAndType] = Histogram(
            "rocketmq_message_size", _BOUNDS, self._labels_of
        )

    def metrics(self) -> Iterable[Metric]:
        """Returns the histogram, in bytes."""
        return self._sizes.metrics()

    def forget(self, topics: Iterable[str]) -> None:
        """Ends the series of topics that were removed."""
        self._sizes.forget(
            TopicAndType(topic, type_) for topic in topics for type_ in MESSAGE_TYPES
        )

    def record(self, series: TopicAndType, messages: int, appended: Appended) -> None:
        """Measures so many messages of a topic and type that were appended together."""
        size = appended.end_offset - appended.physical_offset
        self._sizes.record(series, size // messages)

    def _labels_of(self, series: TopicAndType | None) -> Mapping[str, str]:
        if series is None:
            return {}
        is_system = truth(self._is_system(series.topic))
        return {"topic": series.topic, "message_type": series.type.lower(), "is_system": is_system}
