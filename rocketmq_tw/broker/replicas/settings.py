"""The HA keys of the configuration as the links take them."""

from __future__ import annotations

from typing import Any

from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.change import on_change
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.replication.links.settings import HASettings


def ha_settings(config: MessageStoreConfig, broker: BrokerConfig) -> HASettings:
    """The settings of both ends of a link; those of keys that may change while the broker runs
    follow them."""
    limit = config.max_ha_transfer_byte_in_second if config.ha_flow_control_enable else None
    settings = HASettings(
        file_size=config.mapped_file_size_commit_log,
        batch_size=config.ha_transfer_batch_size,
        heartbeat_ms=config.ha_send_heartbeat_interval,
        housekeeping_ms=config.ha_housekeeping_interval,
        bytes_per_second=limit,
        check_ms=broker.check_sync_state_set_period,
        **_live(config),
    )

    def changed(_: frozenset[str]) -> None:
        for name, value in _live(config).items():
            setattr(settings, name, value)

    on_change(config, changed)
    return settings


def _live(config: MessageStoreConfig) -> dict[str, Any]:
    """What is looked at on each use."""
    return {
        "max_gap": config.max_gap,
        "slave_timeout_ms": config.slave_timeout,
        "in_sync_replicas": config.in_sync_replicas,
        "min_in_sync_replicas": config.min_in_sync_replicas,
        "automatic": config.enable_auto_in_sync_replicas,
        "all_ack": config.all_ack_in_sync_state_set,
        "not_caught_up_ms": config.ha_max_time_slave_not_catchup,
    }
