"""Wheel and log together: what waits, from which slot it is found, and how both come to agree.

Two slots may want the same place of the wheel, a round or more apart, where the clock was wrong
when messages were sent. The earlier one has it then, and what is for the later one is to roll when
that is due, or behind it (docs/formats/timers.md, "The wheel").

The log says all that the wheel says but numbers, so what a crash took from the wheel is linked into
it again. What stands for messages that the commit log has lost is unlinked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.store.handles import HandlePool
from rocketmq_tw.store.timer.timer_log import TimerLog, TimerLogReader
from rocketmq_tw.store.timer.unit import NOWHERE, ROLL, TIMER_UNIT_SIZE, TimerUnit
from rocketmq_tw.store.timer.wheel import SLOTS, Slot, TimerWheel

#: Entries between two steps of what may be long.
_STEP = 500
#: Entries for older messages that may stand behind the one that is looked for: as many as an
#: earlier version put off by one slot when it stopped, and some more.
_OLDER = 12_000


class TimerChanges(NamedTuple):
    """The changes to wheel and log up to a moment, for `TimerFiles.write`
    (docs/formats/timers.md)."""

    pages: dict[int, bytes]
    position: int
    data: bytes

    @property
    def log_end(self) -> int:
        """The end of the timer log with these changes, in bytes."""
        return self.position + len(self.data)

    def __bool__(self) -> bool:
        return bool(self.pages or self.data)


class TimerFiles:
    """Wheel and timer log of one store (docs/formats/timers.md). One thread uses it; `write`, and
    readers made by `log.reader`, may run in another one. Raises `StoreError` and `OSError`."""

    def __init__(
        self, files: IFiles, root: str, *, file_size: int, precision_ms: int, slots: int = SLOTS
    ) -> None:
        self._files = files
        self._log_directory = f"{root}/timerlog"
        self.precision_ms = precision_ms
        self.wheel = TimerWheel(files, f"{root}/timerwheel", precision_ms, slots=slots)
        self.log = TimerLog(
            HandlePool(files), self._log_directory, file_size, precision_ms, slots=slots
        )
        self._unlinked_from = 0
        self._unlinked: list[int] = []

    def slot_of(self, time_ms: int) -> int:
        """Returns when the slot of a time begins, in ms."""
        return time_ms // self.precision_ms * self.precision_ms

    def load(
        self,
        *,
        log_position: int,
        since_ms: int,
        commit_end: int,
        clean: bool,
        note_log_position: Callable[[int], None],
    ) -> list[str]:
        """Finds what waits for `since_ms` or later: the wheel's file has what the log has in front
        of `log_position`, and the commit log ends at `commit_end`; `clean`: nothing interrupted
        the last one who wrote. Returns what was lost, in words: with any of them, messages of the
        commit log may wait for which nothing is found here. `note_log_position` makes durable that
        the wheel's file has no more than what is in front of a place; with 0 it is made again from
        all of the log."""
        self._files.make_dirs(self._log_directory)
        log = self.log
        log.load(clean=clean)
        notes = [*self._lost(log_position)]
        if notes:
            # Before anything is changed: a crash must not hide it.
            note_log_position(0)
            log_position = 0
        self.wheel.load(since_ms, clean=clean)
        if not clean:
            log.write_again(log_position)
        end = self._link_from(log_position, since_ms)
        if not notes and self._leads_astray(end, since_ms):
            notes.append("slots of the timer wheel lead to places where the log has none of theirs")
            note_log_position(0)
            end = self._link_from(0, since_ms)
        # Behind a gap in the log entries may stand, which must not come to follow new ones.
        log.end_at(end, cut=not clean or bool(notes))
        for _ in self.unlink_behind(commit_end):
            pass
        self.cut_unlinked(note_log_position)
        return notes

    def make_again(self, since_ms: int, note_log_position: Callable[[int], None]) -> None:
        """Finds again what waits for `since_ms` or later where a slot is damaged, and drops the log
        behind its first damage and what is not written: messages of the commit log may wait then
        for which nothing is found here. In any thread, while nobody else uses this; for
        `note_log_position` see `load`."""
        note_log_position(0)
        self.log.end_at(self._link_from(0, since_ms), cut=True)

    def _lost(self, log_position: int) -> Iterator[str]:
        log = self.log
        if log_position > 0 and not self.wheel.is_there:
            yield "there is no timer wheel any more: it is made again from the log"
        if not log.is_place(log_position):
            yield (
                f"the timer log goes from {log.start} to {log.files_end} at most, and was at"
                f" {log_position}"
            )
        elif log_position > log.start and log.reader().unit(log.before(log_position)) is None:
            yield f"the timer log ends somewhere in front of {log_position}, where it was"

    def _link_from(self, position: int, since_ms: int) -> int:
        """Puts the entries that the files have from a position on into their slots; with 0 all of
        them into slots that are empty. Returns where they end: in front of the first one for
        `since_ms` or later that leads to none of its slot."""
        log, wheel = self.log, self.wheel
        reader = log.reader()
        if position == 0:
            for time_ms, _ in list(wheel.waiting(since_ms)):
                wheel.clear(time_ms)
        end = start = max(position, log.start)
        for at, unit in log.scan(start):
            if self.slot_of(unit.time_ms) >= since_ms and not self._leads_on(at, unit, reader):
                break
            self._link(at, unit, since_ms)
            end = at + TIMER_UNIT_SIZE
        return end

    def _leads_on(self, position: int, unit: TimerUnit, reader: TimerLogReader) -> bool:
        """Returns whether an entry leads to one of its place in front of it, or to none."""
        previous, place_of = unit.previous, self.log.place_of
        if NOWHERE <= previous < self.log.start:
            return True
        held = self.wheel.place(unit.time_ms)
        if held is not None and held.slot.last == previous:
            return True
        # One that was taken out is in no slot, and may still be led to.
        before = reader.unit(previous) if 0 <= previous < position else None
        return before is not None and place_of(before.time_ms) == place_of(unit.time_ms)

    def _leads_astray(self, end: int, since_ms: int) -> bool:
        """Returns whether a slot leads to where no entry of its own is."""
        reader, slots = self.log.reader(ascending=True), self.wheel.waiting
        if any(slot.first > slot.last for _, slot in slots(since_ms)):
            return True
        for last, time_ms in sorted((slot.last, at) for at, slot in slots(since_ms)):
            # What is in front of the first file was removed with messages that are gone.
            if last >= self.log.start:
                unit = reader.unit(last) if last < end else None
                if unit is None or self.slot_of(unit.time_ms) != time_ms:
                    return True
        return False

    def add(self, unit: TimerUnit, since_ms: int) -> tuple[int, TimerUnit]:
        """Lets a message wait, all slots before `since_ms` being over. Returns the entry's position
        and the entry as it is: it has `previous`, and where an earlier slot has its place it rolls
        once that is over."""
        held = self.wheel.place(unit.time_ms)
        while held is not None and since_ms <= held.time_ms < self.slot_of(unit.time_ms):
            behind = held.time_ms + self.precision_ms
            unit = unit._replace(magic=unit.magic | ROLL, write_ms=behind, time_ms=behind)
            held = self.wheel.place(behind)
        waits = held is not None and held.time_ms >= since_ms
        unit = unit._replace(previous=held.slot.last if held and waits else NOWHERE)
        position = self.log.append(unit)
        self._link(position, unit, since_ms)
        return position, unit

    def number(self, time_ms: int) -> int:
        """Returns how many messages wait in the slot of a time: entries less those that recall
        one."""
        slot = self.wheel.get(time_ms)
        return 0 if slot is None else slot.number

    def _link(self, position: int, unit: TimerUnit, since_ms: int) -> None:
        """Puts an entry of the log into its slot, if it is not there yet."""
        if unit.is_void:
            return
        time_ms, held = self.slot_of(unit.time_ms), self.wheel.place(unit.time_ms)
        linked = Slot(position, position, unit.weight)
        # Another slot that has the place may be over, or waits with this one from now on.
        if held is not None and (held.time_ms == time_ms or held.time_ms >= since_ms):
            slot = held.slot
            if position <= slot.last:
                return
            if held.time_ms == time_ms or unit.previous >= slot.first:
                linked = Slot(slot.first, position, slot.number + unit.weight)
        self.wheel.put(time_ms, linked)

    # What the commit log has and has not

    def unlink_behind(self, commit_end: int) -> Iterator[None]:
        """Takes entries out whose messages stand at or behind `commit_end`, in steps. Nothing may
        be written meanwhile, and `cut_unlinked` must follow."""
        log = self.log
        reader = log.reader()
        cut, contiguous, older = log.end, True, 0
        void: list[int] = []
        position, count = log.before(log.end), 0
        while position != NOWHERE and older < _OLDER:
            unit = reader.unit(position)
            if unit is None:
                break
            if unit.offset >= commit_end:
                self._unlink(position, unit, reader)
                if contiguous:
                    cut = position
                else:
                    # What stands behind it is still wanted: something that was put off.
                    void.append(position)
                older = 0
            else:
                contiguous = False
                older += 1
            position = log.before(position)
            count += 1
            if count % _STEP == 0:
                yield
        self._unlinked_from, self._unlinked = cut, void

    def cut_unlinked(self, note_log_position: Callable[[int], None]) -> None:
        """Ends the log in front of what was unlinked last, durably, in any thread while nobody else
        uses it. The wheel's file is made to lead to no entry behind that first, and that is noted:
        a crash would leave slots that lead to nothing, or to what is written there next."""
        end = self._unlinked_from
        self.log.void(self._unlinked)
        if end < self.log.written:
            pages = self.wheel.take_dirty()
            try:
                self.wheel.write(pages)
                note_log_position(end)
            except BaseException:
                self.wheel.give_back(pages)
                raise
        if end < self.log.end:
            self.log.cut(end)

    def offsets_from(
        self, offset: int, found: dict[int, int], since_ms: int | None = None
    ) -> Iterator[None]:
        """Adds the places in the commit log, from `offset` on, of the messages that have an entry,
        each with its slot: they wait, or are delivered; with `since_ms` only of those whose slot is
        there or later. In steps, in a thread too while nobody appends."""
        log = self.log
        reader = log.reader()
        older = 0
        position, count = log.before(log.end), 0
        while position != NOWHERE and older < _OLDER:
            unit = reader.unit(position)
            if unit is None:
                break
            if unit.offset >= offset:
                older = 0
                held = self.wheel.place(unit.time_ms)
                # One whose slot was emptied neither waits nor says that it was delivered.
                if (
                    held is not None
                    and held.slot.first <= position <= held.slot.last
                    and (since_ms is None or held.time_ms >= since_ms)
                ):
                    found[unit.offset] = held.time_ms
            else:
                older += 1
            position = log.before(position)
            count += 1
            if count % _STEP == 0:
                yield

    def _unlink(self, position: int, unit: TimerUnit, reader: TimerLogReader) -> None:
        held = self.wheel.place(unit.time_ms)
        if held is None or not held.slot.first <= position <= held.slot.last:
            return
        time_ms, slot = held
        number = slot.number - unit.weight
        if slot.last != position:
            self.wheel.put(time_ms, slot._replace(number=number))
        elif unit.previous < 0:
            self.wheel.clear(time_ms)
        else:
            # What is in front of it may have waited for a later round, and does so again.
            before = reader.unit(unit.previous)
            time_ms = time_ms if before is None else self.slot_of(before.time_ms)
            self.wheel.put(time_ms, Slot(slot.first, unit.previous, number))

    def remove_expired(self, min_offset: int, since_ms: int) -> Iterator[None]:
        """Removes the oldest files, in steps, whose messages all stand before `min_offset` of the
        commit log and that no slot from `since_ms` on leads to. Never the last one. A step waits
        for the disk where the log has unsynced removals, and nobody synced them."""
        log = self.log
        starts = log.file_starts
        expired = 0
        for start in starts[:-1]:
            last = log.last_unit_of(start)
            if start + log.file_size > log.written or last is None or last.offset >= min_offset:
                break
            expired += 1
        if not expired:
            return
        first = log.end
        for count, (_, slot) in enumerate(self.wheel.waiting(since_ms), 1):
            first = min(first, slot.first if slot.first >= 0 else 0)
            if count % _STEP == 0:
                yield
        for start in starts[:expired]:
            if start + log.file_size > first or log.file_starts[0] != start:
                return
            log.remove_first()
            yield

    # Writing

    def take_changes(self) -> TimerChanges:
        """Takes the changes since the last call, for `write` and then `written` or
        `not_written`."""
        return TimerChanges(self.wheel.take_dirty(), *self.log.take_unwritten())

    def write(self, changes: TimerChanges) -> None:
        """Makes changes durable, the log before the wheel that leads into it; in any thread."""
        self.log.write(changes.position, changes.data)
        self.wheel.write(changes.pages)

    def written(self, changes: TimerChanges, since_ms: int) -> None:
        """Notes that the changes are durable; slots before `since_ms` are not needed any more."""
        self.log.forget_written(changes.position, changes.data)
        self.wheel.forget_before(since_ms)

    def not_written(self, changes: TimerChanges) -> None:
        """Takes changes back that could not be written; they are part of the next ones."""
        self.wheel.give_back(changes.pages)

    def close(self) -> None:
        """Closes the files; what is not written is gone."""
        self.log.close()
        self.wheel.close()
