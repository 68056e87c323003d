"""All queues of a store: which one a record of the log is in, and the directories of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from rocketmq_tw.formats.flat import flat
from rocketmq_tw.formats.queue import FILLER_SIZE
from rocketmq_tw.formats.record import PLACE, PLACE_AT
from rocketmq_tw.storecheck.checked_queue import CheckedQueue
from rocketmq_tw.storecheck.findings import Findings, Remedy
from rocketmq_tw.storecheck.layout import STOCK_QUEUE_SIZE, Known, Sizes
from rocketmq_tw.storecheck.long_file import directories
from rocketmq_tw.storecheck.queue_tree import is_queue_id, queue_sizes
from rocketmq_tw.storecheck.records import LogRecord, is_topic
from rocketmq_tw.storecheck.stored_queue import RawUnit, StoredQueue, Windows

#: Looks into queue files for records that say a wrong place: each queue may be wrong as a whole.
_MOST_LOOKS = 100_000
_MOST_MENDS = 10_000
#: Units on each side of one that are looked at before it is believed more than its record.
_NEIGHBOURS = 4
_PLACE = flat(PLACE)


class Mend(NamedTuple):
    """The record at a log offset is in that queue at that queue offset, whatever it says itself."""

    position: int
    queue_id: int
    queue_offset: int


class QueueCheck:
    """The queues below `root`. Records are to be given in the order of the log."""

    def __init__(self, root: str, findings: Findings, sizes: Sizes, known: Known) -> None:
        self._root = root
        self._findings = findings
        self._is_size_given = sizes.are_given
        self._sizes = queue_sizes(root, sizes)
        self._known = known
        self._windows = Windows()
        #: By topic and queue id.
        self.queues: dict[tuple[str, int], CheckedQueue] = {}
        #: Whether there are further queues of messages.
        self.has_further = False
        #: Records that say a wrong place, by topic, queue id and queue offset of their units.
        self._mends: dict[tuple[str, int, int], tuple[Mend, LogRecord]] = {}
        self._queue_ids: dict[str, list[int]] = {}
        self._looks_left = _MOST_LOOKS

    @property
    def mends(self) -> list[Mend]:
        """Records that say a wrong place, with the one that their units have. No other record says
        to be there."""
        return [mend for mend, _ in self._mends.values()]

    def put(self, record: LogRecord, tags_code: int) -> None:
        """Compares a record with its queue."""
        topic = record.topic
        if self._is_left_out(record, topic):
            return
        queue = self.queues.get((topic, record.queue_id)) or self._queue(topic, record.queue_id)
        unit = queue.files.next_unit(record.queue_offset)
        fits = _leads_to(unit, record)
        if not fits and (mend := self._other_place(queue, record, unit)) is not None:
            self._mend(record, mend, tags_code)
        else:
            if self._mends and (place := _place_of(record)) in self._mends:
                del self._mends[place]
                # The unit of another record led astray: that one is where it says.
                queue.take_back(record.queue_offset)
            queue.put(record, record.queue_offset, unit, tags_code, fits=fits)

    def put_further(
        self, record: LogRecord, topic: str, queue_id: int, offset: int, tags_code: int
    ) -> None:
        """Compares a record with a further queue, where there is such a queue."""
        queue = self._queue(topic, queue_id) if is_topic(topic) else None
        if queue is not None and queue.files.is_there:
            self.has_further = True
            if not self._is_left_out(record, topic):
                self._put_at(queue, record, offset, tags_code)

    def put_elsewhere(self, record: LogRecord, tags_code: int) -> bool:
        """Compares a record that says a queue that cannot be with the one whose unit leads to it;
        returns whether there is one."""
        if (
            not is_topic(record.topic)
            or self._is_left_out(record, record.topic)
            or not self._may_look(record)
        ):
            return False
        mend = next(self._in_other_queues(record), None)
        if mend is not None:
            self._mend(record, mend, tags_code)
        return mend is not None

    def _put_at(self, queue: CheckedQueue, record: LogRecord, offset: int, tags_code: int) -> None:
        unit = queue.files.next_unit(offset)
        queue.put(record, offset, unit, tags_code, fits=_leads_to(unit, record))

    def _is_left_out(self, record: LogRecord, topic: str) -> bool:
        known = self._known
        return topic in known.passed_over or record.position < known.deleted.get(topic, 0)

    def _queue(self, topic: str, queue_id: int) -> CheckedQueue:
        queue = self.queues.get((topic, queue_id))
        if queue is None:
            files = StoredQueue(self._root, topic, queue_id, self._sizes, self._windows)
            queue = CheckedQueue(topic, files, self._findings, self._known)
            self.queues[topic, queue_id] = queue
        return queue

    # Records that say a wrong place

    def _may_look(self, record: LogRecord) -> bool:
        """Returns whether a record may say a wrong place, and it may be looked for."""
        return not record.has_crc and self._looks_left > 0 and len(self._mends) < _MOST_MENDS

    def _other_place(
        self, queue: CheckedQueue, record: LogRecord, unit: RawUnit | None
    ) -> Mend | None:
        """Returns where a record is by the units of its topic's queues, where `unit`, at the place
        that it says, does not lead to it; None where it may be right all the same."""
        is_next = queue.first is not None and record.queue_offset == queue.next
        is_free = unit is None or not unit[1]
        if (is_next and is_free) or not self._may_look(record):
            return None
        self._looks_left -= 1
        found = queue.files.offset_of(record.position, record.size)
        if found is not None and not queue.has(found):
            mends = iter([Mend(record.position, record.queue_id, found)])
        else:
            mends = self._in_other_queues(record)
        return next((mend for mend in mends if self._is_borne_out(record, mend)), None)

    def _in_other_queues(self, record: LogRecord) -> Iterator[Mend]:
        """Yields the places in queues of its topic whose unit, at the record's queue offset, leads
        to it, and that no record in front of it has."""
        topic, offset = record.topic, record.queue_offset
        for queue_id in self._ids_of(topic):
            self._looks_left -= 1
            queue = self._queue(topic, queue_id)
            if _leads_to(queue.files.unit_at(offset), record) and not queue.has(offset):
                yield Mend(record.position, queue_id, offset)
            if self._looks_left <= 0:
                break

    def _is_borne_out(self, record: LogRecord, mend: Mend) -> bool:
        """Returns whether most of the units around that of `mend` lead to records that say so. In a
        file of another queue, or of another store, they do not."""
        files = self._queue(record.topic, mend.queue_id).files
        first = max(mend.queue_offset - _NEIGHBOURS, 0)
        votes = 0
        for offset, (position, size, _) in files.units(first, mend.queue_offset + _NEIGHBOURS + 1):
            is_message = 0 < size != FILLER_SIZE and position >= self._known.log_start
            if offset == mend.queue_offset or not is_message:
                continue
            data = self._known.read_log(_PLACE.size, position + PLACE_AT)
            place = _PLACE.unpack(data) if len(data) == _PLACE.size else ()
            votes += 1 if place[::2] == (mend.queue_id, offset) else -1
        return votes > 0

    def _ids_of(self, topic: str) -> list[int]:
        """Returns the queues of a topic that have a directory."""
        if topic not in self._queue_ids:
            names = directories(f"{self._root}/consumequeue/{topic}")
            self._queue_ids[topic] = [int(name) for name in names if is_queue_id(name)]
        return self._queue_ids[topic]

    def _mend(self, record: LogRecord, mend: Mend, tags_code: int) -> None:
        """Notes that a record says a wrong place, and compares it with its right one."""
        self._mends[record.topic, mend.queue_id, mend.queue_offset] = mend, record
        queue = self._queue(record.topic, mend.queue_id)
        self._put_at(queue, record, mend.queue_offset, tags_code)

    def _tell_mend(self, mend: Mend, record: LogRecord) -> None:
        file, at = self._known.log_name(record.position)
        self._findings.add(
            "record-place", file, at,
            f"the record at {record.position} says that it is {record.queue_offset} of"
            f" {record.topic}/{record.queue_id}, and the unit of {mend.queue_offset} of"
            f" {record.topic}/{mend.queue_id} leads to it", Remedy.REPAIR,
        )  # fmt: skip

    # The end of the log

    def finish(self, topics: Collection[str] | None) -> None:
        """Looks at what no record led to; to be called at the end of the log. Of the `topics` that
        there are None says that they are not known: a topic that is deleted has no queues, and the
        log has its messages still."""
        for mend, record in self._mends.values():
            self._tell_mend(mend, record)
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
            if queue.files.is_there or topics is None or queue.topic in topics:
                queue.finish()

    def _tell_name(self, topic: str) -> None:
        # A file system of its own has that one.
        if topic != "lost+found":
            self._findings.add(
                "file-name", f"consumequeue/{topic}", None,
                "no topic has that name: move it away", Remedy.RESTORE,
            )  # fmt: skip

    def _check_size(self) -> None:
        """Files that all have one wrong size look right beside each other."""
        size = self._sizes.queue
        if size and not self._is_size_given and size != STOCK_QUEUE_SIZE:
            self._findings.add(
                "queue-size", "consumequeue", None,
                f"files of queues have {size} bytes, stock's have {STOCK_QUEUE_SIZE}: give the"
                " broker's configuration with -c",
            )  # fmt: skip


def _place_of(record: LogRecord) -> tuple[str, int, int]:
    return record.topic, record.queue_id, record.queue_offset


def _leads_to(unit: RawUnit | None, record: LogRecord) -> bool:
    return unit is not None and unit[0] == record.position and unit[1] == record.size
