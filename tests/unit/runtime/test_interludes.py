"""Steps on the reactor with work of a thread in between."""

from collections.abc import Iterator

import pytest
from twisted.internet.task import Clock

from rocketmq_tw.runtime.interludes import in_slices_with
from rocketmq_tw.runtime.slices import Slices
from tests.support.broker import Threads, fired


class Work:
    """Four steps; behind the second and the last one something is left to a thread."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.is_left = False

    def steps(self) -> Iterator[None]:
        for number in range(4):
            assert not self.is_left
            self.done.append(str(number))
            self.is_left = number % 2 == 1
            yield

    def settle(self) -> None:
        self.is_left = False
        self.done.append("settled")


def test_the_next_step_waits_for_the_thread() -> None:
    work, threads, clock = Work(), Threads(eager=False), Clock()
    over = in_slices_with(work.steps(), lambda: work.is_left, work.settle, Slices(clock), threads)
    for _ in range(3):
        clock.advance(0)
    assert work.done == ["0", "1"]
    threads.run()
    for _ in range(3):
        clock.advance(0)
    assert work.done == ["0", "1", "settled", "2", "3"] and not over.called
    threads.run()
    assert over.called and not work.is_left


def test_what_the_thread_raises_ends_it() -> None:
    work, clock = Work(), Clock()

    def fail() -> None:
        raise OSError("the disk")

    over = in_slices_with(work.steps(), lambda: work.is_left, fail, Slices(clock), Threads())
    for _ in range(3):
        clock.advance(0)
    with pytest.raises(OSError, match="the disk"):
        fired(over)
    assert work.done == ["0", "1"]


def test_one_step_is_made_at_once() -> None:
    over = in_slices_with(iter([None]), lambda: False, print, Slices(Clock()), Threads())
    assert over.called
