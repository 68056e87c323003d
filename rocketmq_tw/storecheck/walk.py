"""Reading a log from its start to its end, over what is damaged."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from rocketmq_tw.formats.record import BLANK_MAGIC, MAGIC_V1, MAGIC_V2
from rocketmq_tw.storecheck.findings import Findings, Remedy
from rocketmq_tw.storecheck.long_file import LongFile
from rocketmq_tw.storecheck.lost import LostParts
from rocketmq_tw.storecheck.records import BEGIN, LogRecord, is_size, read_record

_WINDOW = 1 << 20
_ZEROS = bytes(_WINDOW)
_MAGICS = (MAGIC_V1, MAGIC_V2)
_magics = re.compile(rb"\xda\xa3\x20[\xa7\xab]").finditer

#: What stands at a place: a size, in place of a blank 0, or why it is neither.
Begun = int | str


class PlainLog:
    """Tells how the records of a commit log follow each other: without anything in front of
    them."""

    #: Bytes in front of a record's magic.
    front = 4

    def begun(self, data: bytes, at: int, room: int) -> Begun:
        """Returns what begins at `at` of `data`, with `room` bytes up to the end of the file."""
        size, magic = BEGIN.unpack_from(data, at)
        if magic in _MAGICS:
            return size if is_size(size, room) else f"a record there would have {size} bytes"
        if magic == BLANK_MAGIC:
            whole = size == room
            return 0 if whole else f"a blank of {size} bytes does not reach the end of the file"
        return "zeros" if not size and not magic else f"its magic is {magic & 0xFFFFFFFF:08x}"

    def read(
        self, data: bytes, at: int, size: int, position: int, check_body: bool
    ) -> LogRecord | str | None:
        """Returns the record there, None where there is something else that is whole, or why there
        is nothing whole."""
        return read_record(data, at, size, position, check_body=check_body)

    def restart(self) -> None:
        """Forgets what was read before: what comes next need not follow it."""


class _Stretch:
    """A part of a log without a whole record: from `start`, with the reason that was seen there;
    `dirty`: not all of it is zeros."""

    def __init__(self, start: int, why: str) -> None:
        self.start = start
        self.why = why
        self.dirty = False


class LogWalk:
    """Iterates over the whole records of a log; what is between them goes into `findings`.

    `end` is behind the last whole record so far. `advance` is told of the bytes that were read,
    `lost` of the parts that others follow. `torn` mends a torn end.
    `from_offset` must be where a record starts.
    """

    def __init__(
        self,
        log: LongFile,
        findings: Findings,
        *,
        framing: PlainLog | None = None,
        advance: Callable[[int], object] = lambda count: None,
        check_body: bool = True,
        lost: LostParts | None = None,
        torn: Remedy = Remedy.START,
        from_offset: int | None = None,
    ) -> None:
        self._log = log
        self._findings = findings
        self._framing = framing or PlainLog()
        self._advance = advance
        self._check_body = check_body
        self._torn = torn
        self._lost = LostParts() if lost is None else lost
        self._stretch: _Stretch | None = None
        self.start = log.min_offset if from_offset is None else from_offset
        self.end = self.start
        #: Where the log is damaged first, with whole records behind that; None: nowhere.
        self.damaged_at: int | None = None

    def __iter__(self) -> Iterator[LogRecord]:
        size = self._log.file_size
        for start in self._log.starts:
            if start + size > self.start:
                yield from self._file(max(start, self.start), start + size)
        stretch = self._stretch
        if stretch is not None and stretch.dirty:
            file, at = self._log.name(stretch.start)
            self._findings.add(
                "log-torn", file, at,
                f"the log ends at {stretch.start}, and what stands behind that is no record:"
                f" {stretch.why}", self._torn,
            )  # fmt: skip
        self._log.close()

    def _file(self, position: int, end: int) -> Iterator[LogRecord]:
        """Yields the records of one file from a position on."""
        framing, check_body = self._framing, self._check_body
        if self._stretch is None and position != self.end:
            self._stretch = _Stretch(self.end, "a file is missing")
        wanted = _WINDOW
        while position < end:
            asked, wanted = wanted, _WINDOW
            data = self._log.read(asked, position)
            at, length, why = 0, len(data), ""
            while length - at >= BEGIN.size:
                begun = framing.begun(data, at, end - position - at)
                if isinstance(begun, str):
                    why = begun
                    break
                if not begun:
                    self._end_stretch(position + at)
                    self._advance(at)
                    self.end = end
                    return
                if at + begun > length:
                    wanted = max(begun, _WINDOW)
                    break
                record = framing.read(data, at, begun, position + at, check_body)
                if isinstance(record, str):
                    why = record
                    break
                if self._stretch is not None:
                    self._end_stretch(position + at)
                at += begun
                self.end = position + at
                if record is not None:
                    yield record
            if not why and at == 0 and length < asked:
                why = "the file ends within a record"
            self._advance(at)
            position += at
            if why:
                if self._stretch is None:
                    self._stretch = _Stretch(position, why)
                position = self._search(self._stretch, position, end)

    def _search(self, stretch: _Stretch, first: int, end: int) -> int:
        """Returns where the file has the next whole record behind `first`; its end where there is
        none."""
        position, front = first, self._framing.front
        while position < end:
            position = max(position, min(self._log.next_data(position), end))
            data = self._log.read(_WINDOW, position)
            if not data:
                break
            step = len(data)
            if data != _ZEROS[:step]:
                stretch.dirty = True
                for match in _magics(data):
                    candidate = position + match.start() - front
                    if candidate > first and self._is_whole(candidate, end):
                        return candidate
                if step == _WINDOW:
                    # A magic may stand across the end of what was read.
                    step -= 4
            self._advance(step)
            position += step
        return end

    def _is_whole(self, position: int, end: int) -> bool:
        head = self._log.read(BEGIN.size, position)
        if len(head) < BEGIN.size:
            return False
        begun = self._framing.begun(head, 0, end - position)
        if isinstance(begun, str) or not begun:
            return False
        data = self._log.read(begun, position)
        if len(data) < begun:
            return False
        self._framing.restart()
        record = self._framing.read(data, 0, begun, position, True)
        self._framing.restart()
        return isinstance(record, LogRecord)

    def _end_stretch(self, position: int) -> None:
        stretch, self._stretch = self._stretch, None
        if stretch is None or position == stretch.start:
            return
        if self.damaged_at is None:
            self.damaged_at = stretch.start
        self._lost.add(stretch.start, position)
        file, at = self._log.name(stretch.start)
        self._findings.add(
            "log-damage", file, at,
            f"no whole record from {stretch.start} to {position}, where the log goes on:"
            f" {stretch.why}", Remedy.RESTORE,
        )  # fmt: skip
