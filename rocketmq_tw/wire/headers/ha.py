"""What brokers of one name tell each other of replication."""

from rocketmq_tw.wire.headers.base import Header, Long


class ExchangeHAInfoRequestHeader(Header):
    """906."""

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


class ExchangeHAInfoResponseHeader(Header):
    """Answer to 906."""

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


class ResetMasterFlushOffsetHeader(Header):
    """908."""

    master_flush_offset: Long
