"""A broker as administrators and the brokers of its group ask it.

Format: docs/formats/remoting.md.
"""

from rocketmq_tw.wire.headers.base import Header, Long


class GetBrokerConfigResponseHeader(Header):
    """Answer to 26; the body is the .properties text."""

    version: str


class ViewBrokerStatsDataRequestHeader(Header):
    """Request 315."""

    stats_name: str
    stats_key: str


class AddBrokerRequestHeader(Header):
    """Request 902, to a broker container."""

    config_path: str | None = None


class RemoveBrokerRequestHeader(Header):
    """Request 903, to a broker container."""

    broker_name: str
    broker_cluster_name: str
    broker_id: Long


class ExchangeHAInfoRequestHeader(Header):
    """Request 906. `until_stop` is ours: it is answered when the master stops."""

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None
    until_stop: bool | None = None


class ExchangeHAInfoResponseHeader(Header):
    """Answer to 906. Of ours: `stops`, the master stops; `cannot_copy`, the slave cannot write."""

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None
    stops: bool | None = None
    cannot_copy: bool | None = None


class ResetMasterFlushOffsetHeader(Header):
    """Request 908."""

    master_flush_offset: Long
