"""Whether another slave may have acted meanwhile, and whether this process stood still."""

from __future__ import annotations

from twisted.internet.task import Clock

from rocketmq_tw.broker.acting.away import Away, Standstill, forgotten_ms
from rocketmq_tw.config.broker import BrokerConfig


def test_who_is_away_again_waits_anew_for_one_that_does_not_tell() -> None:
    """What that one does meanwhile would be passed over at its first failure."""
    clock = Clock()
    away = Away(BrokerConfig(), clock.seconds)
    away.note(None, 1)
    away.note(1, 1)
    assert not away.waited()
    clock.advance(1)
    away.note(None, 1)
    clock.advance(60)
    away.note(1, 1)
    assert away.was_away and not away.waited()
    clock.advance(BrokerConfig().broker_not_active_timeout_millis / 1000)
    away.note(1, 1)
    assert away.waited()


def test_a_process_stands_still_when_name_servers_may_have_forgotten_its_broker() -> None:
    """The last heartbeat may have left as long ago as they come, when the process stopped."""
    clock, config = Clock(), BrokerConfig()
    standstill = Standstill(config, clock.seconds)
    borne = (config.broker_not_active_timeout_millis - config.broker_heartbeat_interval) / 1000
    assert forgotten_ms(config) == borne * 1000
    clock.advance(borne + 0.75)
    assert standstill.seconds(1000) == 0
    clock.advance(0.25)
    assert standstill.seconds(1000) == borne + 1
    standstill.looked()
    assert standstill.seconds(1000) == 0
