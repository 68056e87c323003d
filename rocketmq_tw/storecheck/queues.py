"""Consume queues and their extensions against the records of the log."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator
from typing import NamedTuple

from rocketmq_tw.formats.flat import flat
from rocketmq_tw.formats.queue import (
    ADDRESSES_END,
    EXTRA_HEAD,
    FILLER_SIZE,
    FIRST_ADDRESS,
    UNIT,
)
from rocketmq_tw.storecheck.findings import Findings, Remedy
from rocketmq_tw.storecheck.layout import STOCK_QUEUE_SIZE, Known, Sizes
from rocketmq_tw.storecheck.long_file import LongFile, directories
from rocketmq_tw.storecheck.queue_tree import is_queue_id, usual_size_below
from rocketmq_tw.storecheck.records import LogRecord, is_topic

_UNIT = flat(UNIT)
_SIZE = _UNIT.size
_EXTRA = flat(EXTRA_HEAD)
#: Units read at once, and queues of which they are kept.
_WINDOW_UNITS = 256
_MOST_WINDOWS = 1024
_EXTRAS_WINDOW = 8192
#: Looks into queue files for records that say a wrong place: each queue may be wrong as a whole.
_MOST_LOOKS = 100_000
_MOST_MENDS = 10_000
#: Its units have the time of delivery.
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"

Unit = tuple[int, int, int]


class _Doubt(NamedTuple):
    """Messages, from queue offset `offset` on, of which the queue says something else. It is right
    if the topic was deleted and the log has the messages of the new one further on."""

    offset: int
    text: str
    messages: int


class Mend(NamedTuple):
    """The record at a log offset is in that queue at that queue offset, whatever it says itself."""

    position: int
    queue_id: int
    queue_offset: int


class CheckedQueue:
    """What is known of one queue while the log is read."""

    def __init__(self, root: str, topic: str, queue_id: int, file_size: int | None) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.files = LongFile(root, f"consumequeue/{topic}/{queue_id}", file_size)
        #: Queue offsets of the first record in the log, and of the one to come next.
        self.first: int | None = None
        self.next = 0
        self.doubt: _Doubt | None = None
        #: A record further on than `next`, until it is known whether the queue goes on there.
        self.leap: LogRecord | None = None
        self.extras: LongFile | None = None
        self.window = b""
        self.window_first = 0
        self.extras_window = b""
        self.extras_first = 0

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.queue_id}"

    @property
    def end(self) -> int:
        """The queue offset behind the last unit that is not zeros; what is behind it is not
        looked at."""
        low = self.files.min_offset // _SIZE
        starts = [start for start in self.files.starts if self._is_written(start // _SIZE)]
        if not starts:
            return low
        low = starts[-1] // _SIZE
        high = (starts[-1] + self.files.file_size) // _SIZE
        while low + 1 < high:
            middle = (low + high) // 2
            if self._is_written(middle):
                low = middle
            else:
                high = middle
        return high if self._is_written(low) else low

    def _is_written(self, offset: int) -> bool:
        data = self.files.read(_SIZE, offset * _SIZE)
        return len(data) == _SIZE and bool(_UNIT.unpack(data)[1])

    def unit_at(self, offset: int) -> Unit | None:
        """Returns the unit of a queue offset; None where no file has it."""
        data = self.files.read(_SIZE, offset * _SIZE)
        unit: Unit | None = _UNIT.unpack(data) if len(data) == _SIZE else None
        return unit

    def offset_of(self, position: int, size: int) -> int | None:
        """Returns the queue offset whose unit leads to a record; None where none does. Units are in
        the order of the log."""
        low, high = self.files.min_offset // _SIZE, self.files.files_end // _SIZE
        while low < high:
            middle = (low + high) // 2
            unit = self.unit_at(middle)
            if unit is not None and unit[:2] == (position, size):
                return middle
            if unit is None or not unit[1] or unit[0] > position:
                high = middle
            else:
                low = middle + 1
        return None

    def units(self, first: int, end: int) -> Iterator[tuple[int, Unit]]:
        """Yields queue offsets with their units, as far as files have them."""
        while first < end:
            data = self.files.read(min(end - first, 4096) * _SIZE, first * _SIZE)
            count = len(data) // _SIZE
            if not count:
                return
            for number, unit in enumerate(_UNIT.iter_unpack(data[: count * _SIZE])):
                yield first + number, unit
            first += count


class QueueCheck:
    """The queues below `root`. Records are to be given in the order of the log."""

    def __init__(self, root: str, findings: Findings, sizes: Sizes, known: Known) -> None:
        self._root = root
        self._findings = findings
        self._sizes = sizes
        self._is_size_given = sizes.queue is not None
        self._file_size = sizes.queue or usual_size_below(root, "consumequeue")
        self._known = known
        #: Whether there are further queues of messages.
        self.has_further = False
        self._windows: OrderedDict[tuple[str, int], CheckedQueue] = OrderedDict()
        self.queues: dict[tuple[str, int], CheckedQueue] = {}
        #: Records that say a wrong place, with the one that their units have.
        self.mends: list[Mend] = []
        self._queue_ids: dict[str, list[int]] = {}
        self._looks_left = _MOST_LOOKS

    def put(self, record: LogRecord, tags_code: int) -> None:
        """Compares a record with its queue."""
        topic = record.topic
        self._put(record, topic, record.queue_id, record.queue_offset, tags_code, is_own=True)

    def put_elsewhere(self, record: LogRecord, tags_code: int) -> bool:
        """Compares a record that says a queue that cannot be with the one whose unit leads to it;
        returns whether there is one."""
        if (
            not is_topic(record.topic)
            or self._is_left_out(record, record.topic)
            or record.has_crc
            or self._looks_left <= 0
            or len(self.mends) >= _MOST_MENDS
        ):
            return False
        mend = self._in_other_queue(record)
        if mend is not None:
            self._mend(record, mend, tags_code)
        return mend is not None

    def _other_place(
        self, queue: CheckedQueue, record: LogRecord, unit: Unit | None
    ) -> Mend | None:
        """Returns where a record is by the units of its topic's queues, where `unit`, at the place
        that it says, does not lead to it; None where it may be right all the same."""
        offset = record.queue_offset
        is_next = queue.first is not None and offset == queue.next
        is_free = unit is None or not unit[1]
        if (
            (is_next and is_free)
            or record.has_crc
            or self._looks_left <= 0
            or len(self.mends) >= _MOST_MENDS
        ):
            return None
        self._looks_left -= 1
        found = queue.offset_of(record.position, record.size)
        if found is not None:
            return Mend(record.position, record.queue_id, found)
        return self._in_other_queue(record)

    def _in_other_queue(self, record: LogRecord) -> Mend | None:
        """Returns the place in a queue of its topic whose unit, at the record's queue offset, leads
        to it."""
        topic, offset = record.topic, record.queue_offset
        for queue_id in self._ids_of(topic):
            self._looks_left -= 1
            unit = self._queue(topic, queue_id).unit_at(offset)
            if unit is not None and unit[:2] == (record.position, record.size):
                return Mend(record.position, queue_id, offset)
            if self._looks_left <= 0:
                break
        return None

    def _ids_of(self, topic: str) -> list[int]:
        """Returns the queues of a topic that have a directory."""
        if topic not in self._queue_ids:
            names = directories(f"{self._root}/consumequeue/{topic}")
            self._queue_ids[topic] = [int(name) for name in names if is_queue_id(name)]
        return self._queue_ids[topic]

    def _is_left_out(self, record: LogRecord, topic: str) -> bool:
        known = self._known
        return topic in known.passed_over or record.position < known.deleted.get(topic, 0)

    def put_further(
        self, record: LogRecord, topic: str, queue_id: int, offset: int, tags_code: int
    ) -> None:
        """Compares a record with a further queue, where there is such a queue."""
        queue = self._queue(topic, queue_id) if is_topic(topic) else None
        if queue is not None and queue.files.starts:
            self.has_further = True
            self._put(record, topic, queue_id, offset, tags_code)

    def _mend(self, record: LogRecord, mend: Mend, tags_code: int) -> None:
        """Notes that a record says a wrong place, and compares it with its right one."""
        self.mends.append(mend)
        file, at = self._known.log_name(record.position)
        self._findings.add(
            "record-place", file, at,
            f"the record at {record.position} says that it is {record.queue_offset} of"
            f" {record.topic}/{record.queue_id}, and the unit of {mend.queue_offset} of"
            f" {record.topic}/{mend.queue_id} leads to it", Remedy.REPAIR,
        )  # fmt: skip
        self._put(record, record.topic, mend.queue_id, mend.queue_offset, tags_code)

    def _put(
        self,
        record: LogRecord,
        topic: str,
        queue_id: int,
        offset: int,
        tags_code: int,
        *,
        is_own: bool = False,
    ) -> None:
        if self._is_left_out(record, topic):
            return
        queue = self.queues.get((topic, queue_id)) or self._queue(topic, queue_id)
        unit = self._unit(queue, offset)
        fits = unit is not None and unit[0] == record.position and unit[1] == record.size
        is_due = self._known.is_due(record.position)
        if is_own and not fits and (mend := self._other_place(queue, record, unit)) is not None:
            self._mend(record, mend, tags_code)
            return
        if (not fits or queue.leap is not None) and self._is_leap(
            queue, record, offset, fits=fits, is_due=is_due
        ):
            return
        if queue.first is None:
            queue.first = offset
        elif offset != queue.next:
            if offset < queue.next:
                if not self._begins_anew(queue, record, offset, fits):
                    return
            else:
                self._settle_doubt(queue)
                self._check_gap(queue, queue.next, offset)
        queue.next = offset + 1
        if fits:
            assert unit is not None
            if queue.doubt is not None:
                self._settle_doubt(queue)
            if unit[2] != tags_code:
                self._check_code(queue, record, offset, unit[2], tags_code)
        elif is_due or (unit is not None and unit[1]):
            self._suspect(queue, record, offset, unit)

    def _is_leap(
        self, queue: CheckedQueue, record: LogRecord, offset: int, *, fits: bool, is_due: bool
    ) -> bool:
        """Returns whether a record may have a wrong queue offset: one further on than its queue is,
        without a unit. That is known with the next record of the queue."""
        leap, queue.leap = queue.leap, None
        if leap is not None:
            if offset != leap.queue_offset + 1:
                self._tell_leap(queue, leap)
            else:
                # The log has lost what is between.
                self._check_gap(queue, queue.next, leap.queue_offset)
                queue.next = offset
                self._suspect(queue, leap, leap.queue_offset, self._unit(queue, leap.queue_offset))
        is_far = queue.first is not None and offset > queue.next
        if fits or not is_due or not is_far or offset != record.queue_offset:
            return False
        queue.leap = record
        return True

    def _tell_leap(self, queue: CheckedQueue, record: LogRecord) -> None:
        file, at = self._known.log_name(record.position)
        self._findings.add(
            "record-place", file, at,
            f"the record at {record.position} says that it is {record.queue_offset} of"
            f" {queue.name}, which had come to {queue.next}, and no unit leads to it",
            Remedy.RESTORE,
        )  # fmt: skip

    def _begins_anew(self, queue: CheckedQueue, record: LogRecord, offset: int, fits: bool) -> bool:
        """Returns whether the queue's topic may have been deleted and created again."""
        if fits or offset == 0:
            queue.doubt = None
            queue.first = offset
            return True
        self._at(
            queue, "offset-twice", offset,
            f"the record at {record.position} has queue offset {offset}, which another one had"
            " before it", Remedy.RESTORE,
        )  # fmt: skip
        return False

    def _suspect(
        self, queue: CheckedQueue, record: LogRecord, offset: int, unit: Unit | None
    ) -> None:
        doubt = queue.doubt
        if doubt is not None:
            queue.doubt = doubt._replace(messages=doubt.messages + 1)
            return
        place = f"the record at {record.position} of {record.size} bytes"
        if unit is None or not unit[1]:
            text = f"it has no unit {offset}, for {place}"
        elif unit[1] == FILLER_SIZE:
            text = f"unit {offset} stands for no message, and the log has {place}"
        else:
            text = f"unit {offset} leads to {unit[0]} and {unit[1]} bytes in place of {place}"
        queue.doubt = _Doubt(offset, text, 1)

    def _settle_doubt(self, queue: CheckedQueue, *, at_end: bool = False) -> None:
        """Reports what no later record made good."""
        doubt, queue.doubt = queue.doubt, None
        if doubt is None:
            return
        more = f"; {doubt.messages - 1} more follow" if doubt.messages > 1 else ""
        missing = "no unit" in doubt.text
        kind = "unit-missing" if missing else "unit-wrong"
        remedy = self._known.tail_remedy if missing and at_end else Remedy.REPAIR
        self._at(queue, kind, doubt.offset, doubt.text + more, remedy)

    def _check_code(
        self, queue: CheckedQueue, record: LogRecord, offset: int, code: int, expected: int
    ) -> None:
        if code < ADDRESSES_END:
            code = self._extra_code(queue, record, offset, code)
        if queue.topic == SCHEDULE_TOPIC:
            if code < record.store_timestamp:
                self._at(
                    queue, "unit-code", offset,
                    f"unit {offset} is due at {code}, before it was stored", Remedy.REPAIR,
                )  # fmt: skip
        elif code != expected:
            self._at(
                queue, "unit-code", offset,
                f"unit {offset} has the tags code {code}, its message {expected}", Remedy.REPAIR,
            )  # fmt: skip

    def _extra_code(self, queue: CheckedQueue, record: LogRecord, offset: int, address: int) -> int:
        """Returns the tags code of the extra at an address; reports one that is not the
        record's."""
        if queue.extras is None:
            directory = f"consumequeue_ext/{queue.name}"
            queue.extras = LongFile(self._root, directory, self._sizes.extension)
        at = address - FIRST_ADDRESS
        place = at - queue.extras_first
        if not 0 <= place <= len(queue.extras_window) - _EXTRA.size:
            queue.extras_window = queue.extras.read(_EXTRAS_WINDOW, at)
            queue.extras_first, place = at, 0
        if len(queue.extras_window) - place >= _EXTRA.size:
            size, code, stored, bits = _EXTRA.unpack_from(queue.extras_window, place)
            if size == _EXTRA.size + bits and bits >= 0 and stored == record.store_timestamp:
                return int(code)
        file, byte = queue.extras.name(at)
        self._findings.add(
            "extra", file, byte,
            f"there is no extra of unit {offset} of {queue.name}", Remedy.REPAIR,
        )  # fmt: skip
        return address

    def _check_gap(self, queue: CheckedQueue, first: int, end: int) -> None:
        """Looks at units in front of one that is there: between two that are neighbours in the log,
        or of messages that the log has no more. A broker that finds zeros ends the queue there, and
        gives offsets again."""
        end = min(end, queue.files.files_end // _SIZE)
        holes = [offset for offset, unit in queue.units(first, end) if not unit[1]]
        if holes:
            self._at(
                queue, "unit-hole", holes[0],
                f"units {holes[0]} to {holes[-1]} are zeros, and others follow", Remedy.REPAIR,
            )  # fmt: skip
        self._check_astray(queue, first, end)

    def _check_astray(self, queue: CheckedQueue, first: int, end: int) -> None:
        """Reports units that lead to where the log should have their messages and has not."""
        astray, count, where = -1, 0, 0
        for offset, (position, size, _) in queue.units(first, end):
            if size <= 0:
                if size < 0 and astray < 0:
                    astray, where, count = offset, position, 1
                continue
            if size != FILLER_SIZE and position >= self._known.log_start:
                if not count:
                    astray, where = offset, position
                count += 1
        if count:
            more = f"; {count - 1} more do the like" if count > 1 else ""
            self._at(
                queue, "unit-astray", astray,
                f"unit {astray} leads to {where}, where the log has no record of it{more}",
                Remedy.REPAIR,
            )  # fmt: skip

    def finish(self, topics: Collection[str] | None) -> None:
        """Looks at what no record led to; to be called at the end of the log. Of the `topics` that
        there are None says that they are not known: a topic that is deleted has no queues, and the
        log has its messages still."""
        self._check_size()
        for topic in directories(f"{self._root}/consumequeue"):
            if not is_topic(topic):
                self._tell_name(topic)
                continue
            for name in directories(f"{self._root}/consumequeue/{topic}"):
                if not is_queue_id(name):
                    self._findings.add(
                        "file-name", f"consumequeue/{topic}/{name}", None,
                        "no queue has that name: move it away", Remedy.RESTORE,
                    )  # fmt: skip
                elif topic not in self._known.passed_over:
                    self._queue(topic, int(name))
        for queue in self.queues.values():
            if not queue.files.starts and topics is not None and queue.topic not in topics:
                continue
            queue.files.check_names(self._findings)
            if queue.leap is not None:
                self._tell_leap(queue, queue.leap)
            self._settle_doubt(queue, at_end=True)
            begin, end = queue.files.min_offset // _SIZE, queue.end
            first = end if queue.first is None else queue.first
            self._check_gap(queue, begin, min(first, end))
            if queue.first is not None:
                self._check_astray(queue, queue.next, end)

    def _tell_name(self, topic: str) -> None:
        # A file system of its own has that one.
        if topic != "lost+found":
            self._findings.add(
                "file-name", f"consumequeue/{topic}", None,
                "no topic has that name: move it away", Remedy.RESTORE,
            )  # fmt: skip

    def _check_size(self) -> None:
        """Files that all have one wrong size look right beside each other."""
        size = self._file_size
        if size and not self._is_size_given and size != STOCK_QUEUE_SIZE:
            self._findings.add(
                "queue-size", "consumequeue", None,
                f"files of queues have {size} bytes, stock's have {STOCK_QUEUE_SIZE}: give the"
                " broker's configuration with -c",
            )  # fmt: skip

    def _queue(self, topic: str, queue_id: int) -> CheckedQueue:
        queue = self.queues.get((topic, queue_id))
        if queue is None:
            queue = CheckedQueue(self._root, topic, queue_id, self._file_size)
            self.queues[topic, queue_id] = queue
        return queue

    def _unit(self, queue: CheckedQueue, offset: int) -> Unit | None:
        """Returns the unit of a queue offset; None where no file has it."""
        at = (offset - queue.window_first) * _SIZE
        if not 0 <= at <= len(queue.window) - _SIZE:
            queue.window = queue.files.read(_WINDOW_UNITS * _SIZE, offset * _SIZE)
            queue.window_first, at = offset, 0
            self._keep(queue)
            if len(queue.window) < _SIZE:
                return None
        unit: Unit = _UNIT.unpack_from(queue.window, at)
        return unit

    def _keep(self, queue: CheckedQueue) -> None:
        """Keeps the window of a queue, and forgets the one that was read longest ago."""
        windows, key = self._windows, (queue.topic, queue.queue_id)
        windows[key] = queue
        windows.move_to_end(key)
        if len(windows) > _MOST_WINDOWS:
            _, former = windows.popitem(last=False)
            former.window = former.extras_window = b""

    def _at(self, queue: CheckedQueue, kind: str, offset: int, text: str, remedy: Remedy) -> None:
        file, byte = queue.files.name(offset * _SIZE)
        self._findings.add(kind, file, byte, text, remedy)
