"""One queue against the records of the log that say to be in it."""

from __future__ import annotations

from typing import NamedTuple

from rocketmq_tw.formats.queue import ADDRESSES_END, FILLER_SIZE
from rocketmq_tw.storecheck.findings import Findings, Remedy
from rocketmq_tw.storecheck.layout import Known
from rocketmq_tw.storecheck.records import LogRecord
from rocketmq_tw.storecheck.stored_queue import RawUnit, StoredQueue

#: Its units have the time of delivery.
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"


class _Mismatch(NamedTuple):
    """Messages, from queue offset `offset` on, of which the queue says something else. It is right
    if the topic was deleted and the log has the messages of the new one further on."""

    offset: int
    text: str
    is_missing: bool
    messages: int


class CheckedQueue:
    """Keeps what is known of one queue while the log is read."""

    def __init__(self, topic: str, files: StoredQueue, findings: Findings, known: Known) -> None:
        self.topic = topic
        self.files = files
        self._findings = findings
        self._known = known
        #: Queue offsets of the first record in the log, and of the one to come next.
        self.first: int | None = None
        self.next = 0
        self._mismatch: _Mismatch | None = None
        #: A record further on than `next`, until it is known whether the queue goes on there.
        self._leap: LogRecord | None = None

    def has(self, offset: int) -> bool:
        """Returns whether a record that was put may have a queue offset."""
        is_leap = self._leap is not None and self._leap.queue_offset == offset
        return is_leap or (self.first is not None and offset < self.next)

    def take_back(self, offset: int) -> None:
        """Takes back that a record was put at a queue offset, which another one has."""
        if self.next == offset + 1:
            self.next = offset

    def put(
        self, record: LogRecord, offset: int, unit: RawUnit | None, tags_code: int, *, fits: bool
    ) -> None:
        """Compares a record with the unit at its queue offset, which leads to it where it
        `fits`."""
        is_due = self._known.is_due(record.position)
        if (not fits or self._leap is not None) and self._is_leap(
            record, offset, fits=fits, is_due=is_due
        ):
            return
        if self.first is None:
            self.first = offset
        elif offset != self.next:
            if offset < self.next:
                if not self._begins_anew(record, offset, fits):
                    return
            else:
                self._settle_doubt()
                self._check_gap(self.next, offset)
        self.next = offset + 1
        if fits:
            assert unit is not None
            if self._mismatch is not None:
                self._settle_doubt()
            if unit[2] != tags_code:
                self._check_code(record, offset, unit[2], tags_code)
        elif is_due or (unit is not None and unit[1]):
            self._suspect(record, offset, unit)

    def _is_leap(self, record: LogRecord, offset: int, *, fits: bool, is_due: bool) -> bool:
        """Returns whether a record may have a wrong queue offset: one further on than its queue is,
        without a unit. That is known with the next record of the queue."""
        leap, self._leap = self._leap, None
        if leap is not None:
            if offset != leap.queue_offset + 1:
                self._tell_leap(leap)
            else:
                # The log has lost what is between.
                self._check_gap(self.next, leap.queue_offset)
                self.next = offset
                self._suspect(leap, leap.queue_offset, self.files.unit_at(leap.queue_offset))
        is_far = self.first is not None and offset > self.next
        if fits or not is_due or not is_far or offset != record.queue_offset:
            return False
        self._leap = record
        return True

    def _tell_leap(self, record: LogRecord) -> None:
        file, at = self._known.log_name(record.position)
        self._findings.add(
            "record-place", file, at,
            f"the record at {record.position} says that it is {record.queue_offset} of"
            f" {self.files.name}, which had come to {self.next}, and no unit leads to it",
            Remedy.RESTORE,
        )  # fmt: skip

    def _begins_anew(self, record: LogRecord, offset: int, fits: bool) -> bool:
        """Returns whether the queue's topic may have been deleted and created again."""
        if fits or offset == 0:
            self._mismatch = None
            self.first = offset
            return True
        self._tell(
            "offset-twice", offset,
            f"the record at {record.position} has queue offset {offset}, which another one had"
            " before it", Remedy.RESTORE,
        )  # fmt: skip
        return False

    def _suspect(self, record: LogRecord, offset: int, unit: RawUnit | None) -> None:
        mismatch = self._mismatch
        if mismatch is not None:
            self._mismatch = mismatch._replace(messages=mismatch.messages + 1)
            return
        place = f"the record at {record.position} of {record.size} bytes"
        is_missing = unit is None or not unit[1]
        if unit is None or is_missing:
            text = f"it has no unit {offset}, for {place}"
        elif unit[1] == FILLER_SIZE:
            text = f"unit {offset} stands for no message, and the log has {place}"
        else:
            text = f"unit {offset} leads to {unit[0]} and {unit[1]} bytes in place of {place}"
        self._mismatch = _Mismatch(offset, text, is_missing, 1)

    def _settle_doubt(self, *, at_end: bool = False) -> None:
        """Reports what no later record made good."""
        mismatch, self._mismatch = self._mismatch, None
        if mismatch is None:
            return
        more = f"; {mismatch.messages - 1} more follow" if mismatch.messages > 1 else ""
        kind = "unit-missing" if mismatch.is_missing else "unit-wrong"
        remedy = self._known.tail_remedy if mismatch.is_missing and at_end else Remedy.REPAIR
        self._tell(kind, mismatch.offset, mismatch.text + more, remedy)

    def _check_code(self, record: LogRecord, offset: int, code: int, expected: int) -> None:
        if code < ADDRESSES_END:
            code = self._extra_code(record, offset, code)
        if self.topic == SCHEDULE_TOPIC:
            if code < record.store_timestamp:
                self._tell(
                    "unit-code", offset,
                    f"unit {offset} is due at {code}, before it was stored", Remedy.REPAIR,
                )  # fmt: skip
        elif code != expected:
            self._tell(
                "unit-code", offset,
                f"unit {offset} has the tags code {code}, its message {expected}", Remedy.REPAIR,
            )  # fmt: skip

    def _extra_code(self, record: LogRecord, offset: int, address: int) -> int:
        """Returns the tags code of the extra at an address; reports one that is not the
        record's."""
        code = self.files.extra_code(address, record.store_timestamp)
        if code is not None:
            return code
        file, byte = self.files.place_of_extra(address)
        self._findings.add(
            "extra", file, byte,
            f"there is no extra of unit {offset} of {self.files.name}", Remedy.REPAIR,
        )  # fmt: skip
        return address

    def _check_gap(self, first: int, end: int) -> None:
        """Looks at units in front of one that is there: between two that are neighbours in the log,
        or of messages that the log has no more. A broker that finds zeros ends the queue there, and
        gives offsets again."""
        end = min(end, self.files.files_end)
        holes = [offset for offset, unit in self.files.units(first, end) if not unit[1]]
        if holes:
            self._tell(
                "unit-hole", holes[0],
                f"units {holes[0]} to {holes[-1]} are zeros, and others follow", Remedy.REPAIR,
            )  # fmt: skip
        self._check_astray(first, end)

    def _check_astray(self, first: int, end: int) -> None:
        """Reports units that lead to where the log should have their messages and has not."""
        astray, count, where = -1, 0, 0
        for offset, (position, size, _) in self.files.units(first, end):
            if size <= 0:
                if size < 0 and astray < 0:
                    astray, where, count = offset, position, 1
                continue
            if size != FILLER_SIZE and self._known.is_astray(position):
                if not count:
                    astray, where = offset, position
                count += 1
        if count:
            more = f"; {count - 1} more do the like" if count > 1 else ""
            self._tell(
                "unit-astray", astray,
                f"unit {astray} leads to {where}, where the log has no record of it{more}",
                Remedy.REPAIR,
            )  # fmt: skip

    def finish(self) -> None:
        """Looks at what no record led to; to be called at the end of the log."""
        self.files.check_names(self._findings)
        self.files.check_files(self._findings)
        if self._leap is not None:
            self._tell_leap(self._leap)
        self._settle_doubt(at_end=True)
        end = self.files.end
        first = end if self.first is None else self.first
        self._check_gap(self.files.begin, min(first, end))
        if self.first is not None:
            self._check_astray(self.next, end)

    def _tell(self, kind: str, offset: int, text: str, remedy: Remedy) -> None:
        file, byte = self.files.place_of(offset)
        self._findings.add(kind, file, byte, text, remedy)
