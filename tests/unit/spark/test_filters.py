"""Filters that narrow a read before it starts."""

from datetime import UTC, datetime

from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringContains,
)

from rocketmq_tw.spark.filters import QueueFilter
from rocketmq_tw.wire.bodies.queues import MessageQueue

QUEUE = MessageQueue(topic="t", broker_name="b", queue_id=3)


class Clock:
    """A cluster in which offset n was stored at n ms."""

    def first_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        return timestamp_ms


def at(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def test_queues_and_offsets_are_wholly_ours() -> None:
    narrow = QueueFilter()
    left = narrow.push(
        [
            IsNotNull(("queueId",)),
            EqualTo(("topic",), "t"),
            In(("queueId",), (3, 4)),
            GreaterThan(("queueOffset",), 9),
            LessThanOrEqual(("queueOffset",), 20),
        ]
    )
    assert list(left) == []
    assert narrow.takes(QUEUE)
    assert not narrow.takes(MessageQueue(topic="t", broker_name="b", queue_id=5))
    assert not narrow.takes(MessageQueue(topic="u", broker_name="b", queue_id=3))
    assert narrow.start(Clock(), QUEUE, 0) == 10
    assert narrow.start(Clock(), QUEUE, 15) == 15
    assert narrow.end(Clock(), QUEUE, 100) == 21
    assert narrow.end(Clock(), QUEUE, 12) == 12


def test_times_narrow_and_are_looked_at_again() -> None:
    narrow = QueueFilter()
    filters = [
        GreaterThanOrEqual(("storeTimestamp",), at(1000)),
        LessThan(("storeTimestamp",), at(2000)),
    ]
    assert list(narrow.push(filters)) == filters
    assert narrow.start(Clock(), QUEUE, 0) == 1000
    assert 2000 <= narrow.end(Clock(), QUEUE, 9999) <= 2002


def test_the_rest_is_sparks() -> None:
    narrow = QueueFilter()
    filters = [
        EqualTo(("tags",), "a"),
        StringContains(("topic",), "t"),
        IsNotNull(("tags",)),
        In(("queueOffset",), (1, 2)),
    ]
    assert list(narrow.push(filters)) == filters
    assert narrow.takes(QUEUE)
