"""Wheel and log together, over starts, cuts and what a crash leaves."""

from __future__ import annotations

import pytest

from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.store.errors import DamagedStoreError
from rocketmq_tw.store.timer.timer_files import TimerFiles
from rocketmq_tw.store.timer.unit import (
    DEFAULT,
    DELETE,
    TIMER_BLANK_SIZE,
    TIMER_UNIT_SIZE,
    TimerUnit,
)

START = 1_700_000_000_000
#: Four entries a file, and some bytes that stay unused.
FILE_SIZE = 4 * TIMER_UNIT_SIZE + TIMER_BLANK_SIZE + 20
ALL = 1 << 40


class Timed:
    """Files of a timer, and what their checkpoint would say."""

    def __init__(self, files: IFiles | None = None, since_ms: int = START) -> None:
        self.disk: IFiles = files or MemoryFiles()
        self.since_ms = since_ms
        self.log_position = 0
        self.timer = self._open()
        self.notes: list[str] = []
        self.load()

    def _open(self) -> TimerFiles:
        return TimerFiles(self.disk, "/store", file_size=FILE_SIZE, precision_ms=1000, slots=1000)

    def load(self, commit_end: int = ALL, *, clean: bool = False) -> None:
        self.notes = self.timer.load(
            log_position=self.log_position,
            since_ms=self.since_ms,
            commit_end=commit_end,
            clean=clean,
            note_log_position=self.note,
        )

    def note(self, position: int) -> None:
        self.log_position = min(self.log_position, position)

    def again(
        self, disk: IFiles | None = None, commit_end: int = ALL, *, clean: bool = False
    ) -> None:
        self.timer.close()
        self.disk = disk or self.disk
        self.timer = self._open()
        self.load(commit_end, clean=clean)

    def add(self, seconds: int, offset: int, magic: int = DEFAULT) -> int:
        unit = TimerUnit(-1, magic, START, START + seconds * 1000, offset, 100, 0)
        return self.timer.add(unit, self.since_ms)[0]

    def write(self, *, checkpoint: bool = True) -> None:
        changes = self.timer.take_changes()
        self.timer.write(changes)
        self.timer.written(changes, self.since_ms)
        if checkpoint:
            self.log_position = changes.log_end

    def cut(self, commit_end: int) -> None:
        for _ in self.timer.unlink_behind(commit_end):
            pass
        self.timer.cut_unlinked(self.note)

    def waiting(self) -> dict[int, list[int]]:
        """Seconds -> the places of what waits so long, the oldest first."""
        reader = self.timer.log.reader()
        return {
            (time_ms - START) // 1000: [unit.offset for _, unit in reader.chain(slot.last)][::-1]
            for time_ms, slot in sorted(self.timer.wheel.waiting(self.since_ms))
        }


@pytest.fixture
def timed() -> Timed:
    return Timed()


def fill(timed: Timed, count: int = 11, first: int = 0) -> None:
    for number in range(first, first + count):
        timed.add(number % 3, number * 100)


THREE_SLOTS = {0: [0, 300, 600, 900], 1: [100, 400, 700, 1000], 2: [200, 500, 800]}


def test_each_slot_has_its_entries_written_or_not(timed: Timed) -> None:
    fill(timed)
    assert timed.waiting() == THREE_SLOTS
    timed.write()
    assert timed.waiting() == THREE_SLOTS
    assert [timed.timer.number(START + n * 1000) for n in range(4)] == [4, 4, 3, 0]
    names = timed.disk.list("/store/timerlog")
    assert names == [f"{n * FILE_SIZE:020d}" for n in range(3)]
    assert {len(timed.disk.read(f"/store/timerlog/{name}")) for name in names} == {FILE_SIZE}


def test_what_takes_a_message_back_counts_less(timed: Timed) -> None:
    timed.add(1, 0)
    timed.add(1, 100)
    timed.add(1, 200, DEFAULT | DELETE)
    assert timed.timer.number(START + 1000) == 1


@pytest.mark.parametrize("clean", [False, True])
def test_a_start_finds_all_again(timed: Timed, clean: bool) -> None:
    fill(timed)
    timed.write()
    timed.again(clean=clean)
    assert timed.waiting() == THREE_SLOTS and not timed.notes
    timed.add(2, 1100)
    assert timed.waiting()[2] == [200, 500, 800, 1100]


def test_the_wheel_is_made_good_from_the_log(timed: Timed) -> None:
    fill(timed, 5)
    timed.write()
    wheel = timed.disk.read("/store/timerwheel")
    fill(timed, 6, first=5)
    timed.write(checkpoint=False)
    timed.disk.open("/store/timerwheel").pwrite(wheel, 0)
    timed.again()
    assert timed.waiting() == THREE_SLOTS and not timed.notes
    assert timed.timer.number(START) == 4


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_wheel_that_is_gone_is_made_again(is_empty: bool, timed: Timed) -> None:
    fill(timed)
    timed.write()
    if is_empty:
        timed.disk.open("/store/timerwheel").truncate(0)
    else:
        timed.disk.remove("/store/timerwheel")
    timed.again()
    assert timed.waiting() == THREE_SLOTS
    assert timed.notes == ["there is no timer wheel any more: it is made again from the log"]


def test_a_log_that_lost_some_of_itself(timed: Timed) -> None:
    fill(timed)
    timed.write()
    for start in (FILE_SIZE, 2 * FILE_SIZE):
        timed.disk.remove(f"/store/timerlog/{start:020d}")
    timed.again()
    assert timed.waiting() == {0: [0, 300], 1: [100], 2: [200]}
    assert len(timed.notes) == 1
    timed.add(1, 400)
    assert timed.waiting()[1] == [100, 400]


def test_a_log_that_is_gone(timed: Timed) -> None:
    fill(timed)
    timed.write()
    timed.disk.remove_tree("/store/timerlog")
    timed.again()
    assert timed.waiting() == {} and timed.notes
    fill(timed)
    assert timed.waiting() == THREE_SLOTS


@pytest.mark.parametrize("seed", [None, *range(20)])
def test_a_power_loss_while_all_is_written(seed: int | None) -> None:
    """What the checkpoint speaks of is there, and what follows in the log is whole."""
    timed = Timed()
    fill(timed, 5)
    timed.write()
    fill(timed, 6, first=5)
    changes = timed.timer.take_changes()
    # As if the power went in the middle of both.
    timed.timer.log._segments.sync = lambda: None
    timed.timer.log.write(changes.position, changes.data)
    for page, data in changes.pages.items():
        timed.timer.wheel._file.pwrite(data, page * 4096)
    timed.again(timed.disk.crash(seed))
    found = sorted(offset for slot in timed.waiting().values() for offset in slot)
    assert found[:5] == [0, 100, 200, 300, 400]
    assert found == [n * 100 for n in range(len(found))]
    # What is written behind the end now is not followed by what the crash left.
    count = len(found)
    fill(timed, 1, first=count)
    timed.write()
    timed.again()
    found = sorted(offset for slot in timed.waiting().values() for offset in slot)
    assert found == [n * 100 for n in range(count + 1)]


class TestWhatTheWheelLeadsToIsGone:
    def zero(self, timed: Timed, first: int, count: int) -> None:
        for number in range(first, first + count):
            at = number // 4 * FILE_SIZE + number % 4 * TIMER_UNIT_SIZE
            name = f"/store/timerlog/{at // FILE_SIZE * FILE_SIZE:020d}"
            timed.disk.open(name).pwrite(bytes(TIMER_UNIT_SIZE), at % FILE_SIZE)

    @pytest.mark.parametrize("kept", range(11))
    def test_the_end_of_the_log(self, timed: Timed, kept: int) -> None:
        """In front of the place where the checkpoint says that it ends."""
        fill(timed)
        timed.write()
        self.zero(timed, kept, 11 - kept)
        timed.again()
        assert len(timed.notes) == 1 and timed.log_position == 0
        found = sorted(offset for slot in timed.waiting().values() for offset in slot)
        assert found == [n * 100 for n in range(kept)]
        fill(timed, 11 - kept, first=kept)
        assert timed.waiting() == THREE_SLOTS
        timed.write()
        timed.again()
        assert timed.waiting() == THREE_SLOTS and not timed.notes

    def test_an_entry_that_a_slot_leads_to(self, timed: Timed) -> None:
        fill(timed)
        timed.write()
        self.zero(timed, 8, 1)
        timed.again()
        assert len(timed.notes) == 1
        assert timed.waiting() == {0: [0, 300, 600], 1: [100, 400, 700], 2: [200, 500]}

    def test_an_entry_of_another_slot(self, timed: Timed) -> None:
        fill(timed)
        timed.write()
        at = TimerUnit(-1, DEFAULT, START, START + 9_000, 800, 100, 0).encode()
        timed.disk.open(f"/store/timerlog/{2 * FILE_SIZE:020d}").pwrite(at, 0)
        timed.again()
        assert len(timed.notes) == 1
        assert timed.waiting() == {**THREE_SLOTS, 2: [200, 500], 9: [800]}

    def test_a_slot_whose_first_entry_is_behind_its_last(self, timed: Timed) -> None:
        fill(timed)
        timed.write()
        slot = timed.timer.wheel.get(START)
        assert slot is not None
        timed.timer.wheel.put(START, slot._replace(first=1 << 40))
        timed.timer.wheel.write(timed.timer.wheel.take_dirty())
        timed.again(clean=True)
        assert len(timed.notes) == 1 and timed.waiting() == THREE_SLOTS
        slot = timed.timer.wheel.get(START)
        assert slot is not None and slot.first == 0


class TestAnEntryInTheMiddleOfASlot:
    def damage(self, timed: Timed, entry: bytes) -> None:
        """The fourth entry, the second one of its slot, becomes another."""
        timed.disk.open(f"/store/timerlog/{0:020d}").pwrite(entry, 3 * TIMER_UNIT_SIZE)

    @pytest.mark.parametrize(
        "entry",
        [
            bytes(TIMER_UNIT_SIZE),
            TimerUnit(0, DEFAULT, START, START + 1000, 300, 100, 0).encode(),
            TimerUnit(-2, DEFAULT, START, START, 300, 100, 0).encode(),
            TimerUnit(4 * TIMER_UNIT_SIZE, DEFAULT, START, START, 300, 100, 0).encode(),
        ],
    )
    def test_it_is_noticed_and_all_behind_it_is_dropped(self, entry: bytes, timed: Timed) -> None:
        fill(timed)
        timed.write()
        self.damage(timed, entry)
        with pytest.raises(DamagedStoreError, match="has no entry at"):
            timed.waiting()
        timed.timer.make_again(START, timed.note)
        assert timed.log_position == 0
        assert timed.waiting() == {0: [0], 1: [100], 2: [200]}
        fill(timed, 8, first=3)
        assert timed.waiting() == THREE_SLOTS
        timed.write()
        timed.again(clean=True)
        assert timed.waiting() == THREE_SLOTS and not timed.notes

    def test_what_stands_behind_a_gap_does_not_follow_new_entries(self, timed: Timed) -> None:
        fill(timed)
        timed.write()
        self.damage(timed, bytes(TIMER_UNIT_SIZE))
        timed.disk.remove("/store/timerwheel")
        timed.again(clean=True)
        fill(timed, 1, first=3)
        timed.write()
        timed.again(clean=True)
        assert timed.waiting() == {0: [0, 300], 1: [100], 2: [200]}


@pytest.mark.parametrize("path", ["timerlog", "timerwheel"])
def test_what_could_not_be_synced_is_written_again(path: str) -> None:
    memory = MemoryFiles()
    disk = FaultyFiles(memory)
    timed = Timed(disk)
    disk.sync_dir("/store")
    fill(timed, 3)
    timed.write()
    timed.add(1, 5000)
    disk.faults.append(Fault("fsync", path, times=1))
    with pytest.raises(OSError):
        timed.write()
    memory = memory.kill()
    timed.again(memory)
    waiting = timed.waiting()
    # Not in the same page of the wheel.
    timed.add(300, 6000)
    timed.write()
    timed.again(memory.crash())
    assert timed.notes == []
    assert timed.waiting() == waiting | {300: [6000]}


def test_what_is_no_entry_behind_the_end_goes_with_a_clean_start_too(timed: Timed) -> None:
    ends = [timed.add(5, 100 + number) + TIMER_UNIT_SIZE for number in range(2)]
    timed.write()
    path = f"/store/timerlog/{0:020}"
    whole = timed.disk.read(path)
    file = timed.disk.open(path)
    file.pwrite(b"torn", ends[-1] + 7)
    timed.again(clean=True)
    assert timed.disk.read(path) == whole
    assert (timed.notes, timed.timer.log.end) == ([], ends[-1])


def test_the_log_of_another_file_size_is_refused(timed: Timed) -> None:
    fill(timed)
    timed.write()
    timed.timer.close()
    other = TimerFiles(
        timed.disk, "/store", file_size=FILE_SIZE + 52, precision_ms=1000, slots=1000
    )
    with pytest.raises(DamagedStoreError, match="mappedFileSizeTimerLog"):
        other.load(
            log_position=0,
            since_ms=START,
            commit_end=ALL,
            clean=True,
            note_log_position=lambda position: None,
        )


class TestTheCommitLogIsCut:
    @pytest.mark.parametrize("written", [0, 5, 11])
    @pytest.mark.parametrize("kept", range(12))
    def test_what_it_lost_is_unlinked(self, written: int, kept: int) -> None:
        timed = Timed()
        fill(timed, written)
        timed.write()
        fill(timed, 11 - written, first=written)
        timed.cut(kept * 100)
        expected = {
            seconds: offsets
            for seconds in range(3)
            if (offsets := [n * 100 for n in range(kept) if n % 3 == seconds])
        }
        assert timed.waiting() == expected
        assert [timed.timer.number(START + n * 1000) for n in range(3)] == [
            len(expected.get(n, [])) for n in range(3)
        ]
        timed.log_position = min(timed.log_position, timed.timer.log.end)
        timed.write()
        timed.again()
        assert timed.waiting() == expected and not timed.notes

    def test_at_a_start(self, timed: Timed) -> None:
        fill(timed)
        timed.write()
        timed.again(commit_end=650)
        assert timed.waiting() == {0: [0, 300, 600], 1: [100, 400], 2: [200, 500]}

    @pytest.mark.parametrize("written", [False, True])
    def test_behind_what_was_put_off(self, timed: Timed, written: bool) -> None:
        fill(timed)
        timed.add(5, 100)
        timed.add(0, 200)
        if written:
            timed.write()
        timed.cut(800)
        expected = {0: [0, 300, 600, 200], 1: [100, 400, 700], 2: [200, 500], 5: [100]}
        wheel, waiting = timed.timer.wheel, timed.waiting()
        assert {second: [n for n in places if n >= 0] for second, places in waiting.items()} == (
            expected
        )
        assert [wheel.get(START + n * 1000).number for n in (0, 1, 2, 5)] == [4, 3, 2, 1]
        # New messages have the places of those.
        found: dict[int, int] = {}
        for _ in timed.timer.offsets_from(300, found):
            pass
        assert found.keys() == {300, 400, 500, 600, 700}

    def test_one_behind_what_was_put_off(self, timed: Timed) -> None:
        fill(timed)
        timed.add(5, 100)
        timed.cut(1000)
        assert timed.waiting() == {
            0: [0, 300, 600, 900],
            1: [100, 400, 700],
            2: [200, 500, 800],
            5: [100],
        }


@pytest.mark.parametrize("is_written", [False, True])
def test_the_places_of_what_has_an_entry(timed: Timed, is_written: bool) -> None:
    fill(timed)
    if is_written:
        timed.write()
    found: dict[int, int] = {}
    for _ in timed.timer.offsets_from(600, found):
        pass
    assert found.keys() == {600, 700, 800, 900, 1000}


def test_the_places_of_what_has_an_entry_in_a_slot_that_is_not_over(timed: Timed) -> None:
    fill(timed)
    found: dict[int, int] = {}
    for _ in timed.timer.offsets_from(300, found, START + 1000):
        pass
    assert {place: slot - START for place, slot in found.items()} == {
        **dict.fromkeys((400, 700, 1000), 1000),
        **dict.fromkeys((500, 800), 2000),
    }


class TestRetention:
    def names(self, timed: Timed) -> list[int]:
        return [int(name) // FILE_SIZE for name in timed.disk.list("/store/timerlog")]

    def expire(self, timed: Timed, min_offset: int) -> list[int]:
        for _ in timed.timer.remove_expired(min_offset, timed.since_ms):
            pass
        return self.names(timed)

    def test_files_go_whose_messages_are_gone(self, timed: Timed) -> None:
        fill(timed)
        timed.write()
        timed.since_ms = START + 10_000
        assert self.expire(timed, 300) == [0, 1, 2]
        assert self.expire(timed, 301) == [1, 2]
        assert self.expire(timed, ALL) == [2], "never the last one"
        timed.again()
        assert not timed.notes
        assert timed.add(20, 1100) == 2 * FILE_SIZE + 3 * TIMER_UNIT_SIZE

    @pytest.mark.parametrize("seed", [None, *range(8)])
    def test_steps_wait_for_no_disk_where_another_thread_syncs(
        self, timed: Timed, seed: int | None
    ) -> None:
        disk = FaultyFiles(timed.disk)
        timed.disk = disk
        timed.again()
        fill(timed, 30)
        timed.write()
        timed.since_ms = START + 10_000
        before = self.names(timed)
        log, left = timed.timer.log, [before]
        steps = timed.timer.remove_expired(ALL, timed.since_ms)
        disk.asked.clear()
        for _ in steps:
            assert "sync_dir" not in {operation for operation, _ in disk.asked}
            crashed = disk.inner.crash(seed)
            left.append([int(n) // FILE_SIZE for n in crashed.list("/store/timerlog")])
            if log.has_unsynced_removals:
                log.sync_removals()
            disk.asked.clear()
        assert len(self.names(timed)) == 1 < len(before)
        assert all(one == before[-len(one) :] for one in left)

    def test_a_file_stays_that_the_wheel_leads_to(self, timed: Timed) -> None:
        timed.add(50, 0)
        fill(timed, 10, first=1)
        timed.write()
        timed.since_ms = START + 10_000
        assert self.expire(timed, ALL) == [0, 1, 2]
        timed.since_ms = START + 60_000
        assert self.expire(timed, ALL) == [2]

    def test_what_is_not_written_yet_stays(self, timed: Timed) -> None:
        fill(timed)
        timed.since_ms = START + 10_000
        assert self.expire(timed, ALL) == []
        timed.write()
        assert self.expire(timed, ALL) == [2]


#: Seconds of one round of the wheel.
ROUND = 1000
ENDS = ["go on", "start", "kill before the checkpoint", "no wheel"]


def ended(timed: Timed, end: str) -> None:
    """What happens to the files once entries were added."""
    if end != "go on":
        timed.write(checkpoint=end == "start")
        if end == "no wheel":
            timed.disk.remove("/store/timerwheel")
        timed.again()


@pytest.mark.parametrize("end", ENDS)
def test_what_is_for_a_later_round_waits_with_what_comes_before(timed: Timed, end: str) -> None:
    timed.add(2 * ROUND + 5, 0)
    timed.add(2 * ROUND + 5, 100)
    timed.add(5, 200)
    timed.add(5, 300)
    ended(timed, end)
    assert timed.waiting() == {5: [0, 100, 200, 300]}
    assert timed.timer.number(START + 5000) == 4
    slot = timed.timer.wheel.get(START + 5000)
    assert slot is not None
    entries = timed.timer.log.reader().chain(slot.last)
    assert [(unit.offset, unit.time_ms) for _, unit in entries] == [
        (300, START + 5000),
        (200, START + 5000),
        (100, START + (2 * ROUND + 5) * 1000),
        (0, START + (2 * ROUND + 5) * 1000),
    ]
    found: dict[int, int] = {}
    for _ in timed.timer.offsets_from(0, found):
        pass
    assert found == dict.fromkeys(range(0, 400, 100), START + 5000)


@pytest.mark.parametrize("end", ENDS)
def test_what_is_for_the_place_of_an_earlier_round_rolls_behind_it(timed: Timed, end: str) -> None:
    timed.add(5, 0)
    timed.add(ROUND + 6, 100)
    timed.add(2 * ROUND + 6, 200)
    timed.add(ROUND + 5, 300)
    ended(timed, end)
    assert timed.waiting() == {5: [0], 6: [100, 300], 7 + ROUND: [200]}
    slot = timed.timer.wheel.get(START + 6000)
    assert slot is not None
    entries = timed.timer.log.reader().chain(slot.last)
    assert [(unit.offset, unit.time_ms, unit.rolls) for _, unit in entries] == [
        (300, START + 6000, True),
        (100, START + (ROUND + 6) * 1000, False),
    ]


@pytest.mark.parametrize("end", ENDS)
def test_a_cut_leaves_the_place_to_the_later_round(timed: Timed, end: str) -> None:
    timed.add(ROUND + 5, 0)
    timed.add(ROUND + 5, 100)
    timed.add(5, 200)
    timed.add(5, 300)
    ended(timed, end)
    timed.cut(200)
    assert timed.waiting() == {ROUND + 5: [0, 100]}
    assert timed.timer.number(START + (ROUND + 5) * 1000) == 2
    timed.write()
    timed.again()
    assert timed.waiting() == {ROUND + 5: [0, 100]}


@pytest.mark.parametrize("end", ENDS)
def test_the_next_round_begins_anew(timed: Timed, end: str) -> None:
    timed.add(5, 0)
    timed.write()
    timed.since_ms = START + 600_000
    timed.add(ROUND + 5, 100)
    ended(timed, end)
    assert timed.waiting() == {ROUND + 5: [100]}


def test_what_was_emptied_leaves_its_place(timed: Timed) -> None:
    timed.add(ROUND + 5, 0)
    timed.timer.wheel.clear(START + (ROUND + 5) * 1000)
    timed.add(5, 100)
    assert timed.waiting() == {5: [100]}


def test_a_place_of_a_round_that_is_over_holds_up_nothing_that_is_added(timed: Timed) -> None:
    """Its entries may stand behind the end of the log: that was cut at a damage."""
    for number in range(3):
        timed.add(1 + 4 * (number == 2), number * 100)
    timed.write()
    timed.since_ms = START + 600_000
    timed.timer.log.end_at(TIMER_UNIT_SIZE, cut=True)
    timed.add(ROUND + 5, 300)
    assert timed.waiting() == {ROUND + 5: [300]}
