"""A clock that stands still while the process is not at work."""

from twisted.internet.task import Clock

from rocketmq_tw.runtime.waking_time import WakingTime


def started() -> tuple[Clock, WakingTime]:
    clock = Clock()
    clock.advance(100)
    time = WakingTime(clock)
    time.start()
    return clock, time


def test_it_goes_as_its_clock_while_the_process_works() -> None:
    clock, time = started()
    clock.pump([0.5] * 20)
    assert time.now_ms() == 110_000
    clock.advance(1.9)
    assert time.now_ms() == 111_900


def test_a_pause_does_not_count_whoever_looks_first() -> None:
    clock, time = started()
    clock.rightNow += 3600
    assert time.now_ms() == 100_000
    clock.pump([0.5] * 4)
    assert time.now_ms() == 102_000
    clock.advance(30)
    assert time.now_ms() == 102_000


def test_before_its_start_and_behind_its_end_it_is_its_clock() -> None:
    clock = Clock()
    time = WakingTime(clock)
    clock.advance(50)
    assert time.now_ms() == 50_000
    time.start()
    time.stop()
    clock.advance(50)
    assert time.now_ms() == 100_000
    assert not clock.getDelayedCalls()
