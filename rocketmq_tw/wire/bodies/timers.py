"""How many timed messages wait, as stock 5.x keeps and tells it."""

import msgspec
from msgspec import field

from rocketmq_tw.wire.bodies.base import Body
from rocketmq_tw.wire.bodies.data_version import DataVersion


class TimedCount(msgspec.Struct, rename="camel", kw_only=True):
    """How many, and when that changed, in ms since 1970."""

    count: int = 0
    time_stamp: int = 0


class TimedMessageCounts(Body):
    """`timermetrics` and the answer to 61: topic to how many of its messages wait for a time."""

    timing_count: dict[str, TimedCount] = field(default_factory=dict)
    data_version: DataVersion | None = None
