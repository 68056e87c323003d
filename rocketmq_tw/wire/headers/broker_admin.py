"""Configuration and statistics of a broker."""

from rocketmq_tw.wire.headers.base import Header, Long


class GetBrokerConfigResponseHeader(Header):
    """Answer to 26; the body is the .properties text."""

    version: str


class ViewBrokerStatsDataRequestHeader(Header):
    """315."""

    stats_name: str
    stats_key: str


class AddBrokerRequestHeader(Header):
    """902, to a broker container."""

    config_path: str | None = None


class RemoveBrokerRequestHeader(Header):
    """903, to a broker container."""

    broker_name: str
    broker_cluster_name: str
    broker_id: Long
