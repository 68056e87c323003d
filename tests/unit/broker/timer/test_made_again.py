"""The timer's files are made again from the log: each message is delivered once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from twisted.internet.testing import MemoryReactorClock

from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.message.names import TIMER_TOPIC
from tests.support.broker import BrokerInMemory
from tests.support.timers import Pair, bodies, delivered, let, timed


def started_again(
    broker: BrokerInMemory, spoil: Callable[[IFiles], object], **store: int
) -> BrokerInMemory:
    """The broker stopped and started again, after something happened to its files."""
    broker.stop()
    spoil(broker.files)
    clock = MemoryReactorClock()
    clock.advance(broker.clock.seconds())
    return BrokerInMemory(broker.files, clock=clock, **store)


def lose_wheel(files: IFiles) -> None:
    files.remove("/store/timerwheel")


def empty_wheel(files: IFiles) -> None:
    files.open("/store/timerwheel").truncate(0)


def lose_log(files: IFiles) -> None:
    files.remove_tree("/store/timerlog")


def lose_both(files: IFiles) -> None:
    lose_wheel(files)
    lose_log(files)


class TestWhatRolled:
    @pytest.mark.parametrize("spoil", [lose_wheel, empty_wheel, lose_log, lose_both])
    def test_it_waits_as_its_copy_only(self, spoil: Callable[[IFiles], object]) -> None:
        broker = BrokerInMemory(timer_roll_window_slot=8)
        for number in range(3):
            timed(broker, b"%d" % number, TIMER_DELAY_SEC=60, UNIQ_KEY=f"u{number}")
        timed(broker, b"no key", TIMER_DELAY_SEC=60)
        timed(broker, b"no key either", TIMER_DELAY_SEC=60)
        let(broker, 30, 0.1)
        assert len(delivered(broker, TIMER_TOPIC)) >= 15
        broker = started_again(broker, spoil, timer_roll_window_slot=8)
        let(broker, 40, 0.1)
        assert bodies(broker) == [b"0", b"1", b"2", b"no key", b"no key either"]

    def test_what_began_to_wait_late_is_not_lost(self) -> None:
        """The time of its first wait is over, and it has not rolled."""
        broker = BrokerInMemory(timer_roll_window_slot=8, timer_stop_enqueue=True)
        timed(broker, b"late", TIMER_DELAY_SEC=60, UNIQ_KEY="u")
        let(broker, 20, 0.1)
        broker = started_again(broker, lambda files: None, timer_roll_window_slot=8)
        let(broker, 2, 0.1)
        assert len(delivered(broker, TIMER_TOPIC)) == 1
        broker = started_again(broker, lose_both, timer_roll_window_slot=8)
        let(broker, 45, 0.1)
        assert bodies(broker) == [b"late"]

    def test_a_slave_that_begins_later_lets_it_wait_once(self) -> None:
        pair = Pair(timer_roll_window_slot=8)
        timed(pair.master, b"far", TIMER_DELAY_SEC=60, UNIQ_KEY="u")
        let(pair.master, 30, 0.1)
        pair.copy()
        slave = pair.take_over()
        let(slave, 40, 0.1)
        assert bodies(slave) == [b"far"]

    def test_a_recall_of_it_counts(self) -> None:
        broker = BrokerInMemory(timer_roll_window_slot=8)
        timed(broker, b"far", TIMER_DELAY_SEC=60, UNIQ_KEY="u")
        timed(broker, b"0", TIMER_DELAY_SEC=60, UNIQ_KEY="u", TIMER_DEL_UNIQKEY="Topic+u")
        let(broker, 30, 0.1)
        broker = started_again(broker, lose_both, timer_roll_window_slot=8)
        let(broker, 40, 0.1)
        assert bodies(broker) == []
