"""The files of timed messages: timer log, wheel and their checkpoint (docs/formats/timers.md)."""

from __future__ import annotations

import os

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

    def run(self) -> None:
        """Reads the timer log, then the wheel."""
        # A start extends a file only where the broker was killed.
        short = Remedy.RESTORE if self._known.was_closed else Remedy.START
        self.entries.check_names(self._findings, short=short)
        end = self._read_entries()
        self._read_wheel(end)
        self._read_progress(end)
        self.entries.close()
        self._log.close()

    def _read_entries(self) -> int:
        """Returns the position behind the last entry."""
        files = self.entries
        end = files.min_offset
        in_file = (files.file_size - LOG_BLANK.sizeof()) // _ENTRY.size * _ENTRY.size
        for start in files.starts:
            for first in range(start, start + in_file, _BLOCK):
                data = files.read(min(_BLOCK, start + in_file - first), first)
                for at in range(0, len(data) - _ENTRY.size + 1, _ENTRY.size):
                    if not self._check_entry(first + at, data, at):
                        return end
                    end = first + at + _ENTRY.size
                    self.count += 1
        return end

    def _check_entry(self, position: int, data: bytes, at: int) -> bool:
        size, previous, magic, _, _, offset, record_size, _, _ = _ENTRY.unpack_from(data, at)
        file, byte = self.entries.name(position)
        if size != _ENTRY.size:
            if any(data[at : at + _ENTRY.size]):
                text = f"the timer log ends at {position}, and what stands there is no entry"
                self._findings.add("timer-torn", file, byte, text, Remedy.START)
            return False
        if not 0 <= magic < 16 or not _NOWHERE <= previous < position:
            # A start takes a wrong magic for the log's end.
            is_end = not 0 <= magic < 16
            text = f"an entry cannot have the magic {magic} and {previous} in front of it"
            self._tell_entry("timer-entry", file, byte, text, is_mended=is_end)
        elif self._known.is_astray(offset) and not self._is_record(offset, record_size):
            text = f"an entry leads to {offset}, where the log has no record of {record_size} bytes"
            # A start takes out what is behind the log's end.
            is_mended = offset >= self._log_end
            self._tell_entry("timer-astray", file, byte, text, is_mended=is_mended)
        return True

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
        start = self.entries.min_offset
        with open(path, "rb") as file:
            number = 0
            empty = bytes(_SLOTS_AT_ONCE * _SLOT.size)
            while data := file.read(_SLOTS_AT_ONCE * _SLOT.size):
                if data != empty[: len(data)]:
                    for place, (_, first, last, _, _) in enumerate(_SLOT.iter_unpack(data), number):
                        if last >= start and (last >= end or first > last) and last > 0:
                            text = f"slot {place} leads to {last}, the timer log ends at {end}"
                            at = place * _SLOT.size
                            self._findings.add("wheel", _WHEEL, at, text, Remedy.START)
                number += len(data) // _SLOT.size

    def _read_progress(self, end: int) -> None:
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
        if progress.log_end > end:
            text = f"it says that the timer log goes to {progress.log_end}: it ends at {end}"
            self._findings.add("timer-progress", _PROGRESS, 8, text, Remedy.START)
