"""What time it is at brokers, by answers some of which come late."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock

from rocketmq_tw.proxy.messaging.broker_times import BrokerTimes
from rocketmq_tw.proxy.messaging.receipt_handles import parse_receipt_handle

#: Of the broker, in ms since 1970, when the clock begins.
EPOCH = 1_700_000_000_000
INVISIBLE_MS = 60_000


class World:
    """A proxy that a broker tells its time."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.times = BrokerTimes(self.clock)
        self.shift_ms = 0

    def answer(self, waited: float = 0, late: float = 0) -> None:
        """The broker answers after it waited so many seconds; that comes so many later."""
        asked_at = self.clock.seconds()
        self.clock.advance(waited)
        time_ms = self._broker_ms()
        self.clock.advance(late)
        self.times.heard("a", time_ms, asked_at)

    def error_ms(self) -> int:
        """How much too late the proxy thinks that a message comes back that is popped now."""
        handle = parse_receipt_handle(f"0 {self._broker_ms() - 1000} {INVISIBLE_MS} 3 0 a 0 0 4096")
        return self.times.left_ms(handle) - (INVISIBLE_MS - 1000)

    def _broker_ms(self) -> int:
        return EPOCH + int(self.clock.seconds() * 1000) + self.shift_ms


@pytest.mark.parametrize("late", [0.9, 6])
@pytest.mark.parametrize("pause", [0, 20, 300])
def test_late_answers_change_nothing(pause: float, late: float) -> None:
    world = World()
    world.answer()
    world.clock.advance(pause)
    for _ in range(5):
        world.answer(late=late)
        assert world.error_ms() == 0


@pytest.mark.parametrize("late", [6, 20])
def test_a_sooner_answer_counts_at_once(late: float) -> None:
    world = World()
    world.answer(late=0.9)
    assert world.error_ms() == 900
    world.answer(late=0.1)
    assert world.error_ms() == 100
    world.answer(late=late)
    assert world.error_ms() == 100


@pytest.mark.parametrize("seconds", [-3_600, -10, -2, 2, 3_600])
def test_a_clock_that_is_set_is_followed_with_the_next_answer(seconds: int) -> None:
    world = World()
    world.answer()
    world.shift_ms = seconds * 1000
    world.answer(late=0.1)
    assert world.error_ms() in (0, 100)


def test_a_clock_that_was_set_back_by_less_than_pops_wait_is_followed_after_a_minute() -> None:
    world = World()
    world.answer()
    world.shift_ms = -10_000
    for _ in range(4):
        world.answer(waited=18)
    assert world.error_ms() == 0


def test_of_a_broker_that_told_nothing_the_whole_time_counts() -> None:
    assert World().error_ms() == 1000
