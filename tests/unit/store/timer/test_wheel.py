"""The wheel's file, in the bytes that stock 5.3.3 writes."""

from __future__ import annotations

import random

import pytest

from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.store.errors import DamagedStoreError
from rocketmq_tw.store.timer.wheel import SLOT_SIZE, Slot, TimerWheel

PATH = "/store/timerwheel"
#: Not a multiple of a page's slots.
SLOTS = 1000
START = 1_700_000_000_000


def make(files: IFiles, since_ms: int = START, precision_ms: int = 1000) -> TimerWheel:
    files.make_dirs("/store")
    wheel = TimerWheel(files, PATH, precision_ms, slots=SLOTS)
    wheel.load(since_ms)
    return wheel


def round_of(wheel: TimerWheel) -> int:
    """The time of one round in ms: times that far apart share a slot."""
    return wheel.slots * wheel.precision_ms


def written(wheel: TimerWheel) -> None:
    wheel.write(wheel.take_dirty())


def test_a_slot_has_stocks_bytes() -> None:
    files = MemoryFiles()
    wheel = make(files)
    wheel.put(START + 5_999, Slot(0, 104, 3))
    written(wheel)
    data = files.read(PATH)
    assert len(data) == SLOTS * SLOT_SIZE == SLOTS * 32
    at = (START // 1000 + 5) % SLOTS * 32
    assert data[at : at + 32] == bytes.fromhex(
        "0000000065 53f105 0000000000000000 0000000000000068 00000003 00000000"
    )
    assert data.count(0) == len(data) - 6


def test_a_read_that_fails_is_tried_again() -> None:
    disk = FaultyFiles(MemoryFiles())
    wheel = make(disk)
    wheel.put(START, Slot(0, 0, 1))
    written(wheel)
    wheel.forget_before(START + 500_000)
    disk.faults.append(Fault("pread", times=1))
    with pytest.raises(OSError):
        wheel.keep_since(START)
    wheel.keep_since(START)
    assert wheel.next_time(START, START + 10_000) == START


def test_a_slot_is_found_by_any_time_of_it_and_no_other() -> None:
    wheel = make(MemoryFiles())
    wheel.put(START, Slot(0, 0, 1))
    assert wheel.get(START + 999) == Slot(0, 0, 1)
    assert wheel.get(START + 1000) is None
    assert wheel.get(START + round_of(wheel)) is None


def test_a_place_is_one_slots() -> None:
    wheel = make(MemoryFiles())
    later = START + round_of(wheel)
    assert wheel.place(START) is None
    wheel.put(START + 1000, Slot(104, 104, 1))
    assert wheel.place(START) is None, "its page is there now"
    wheel.put(later, Slot(52, 52, 1))
    assert wheel.get(START) is None
    assert wheel.place(START + 999) == (later, Slot(52, 52, 1))
    wheel.put(START, Slot(0, 0, 1))
    assert wheel.get(later) is None
    assert wheel.get(START) == Slot(0, 0, 1)
    wheel.clear(START)
    assert wheel.place(later) is None


def test_the_next_one_may_be_rounds_away() -> None:
    wheel = make(MemoryFiles())
    for rounds, seconds in [(3, 70), (2, 500), (2, 400)]:
        time_ms = START + rounds * round_of(wheel) + seconds * 1000
        wheel.put(time_ms, Slot(0, 0, 1))
    first = START + 2 * round_of(wheel) + 400_000
    assert wheel.next_time(START, 1 << 62) == first
    assert wheel.next_time(START, first) is None
    assert wheel.next_time(first + 200_000, 1 << 62) == START + 3 * round_of(wheel) + 70_000


def test_a_jump_over_many_rounds_costs_no_more_than_one() -> None:
    wheel = make(MemoryFiles())
    wheel.put(START, Slot(0, 0, 1))
    written(wheel)
    wheel.forget_before(START + (1 << 50))
    assert wheel.next_time(START, START + 1000) is None


def test_what_waits_is_there_after_a_start_and_the_next_one_is_found() -> None:
    files = MemoryFiles()
    wheel = make(files)
    for seconds in (3, 200, 900):
        wheel.put(START + seconds * 1000, Slot(seconds, seconds, 1))
    written(wheel)
    again = make(files, START + 100_000)
    assert again.next_time(START + 100_000, START + 2_000_000) == START + 200_000
    assert again.next_time(START + 100_000, START + 200_000) is None
    assert again.next_time(START + 201_000, START + 2_000_000) == START + 900_000
    assert again.next_time(START + 901_000, START + 2_000_000) is None
    assert dict(again.waiting(START + 201_000)) == {START + 900_000: Slot(900, 900, 1)}
    again.clear(START + 200_000)
    assert again.next_time(START + 100_000, START + 2_000_000) == START + 900_000


def test_what_was_over_at_the_start_can_be_kept_again() -> None:
    files = MemoryFiles()
    wheel = make(files)
    wheel.put(START + 3_000, Slot(3, 3, 1))
    written(wheel)
    again = make(files, START + 500_000)
    assert again.next_time(START, START + 10_000) is None
    again.keep_since(START)
    assert again.next_time(START, START + 10_000) == START + 3_000


def test_what_is_over_is_forgotten_once_it_is_written_and_still_in_the_file() -> None:
    files = MemoryFiles()
    wheel = make(files)
    for seconds in range(0, 600, 50):
        wheel.put(START + seconds * 1000, Slot(seconds, seconds, 1))
    wheel.forget_before(START + 300_000)
    assert wheel.next_time(START, START + 1000) == START, "not written yet"
    written(wheel)
    wheel.forget_before(START + 300_000)
    assert wheel.next_time(START, START + 1000) is None
    assert wheel.next_time(START + 300_000, START + 900_000) == START + 300_000
    # A place that is asked for all the same is read.
    assert wheel.get(START) == Slot(0, 0, 1)


def test_pages_that_could_not_be_written_are_written_with_the_next_ones() -> None:
    files = MemoryFiles()
    wheel = make(files)
    wheel.put(START, Slot(0, 0, 1))
    pages = wheel.take_dirty()
    wheel.put(START + 1000, Slot(52, 52, 1))
    wheel.give_back(pages)
    written(wheel)
    again = make(files)
    assert again.get(START) and again.get(START + 1000)
    assert not wheel.take_dirty()


def test_a_file_of_another_size_is_refused() -> None:
    files = MemoryFiles()
    make(files)
    with pytest.raises(DamagedStoreError, match="32000 bytes where a timer wheel has 3200:"):
        TimerWheel(files, PATH, 1000, slots=100).load(START)


@pytest.mark.parametrize("seed", range(20))
def test_the_next_one_is_found_wherever_it_is_on_the_wheel(seed: int) -> None:
    chance = random.Random(seed)
    since = START + chance.randrange(SLOTS) * 1000
    wheel = make(MemoryFiles(), since)
    put = {since + chance.randrange(SLOTS) * 1000 for _ in range(chance.choice([1, 3, 12]))}
    for time_ms in put:
        wheel.put(time_ms, Slot(0, 0, 1))
    for _ in range(50):
        begin = since + chance.randrange(SLOTS) * 1000
        end = begin + chance.randrange(2 * SLOTS) * 1000
        expected = min((each for each in put if begin <= each < end), default=None)
        assert wheel.next_time(begin, end) == expected


@pytest.mark.parametrize("seed", range(5))
def test_totals_are_sums_of_slots(seed: int) -> None:
    chance = random.Random(seed)
    wheel = make(MemoryFiles())
    for _ in range(300):
        time_ms = START + chance.randrange(2 * round_of(wheel))
        wheel.put(time_ms, chance.choice([Slot(0, 52, chance.randrange(9)), Slot(-1, -1, 0)]))
    for _ in range(20):
        since = START + chance.randrange(round_of(wheel))
        until = since + chance.randrange(round_of(wheel))
        slots = map(wheel.get, range(since - since % 1000, until, 1000))
        wanted = sum(slot.number for slot in slots if slot is not None)
        assert wheel.total(since, until) == wanted, f"seed {seed}: {since} to {until}"
