"""What tells that the process stood still."""

from twisted.internet.task import Clock

from rocketmq_tw.runtime.standstills import Standstills


def test_it_stood_still() -> None:
    clock = Clock()
    standstills = Standstills(clock)
    standstills.start()
    clock.pump([0.5] * 20)
    assert not standstills.since(0)
    before = clock.seconds()
    clock.advance(5)
    after = clock.seconds()
    assert standstills.since(before) and not standstills.since(after)
    clock.pump([0.5] * 20)
    assert standstills.since(before) and not standstills.since(after)


def test_it_is_told_before_the_clock_was_looked_at() -> None:
    """Sockets are read before timers are called."""
    clock = Clock()
    standstills = Standstills(clock)
    standstills.start()
    clock.rightNow += 5
    assert standstills.since(1)


def test_nothing_is_told_that_it_did_not_see() -> None:
    clock = Clock()
    standstills = Standstills(clock)
    clock.advance(100)
    assert not standstills.since(0)
    standstills.start()
    clock.pump([0.5] * 4)
    assert not standstills.since(0)
    standstills.stop()
    clock.advance(100)
    assert not standstills.since(0)
    assert clock.getDelayedCalls() == []
