"""Filters that Spark hands down: which queues to leave out and where to start and end in others."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from rocketmq_tw.spark.cluster import SourceCluster
from rocketmq_tw.wire.bodies.queues import MessageQueue

_QUEUE_COLUMNS: dict[str, Callable[[MessageQueue], Any]] = {
    "topic": lambda queue: queue.topic,
    "brokerName": lambda queue: queue.broker_name,
    "queueId": lambda queue: queue.queue_id,
}
_NEVER_NULL = frozenset({*_QUEUE_COLUMNS, "queueOffset", "storeTimestamp", "bornTimestamp", "body"})
_COMPARE: dict[type, Callable[[Any, Any], bool]] = {
    EqualTo: lambda have, want: have == want,
    EqualNullSafe: lambda have, want: have == want,
    In: lambda have, want: have in want,
    GreaterThan: lambda have, want: have > want,
    GreaterThanOrEqual: lambda have, want: have >= want,
    LessThan: lambda have, want: have < want,
    LessThanOrEqual: lambda have, want: have <= want,
}


class QueueFilter:
    """Narrows a read to what a conjunction of filters leaves.

    Filters on topic, broker, queue and offset are carried out wholly. Those on the store time
    narrow the offsets, and Spark looks again at each row, since the times within a queue may
    step back when a broker's clock does.
    """

    def __init__(self) -> None:
        self._queues: list[tuple[Callable[[MessageQueue], Any], Callable[[Any, Any], bool], Any]]
        self._queues = []
        self._least: int | None = None
        self._below: int | None = None
        self._least_time: int | None = None
        self._below_time: int | None = None

    def push(self, filters: Sequence[Filter]) -> Iterable[Filter]:
        """Takes what it can; returns what Spark has to look at again."""
        return [item for item in filters if not self._push(item)]

    def takes(self, queue: MessageQueue) -> bool:
        """Returns whether messages of the queue can pass."""
        return all(compare(column(queue), want) for column, compare, want in self._queues)

    def start(self, cluster: SourceCluster, queue: MessageQueue, offset: int) -> int:
        """Returns where to start in place of `offset`."""
        if self._least is not None:
            offset = max(offset, self._least)
        if self._least_time is not None:
            offset = max(offset, cluster.first_at(queue, self._least_time))
        return offset

    def end(self, cluster: SourceCluster, queue: MessageQueue, offset: int) -> int:
        """Returns where to end in place of `offset`."""
        if self._below is not None:
            offset = min(offset, self._below)
        if self._below_time is not None:
            offset = min(offset, cluster.first_at(queue, self._below_time))
        return offset

    def _push(self, item: Filter) -> bool:
        if isinstance(item, IsNotNull):
            return item.attribute[0] in _NEVER_NULL
        if type(item) not in _COMPARE or len(item.attribute) != 1 or item.value is None:  # type: ignore[attr-defined]
            return False
        column, value = item.attribute[0], item.value  # type: ignore[attr-defined]
        if column in _QUEUE_COLUMNS:
            self._queues.append((_QUEUE_COLUMNS[column], _COMPARE[type(item)], value))
            return True
        if column == "queueOffset":
            return self._push_offset(item, value)
        if column == "storeTimestamp":
            self._push_time(item, value)
        return False

    def _push_offset(self, item: Filter, value: Any) -> bool:
        if not isinstance(value, int):
            return False
        if isinstance(item, EqualTo | EqualNullSafe | GreaterThanOrEqual | GreaterThan):
            least = value + 1 if isinstance(item, GreaterThan) else value
            self._least = least if self._least is None else max(self._least, least)
        if isinstance(item, EqualTo | EqualNullSafe | LessThanOrEqual | LessThan):
            below = value if isinstance(item, LessThan) else value + 1
            self._below = below if self._below is None else min(self._below, below)
        return not isinstance(item, In)

    def _push_time(self, item: Filter, value: Any) -> None:
        if not isinstance(value, datetime):
            return
        # Rounded outwards: the stored times are whole milliseconds.
        floor = int(value.timestamp() * 1000)
        if isinstance(item, EqualTo | EqualNullSafe | GreaterThanOrEqual | GreaterThan):
            self._least_time = max(floor, self._least_time or floor)
        if isinstance(item, EqualTo | EqualNullSafe | LessThanOrEqual | LessThan):
            above = floor + 2
            self._below_time = min(above, self._below_time or above)
