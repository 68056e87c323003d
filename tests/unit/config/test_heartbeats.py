"""How often a broker says that it lives, and after what silence it is taken for gone."""

from __future__ import annotations

import pytest

from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.heartbeats import check_heartbeats
from rocketmq_tw.config.properties import ConfigError

MODES = {
    "enable_slave_acting_master": "broker_not_active_timeout_millis",
    "enable_controller_mode": "controller_heart_beat_timeout_mills",
}


def config_of(mode: str, interval: int, gone_ms: int) -> BrokerConfig:
    values: dict[str, object] = {mode: True, MODES[mode]: gone_ms}
    return BrokerConfig(broker_heartbeat_interval=interval, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("interval", "warns"), [(1, False), (1000, False), (1001, True)])
def test_three_of_them_have_room_or_it_is_warned(mode: str, interval: int, warns: bool) -> None:
    warning = check_heartbeats(config_of(mode, interval, 3000))
    assert bool(warning) == warns
    if warns:
        assert warning.startswith("brokerHeartbeatInterval=1001 is more than a third of ")
        assert "=3000: " in warning


@pytest.mark.parametrize("mode", MODES)
def test_one_that_comes_too_late_by_itself_is_refused(mode: str) -> None:
    assert check_heartbeats(config_of(mode, 2999, 3000))
    with pytest.raises(ConfigError, match=r"brokerHeartbeatInterval=3000 with \w+=3000: "):
        check_heartbeats(config_of(mode, 3000, 3000))


def test_where_nobody_counts_them_they_are_not_compared() -> None:
    assert not check_heartbeats(BrokerConfig(broker_heartbeat_interval=60_000))
