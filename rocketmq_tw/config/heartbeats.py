"""Checks that how often a broker says that it lives fits to how soon it is taken for gone."""

from __future__ import annotations

from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.properties import ConfigError

#: Heartbeats that have room in the time after which a broker is taken for gone.
LEAST_BEATS = 3


def check_heartbeats(config: BrokerConfig) -> str:
    """Returns a warning where a late heartbeat or two are enough for others to take the broker for
    gone; an empty text where they are not. Raises `ConfigError` where it would be gone between any
    two: an acting master's group would be without a master again and again."""
    interval = config.broker_heartbeat_interval
    said = f"brokerHeartbeatInterval={interval}"
    for name, gone_ms in _gone_after(config):
        if interval >= gone_ms:
            raise ConfigError(
                f"{said} with {name}={gone_ms}: the broker would be taken for gone between two"
                f" heartbeats; let {LEAST_BEATS} of them have room in that time"
            )
        if interval * LEAST_BEATS > gone_ms:
            return (
                f"{said} is more than a third of {name}={gone_ms}: a broker whose heartbeat is"
                " late is taken for gone"
            )
    return ""


def _gone_after(config: BrokerConfig) -> list[tuple[str, int]]:
    """Returns the keys that say when others take the broker for gone, with their values in ms."""
    found = []
    if config.enable_slave_acting_master:
        found.append(("brokerNotActiveTimeoutMillis", config.broker_not_active_timeout_millis))
    if config.enable_controller_mode:
        found.append(
            ("controllerHeartBeatTimeoutMills", config.controller_heart_beat_timeout_mills)
        )
    return found
