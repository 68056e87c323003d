"""The timer's files are made again from the log: each message is delivered once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import LogLevel, capturedLogs, formatEvent

from rocketmq_tw.broker.timer.part import Timer
from rocketmq_tw.broker.timer.slots import DueSlot
from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.message.names import TIMER_TOPIC
from rocketmq_tw.store.timer.timer_log import TimerLogReader
from rocketmq_tw.store.timer.unit import TIMER_UNIT_SIZE
from tests.support.broker import BrokerInMemory
from tests.support.stores import START_MS
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


def break_entry(files: IFiles, number: int) -> None:
    """The timer log has no entry there any more."""
    files.open(f"/store/timerlog/{0:020}").pwrite(bytes(TIMER_UNIT_SIZE), number * TIMER_UNIT_SIZE)


NUMBERS = [b"%d" % number for number in range(30)]


class TestASlotThatLacksEntries:
    def fill(self, broker: BrokerInMemory, delay: int = 20) -> None:
        """Thirty messages for one second wait, and their entries are in the file."""
        for body in NUMBERS:
            timed(broker, body, TIMER_DELAY_SEC=delay, UNIQ_KEY=body.decode())
        let(broker, 3, 0.1)

    def test_it_is_noticed_as_it_is_delivered(self) -> None:
        broker = BrokerInMemory()
        timed(broker, b"before", TIMER_DELAY_SEC=2)
        self.fill(broker)
        timed(broker, b"behind", TIMER_DELAY_SEC=30)
        let(broker, 3, 0.1)
        break_entry(broker.files, 4)
        with capturedLogs() as logs:
            let(broker, 40, 0.1)
        assert bodies(broker) == [b"before", *NUMBERS, b"behind"]
        told = [formatEvent(event) for event in logs if event["log_level"] is LogLevel.warn]
        assert any("no entry at 208 of the slot" in line for line in told), told

    def test_a_slave_notices_it_as_it_takes_over(self) -> None:
        pair = Pair()
        self.fill(pair.master)
        pair.copy()
        let(pair.slave, 3, 0.1)
        break_entry(pair.slave.files, 4)
        slave = pair.take_over()
        let(slave, 30, 0.1)
        assert bodies(slave) == NUMBERS

    def test_a_change_of_role_waits_until_all_is_made_again(self) -> None:
        broker = BrokerInMemory()
        self.fill(broker)
        break_entry(broker.files, 4)
        work = broker.broker[Timer].engine.work
        assert work is not None
        broker.threads.eager = False
        for _ in range(300):
            if work._is_between:
                break
            broker.threads.run()
            broker.clock.advance(0.1)
        paused = work.pause()
        assert broker.threads.waiting and not paused.called
        for _ in range(5):
            broker.threads.run()
            broker.clock.advance(0)
        assert paused.called
        broker.threads.eager = True
        work.begin()
        let(broker, 30, 0.1)
        assert bodies(broker) == NUMBERS

    def test_what_is_left_of_a_slot_at_a_stop(self) -> None:
        """Rather twice than not at all."""
        broker = BrokerInMemory()
        for number, body in enumerate(NUMBERS):
            timed(broker, body, TIMER_DELIVER_MS=START_MS + 5000 + 20 * number)
        let(broker, 5.3)
        assert 0 < len(bodies(broker)) < 30
        break_entry(broker.files, len(bodies(broker)))
        broker = started_again(broker, lambda files: None)
        let(broker, 5, 0.1)
        assert set(bodies(broker)) == set(NUMBERS)

    def test_what_is_left_of_a_slot_that_was_open_at_a_stop(self) -> None:
        """The damage is in another slot, and takes the entry behind it away."""
        broker = BrokerInMemory()
        self.fill(broker)
        timed(broker, b"left", TIMER_DELIVER_MS=START_MS + 5700, UNIQ_KEY="left")
        let(broker, 2.3)
        assert bodies(broker) == []
        broker = started_again(broker, lambda files: break_entry(files, 4))
        let(broker, 30, 0.1)
        assert bodies(broker) == [b"left", *NUMBERS]

    def test_it_is_damaged_while_it_is_delivered(self) -> None:
        """Rather twice than not at all."""
        broker = BrokerInMemory()
        for number, body in enumerate(NUMBERS):
            timed(broker, body, TIMER_DELIVER_MS=START_MS + 5000 + 20 * number)
        timed(broker, b"behind", TIMER_DELAY_SEC=8)
        let(broker, 5.3)
        assert 0 < len(bodies(broker)) < 25
        break_entry(broker.files, 25)
        with capturedLogs() as logs:
            let(broker, 20, 0.05)
        came = Counter(bodies(broker))
        assert came.keys() == {*NUMBERS, b"behind"}
        assert max(came.values()) == 2 and came[b"behind"] == 1
        told = [formatEvent(event) for event in logs if event["log_level"] >= LogLevel.warn]
        assert any("no entry at 1300 any more" in line for line in told), told
        assert not any("lost" in line for line in told), told

    def test_a_recall_is_damaged_once_its_slot_is_read(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broker = BrokerInMemory()
        timed(broker, b"stays", TIMER_DELAY_SEC=5, UNIQ_KEY="s")
        timed(broker, b"gone", TIMER_DELAY_SEC=5, UNIQ_KEY="u")
        timed(broker, b"0", TIMER_DELAY_SEC=5, UNIQ_KEY="u", TIMER_DEL_UNIQKEY="Topic+u")
        let(broker, 3, 0.1)
        read = DueSlot.read

        def read_and_break(slot: DueSlot, reader: TimerLogReader, last: int) -> None:
            read(slot, reader, last)
            break_entry(broker.files, 2)
            monkeypatch.undo()

        monkeypatch.setattr(DueSlot, "read", read_and_break)
        let(broker, 10, 0.1)
        assert bodies(broker) == [b"stays"]

    def test_a_disk_that_refuses_meanwhile(self) -> None:
        files = FaultyFiles(MemoryFiles())
        broker = BrokerInMemory(files)
        self.fill(broker)
        break_entry(files, 4)
        files.faults.append(Fault("pwrite", "timercheck", times=3))
        let(broker, 60, 0.1)
        assert bodies(broker) == NUMBERS

    @pytest.mark.parametrize("spoil", [lose_both, lambda files: break_entry(files, 4)])
    def test_a_kill_meanwhile_delivers_nothing_of_before_again(
        self, spoil: Callable[[IFiles], object]
    ) -> None:
        broker = BrokerInMemory()
        for number in range(3):
            timed(broker, b"before %d" % number, TIMER_DELAY_SEC=1)
        self.fill(broker)
        assert len(bodies(broker)) == 3
        broker = started_again(broker, spoil, timer_stop_enqueue=True)
        let(broker, 5, 0.1)
        clock = MemoryReactorClock()
        clock.advance(broker.clock.seconds())
        assert isinstance(broker.files, MemoryFiles)
        again = BrokerInMemory(broker.files.kill(), clock=clock)
        let(again, 30, 0.1)
        assert bodies(again)[3:] == NUMBERS


class TestWhatCameLate:
    """It waits in a slot behind its time, and that one is not delivered yet."""

    def fill(self, broker: BrokerInMemory) -> BrokerInMemory:
        for number in range(5):
            timed(broker, b"%d" % number, TIMER_DELAY_SEC=30, UNIQ_KEY=f"u{number}")
        timed(broker, b"late", TIMER_DELAY_MS=700, UNIQ_KEY="late")
        let(broker, 3, 0.1)
        broker = started_again(broker, lambda files: None, timer_stop_dequeue=True)
        let(broker, 2.2, 0.1)
        assert broker.broker[Timer].books.queue_offset == 6
        return broker

    @pytest.mark.parametrize("spoil", [lambda files: None, lambda files: break_entry(files, 2)])
    @pytest.mark.parametrize("starts", [1, 2])
    @pytest.mark.parametrize("end", ["stop", "kill"])
    def test_a_start_delivers_it_once(
        self, end: str, starts: int, spoil: Callable[[IFiles], object]
    ) -> None:
        broker = self.fill(BrokerInMemory(timer_stop_enqueue=True))
        for start in range(starts):
            files = broker.files
            assert isinstance(files, MemoryFiles)
            if end == "stop":
                broker.stop()
            else:
                files = files.kill()
            is_last = start == starts - 1
            if is_last:
                spoil(files)
            clock = MemoryReactorClock()
            clock.advance(broker.clock.seconds())
            broker = BrokerInMemory(files, clock=clock, timer_stop_dequeue=not is_last)
            let(broker, 2, 0.1)
        let(broker, 30, 0.1)
        assert bodies(broker) == [b"late", *NUMBERS[:5]]

    def test_a_slave_that_follows_delivers_it(self) -> None:
        pair = Pair()
        pair.master = BrokerInMemory(clock=pair.clock, timer_stop_enqueue=True)
        master = self.fill(pair.master)
        master.stop()
        pair.clock.advance(5.2)
        pair.master = BrokerInMemory(master.files, clock=pair.clock, timer_stop_dequeue=True)
        let(pair.slave, 2, 0.1)
        pair.copy()
        slave = pair.take_over()
        let(slave, 35, 0.1)
        assert bodies(slave) == [b"late", *NUMBERS[:5]]


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
