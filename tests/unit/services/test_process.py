import time

from twisted.internet.selectreactor import SelectReactor
from twisted.internet.task import Clock

from rocketmq_tw.services.process import use_monotonic_time


def test_timers_of_a_reactor_by_the_wall_clock_survive_when_that_is_set() -> None:
    reactor = SelectReactor()
    assert reactor.seconds is time.time, "Twisted's own choice; with another there is nothing to do"
    use_monotonic_time(reactor)
    before = time.monotonic()
    call = reactor.callLater(10, lambda: None)
    assert before + 10 <= call.getTime() <= time.monotonic() + 10


def test_calls_that_wait_already_keep_their_clock() -> None:
    reactor = SelectReactor()
    reactor.callLater(10, lambda: None)
    use_monotonic_time(reactor)
    assert reactor.seconds is time.time


def test_a_clock_of_its_own_is_left_alone() -> None:
    clock = Clock()
    own = clock.seconds
    use_monotonic_time(clock)
    assert clock.seconds == own
