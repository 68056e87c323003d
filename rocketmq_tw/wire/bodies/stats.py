"""The bodies in which a broker counts and reports of itself: rates, replication, messages that
wait.

Format: docs/formats/bodies.md.
"""

from rocketmq_tw.structs import field, msgspec
from rocketmq_tw.wire.bodies.base import Body, DataVersion


class KVTable(Body):
    """Answer to 28 and 219."""

    table: dict[str, str] = field(default_factory=dict)


class BrokerStatsItem(Body):
    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(Body):
    """Answer to 315."""

    stats_minute: BrokerStatsItem | None = None
    stats_hour: BrokerStatsItem | None = None
    stats_day: BrokerStatsItem | None = None


class HAConnectionInfo(Body):
    """A slave as its master sees it."""

    addr: str | None = None
    slave_ack_offset: int = 0
    diff: int = 0
    in_sync: bool = False
    transferred_byte_in_second: int = 0
    transfer_from_where: int = 0


class HAClientInfo(Body):
    """A master as its slave sees it."""

    master_addr: str | None = None
    transferred_byte_in_second: int = 0
    max_offset: int = 0
    last_read_timestamp: int = 0
    last_write_timestamp: int = 0
    master_flush_offset: int = 0


class HARuntimeInfo(Body):
    """Answer to 907."""

    master: bool = False
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    ha_connection_info: list[HAConnectionInfo] = field(default_factory=list)
    ha_client_runtime_info: HAClientInfo | None = field(default_factory=HAClientInfo)


class TimedCount(msgspec.Struct, rename="camel", kw_only=True):
    """How many, and when that changed, in ms since 1970."""

    count: int = 0
    time_stamp: int = 0


class TimedMessageCounts(Body):
    """`timermetrics` and the answer to 61: topic to how many of its messages wait for a time."""

    timing_count: dict[str, TimedCount] = field(default_factory=dict)
    data_version: DataVersion | None = None


class TransactionCount(msgspec.Struct, rename="camel", kw_only=True):
    """How many, and when that changed, in ms since 1970."""

    count: int = 0
    time_stamp: int = 0


class TransactionCounts(Body):
    """`transactionMetrics`: topic to how many of its half messages wait."""

    transaction_count: dict[str, TransactionCount] = field(default_factory=dict)
    data_version: DataVersion | None = None
