"""How many half messages wait, as stock 5.x keeps it."""

import msgspec
from msgspec import field

from rocketmq_tw.wire.bodies.base import Body
from rocketmq_tw.wire.bodies.data_version import DataVersion


class TransactionCount(msgspec.Struct, rename="camel", kw_only=True):
    """How many, and when that changed, in ms since 1970."""

    count: int = 0
    time_stamp: int = 0


class TransactionCounts(Body):
    """`transactionMetrics`: topic to how many of its half messages wait."""

    transaction_count: dict[str, TransactionCount] = field(default_factory=dict)
    data_version: DataVersion | None = None
