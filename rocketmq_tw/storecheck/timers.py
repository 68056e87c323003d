"""The files of timed messages: timer log, wheel and their checkpoint (docs/formats/timers.md)."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from itertools import count

import attrs

from rocketmq_tw.formats.flat import flat
from rocketmq_tw.formats.record import MAGIC_V1, MAGIC_V2
from rocketmq_tw.formats.timer import LOG_BLANK, LOG_ENTRY, PROGRESS, SLOT, SLOTS
from rocketmq_tw.storecheck.findings import Findings, Remedy
from rocketmq_tw.storecheck.layout import Known
from rocketmq_tw.storecheck.long_file import LongFile
from rocketmq_tw.storecheck.records import BEGIN

_ENTRY = flat(LOG_ENTRY)
_SLOT = flat(SLOT)
_BLOCK = 512 * _ENTRY.size
_SLOTS_AT_ONCE = 8192
_NOWHERE = -1
_WHEEL = "timerwheel"
_MADE_AGAIN = (
    "move timerlog and timerwheel away, and the start makes them again from the commit log"
)
_PROGRESS = "config/timercheck"
#: Milliseconds of a slot of the wheel.
_PRECISIONS = (1000, 500, 200, 100)


@attrs.define
class _Gap:
    """A part of the timer log without entries, from position `start` on; others follow at `end`.
    `is_wanted`: something that waits is found by what stood there."""

    start: int
    end: int
    is_wanted: bool = False


class TimerCheck:
    """The timer's files below `root`, whose log has files of `timer_size` bytes (None: as they
    show), against the log, which ends at `log_end`."""

    def __init__(
        self,
        root: str,
        findings: Findings,
        timer_size: int | None,
        log: LongFile,
        known: Known,
        log_end: int,
    ) -> None:
        self._root = root
        self._findings = findings
        self._log = log
        self._known = known
        self._log_end = log_end
        self.entries = LongFile(root, "timerlog", timer_size, keep_open=True)
        self.count = 0
        self._gaps: list[_Gap] = []
        #: As `config/timercheck` says, in ms since 1970, and the end of the timer log.
        self._delivered_up_to = self._said_end = 0

    def run(self) -> None:
        """Reads the timer log, then the wheel."""
        self.entries.check_names(self._findings)
        # A start extends a file only where the broker was killed.
        short = Remedy.RESTORE if self._known.was_closed else Remedy.START
        self.entries.check_files(self._findings, short=short, advice=_MADE_AGAIN)
        self._read_progress()
        end = self._read_entries()
        self._read_wheel(end)
        self._tell_gaps()
        self._check_progress(end)
        self.entries.close()
        self._log.close()

    def _read_entries(self) -> int:
        """Returns the position behind the last entry."""
        end, gap, is_torn = self.entries.min_offset, None, False
        for position, entry in self._places():
            size, _, magic, *_ = entry
            if size == _ENTRY.size and 0 <= magic < 16:
                if gap is not None:
                    self._gaps.append(_Gap(gap, position))
                    gap = None
                self._check_entry(position, entry)
                end = position + _ENTRY.size
                self.count += 1
                continue
            if gap is None:
                gap, is_torn = position, any(entry)
            if position >= self._said_end:
                break
        if gap is not None and is_torn:
            file, byte = self.entries.name(gap)
            text = f"the timer log ends at {gap}, and what stands there is no entry"
            self._findings.add("timer-torn", file, byte, text, Remedy.START)
        return end

    def _places(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yields the fields of each place where an entry may stand, with its position."""
        files = self.entries
        in_file = (files.file_size - LOG_BLANK.sizeof()) // _ENTRY.size * _ENTRY.size
        for start in files.starts:
            for first in range(start, start + in_file, _BLOCK):
                data = files.read(min(_BLOCK, start + in_file - first), first)
                whole = len(data) // _ENTRY.size * _ENTRY.size
                yield from zip(count(first, _ENTRY.size), _ENTRY.iter_unpack(data[:whole]))

    def _check_entry(self, position: int, entry: tuple[int, ...]) -> None:
        _, previous, _, wait_start, wait_ms, offset, record_size, _, _ = entry
        file, byte = self.entries.name(position)
        waits = wait_start + wait_ms >= self._delivered_up_to
        if waits:
            self._note_wanted(previous)
        if not _NOWHERE <= previous < position:
            text = f"an entry cannot have {previous} in front of it"
            # A start follows the entries of what waits.
            self._tell_entry("timer-entry", file, byte, text, is_mended=waits)
        elif self._known.is_astray(offset) and not self._is_record(offset, record_size):
            text = f"an entry leads to {offset}, where the log has no record of {record_size} bytes"
            # A start takes out what is behind the log's end.
            is_mended = offset >= self._log_end
            self._tell_entry("timer-astray", file, byte, text, is_mended=is_mended)

    def _note_wanted(self, position: int) -> None:
        """Notes that something which waits is found by the entry at a position."""
        at = bisect_right(self._gaps, position, key=lambda gap: gap.start) - 1
        if at >= 0 and position < self._gaps[at].end:
            self._gaps[at].is_wanted = True

    def _tell_gaps(self) -> None:
        for gap in self._gaps:
            file, byte = self.entries.name(gap.start)
            text = f"no entry stands there, and others follow at {gap.end}"
            self._tell_entry("timer-entry", file, byte, text, is_mended=gap.is_wanted)

    def _tell_entry(self, kind: str, file: str, byte: int, text: str, *, is_mended: bool) -> None:
        """Reports an entry that a start mends or leaves."""
        advice = "" if is_mended else f": {_MADE_AGAIN}"
        remedy = Remedy.START if is_mended else Remedy.RESTORE
        self._findings.add(kind, file, byte, text + advice, remedy)

    def _is_record(self, offset: int, size: int) -> bool:
        if offset >= self._log_end:
            return False
        head = self._log.read(BEGIN.size, offset)
        if len(head) < BEGIN.size:
            return False
        found, magic = BEGIN.unpack(head)
        return found == size and magic in (MAGIC_V1, MAGIC_V2)

    def _read_wheel(self, end: int) -> None:
        path = f"{self._root}/{_WHEEL}"
        if os.path.lexists(path) and not os.path.isfile(path):
            return
        size = os.stat(path).st_size if os.path.lexists(path) else 0
        if not size:
            if self.count:
                text = "it is missing or empty, and the timer log has entries"
                self._findings.add("wheel", _WHEEL, None, text, Remedy.START)
            return
        if size != SLOTS * _SLOT.size:
            text = (
                f"it has {size} bytes in place of {SLOTS * _SLOT.size}: move it away, and the start"
                " makes it again from the timer log"
            )
            self._findings.add("wheel", _WHEEL, size, text, Remedy.RESTORE)
            return
        with open(path, "rb") as file:
            number = 0
            empty = bytes(_SLOTS_AT_ONCE * _SLOT.size)
            while data := file.read(_SLOTS_AT_ONCE * _SLOT.size):
                if data != empty[: len(data)]:
                    for place, (time, first, last, _, _) in enumerate(
                        _SLOT.iter_unpack(data), number
                    ):
                        if time > 0 and last >= 0:
                            self._check_slot(place, time, first, last, end)
                number += len(data) // _SLOT.size

    def _check_slot(self, place: int, time: int, first: int, last: int, end: int) -> None:
        is_wrong = last >= end or first > last
        if last < self.entries.min_offset or not (is_wrong or self._gaps) or self._is_over(time):
            return
        self._note_wanted(last)
        if is_wrong:
            text = f"slot {place} leads from {last} to {first}, the timer log ends at {end}"
            self._findings.add("wheel", _WHEEL, place * _SLOT.size, text, Remedy.START)

    def _is_over(self, time: int) -> bool:
        """Returns whether a slot is delivered; `time` is the wheel's, in units of its precision."""
        # With another precision it would be many years away.
        near = min(
            (time * ms for ms in _PRECISIONS), key=lambda ms: abs(ms - self._delivered_up_to)
        )
        return near < self._delivered_up_to

    def _read_progress(self) -> None:
        path = f"{self._root}/{_PROGRESS}"
        if not os.path.isfile(path):
            return
        with open(path, "rb") as file:
            data = file.read(PROGRESS.sizeof())
        if len(data) < PROGRESS.sizeof():
            text = f"it has {len(data)} bytes and is passed over"
            self._findings.add("timer-progress", _PROGRESS, None, text, Remedy.START)
            return
        progress = PROGRESS.parse(data)
        self._delivered_up_to, self._said_end = progress.delivered_up_to, progress.log_end

    def _check_progress(self, end: int) -> None:
        if self._said_end > end:
            text = f"it says that the timer log goes to {self._said_end}: it ends at {end}"
            self._findings.add("timer-progress", _PROGRESS, 8, text, Remedy.START)
