"""Reads the settings of HA links from a configuration."""

from __future__ import annotations

from typing import Any

import attrs

from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.change import on_change
from rocketmq_tw.config.store import MessageStoreConfig


@attrs.define(kw_only=True)
class HASettings:
    """The HA keys of the store's configuration; times in milliseconds, sizes in bytes."""

    file_size: int
    batch_size: int = 32768
    heartbeat_ms: int = 5000
    housekeeping_ms: int = 20000
    bytes_per_second: int | None = None
    max_gap: int = 256 * 1024 * 1024
    slave_timeout_ms: int = 3000
    in_sync_replicas: int = 1
    min_in_sync_replicas: int = 1
    automatic: bool = False
    all_ack: bool = False
    #: A classic master refuses a send for which it has too few replicas.
    refuses_too_few: bool = False
    not_caught_up_ms: int = 15000
    check_ms: int = 5000
    #: What lines in the log begin with, where several brokers write into it.
    log_name: str = ""
    #: What they are read from again when it changes; None: nothing.
    source: MessageStoreConfig | None = attrs.field(default=None, repr=False, eq=False)

    def source_changed(self, _: frozenset[str]) -> None:
        """Takes over the keys that may change while the broker runs."""
        if self.source is not None:
            for name, value in _changeable(self.source).items():
                setattr(self, name, value)


def ha_settings(config: MessageStoreConfig, broker: BrokerConfig, log_name: str = "") -> HASettings:
    """Returns the settings of both ends of a link; keys that may change while the broker runs are
    read on each use."""
    limit = config.max_ha_transfer_byte_in_second if config.ha_flow_control_enable else None
    settings = HASettings(
        file_size=config.mapped_file_size_commit_log,
        batch_size=config.ha_transfer_batch_size,
        heartbeat_ms=config.ha_send_heartbeat_interval,
        housekeeping_ms=config.ha_housekeeping_interval,
        bytes_per_second=limit,
        check_ms=broker.check_sync_state_set_period,
        refuses_too_few=broker.enable_slave_acting_master,
        log_name=log_name,
        source=config,
        **_changeable(config),
    )
    on_change(config, settings.source_changed)
    return settings


def _changeable(config: MessageStoreConfig) -> dict[str, Any]:
    """Returns what may change while the broker runs, and is looked at on each use."""
    return {
        "max_gap": config.max_gap,
        "slave_timeout_ms": config.slave_timeout,
        "in_sync_replicas": config.in_sync_replicas,
        "min_in_sync_replicas": config.min_in_sync_replicas,
        "automatic": config.enable_auto_in_sync_replicas,
        "all_ack": config.all_ack_in_sync_state_set,
        "not_caught_up_ms": config.ha_max_time_slave_not_catchup,
    }
