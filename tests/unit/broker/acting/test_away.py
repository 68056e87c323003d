"""Whether another slave may have acted meanwhile."""

from __future__ import annotations

from twisted.internet.task import Clock

from rocketmq_tw.broker.acting.away import Away
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
