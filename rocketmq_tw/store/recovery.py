"""Brings the files that a start finds into a state that agrees.

The log is the truth: it is read from a point in front of which everything is known to be synced,
cut at the first thing that is no record, and queues and index are built again behind that point.
"""

from __future__ import annotations

from collections.abc import Callable

from rocketmq_tw.message.layout import (
    BLANK_MAGIC,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
    SIZE_AND_MAGIC,
)
from rocketmq_tw.message.record import RecordHead, parse_head
from rocketmq_tw.store.checkpoint import Checkpoint
from rocketmq_tw.store.checkpointing import Checkpointing
from rocketmq_tw.store.consume_queue import ConsumeQueue
from rocketmq_tw.store.contents import StoreContents
from rocketmq_tw.store.deleted_topics import Beginnings, is_first_again
from rocketmq_tw.store.dispatch_entries import DispatchEntry, EntryMaker
from rocketmq_tw.store.errors import DamagedStoreError, IllegalMessageError
from rocketmq_tw.store.queue_units import Unit
from rocketmq_tw.store.scan import SECTOR, may_lack_a_sector
from rocketmq_tw.store.topic_removal import TopicRemoval
from rocketmq_tw.structs import msgspec

_BATCH = 4096
_MAX_NOTES = 100


class RecoveryReport(msgspec.Struct, kw_only=True):
    """What a start found: the log was read from `start_offset` and ends at `end_offset`, the queues
    have all up to `dispatched_offset`; timestamps (ms) are of the last records there. `notes` are
    lines for the server's log that say what was changed, with offsets and bytes."""

    clean: bool
    start_offset: int = 0
    end_offset: int = 0
    dispatched_offset: int = 0
    records: int = 0
    last_timestamp: int = 0
    dispatched_timestamp: int = 0
    notes: list[str] = msgspec.field(default_factory=list)
    #: Notes that were left out because there are too many.
    unsaid: int = 0

    def note(self, text: str) -> None:
        """Adds a note, or counts it where there are enough."""
        if len(self.notes) < _MAX_NOTES:
            self.notes.append(text)
        else:
            self.unsaid += 1


class Recovery:
    """One start of a store; `run` makes log, queues and index agree."""

    def __init__(
        self,
        contents: StoreContents,
        maker: EntryMaker,
        removal: TopicRemoval,
        checkpointing: Checkpointing,
        *,
        check_body: bool,
        advance: Callable[[int], object],
    ) -> None:
        self._log = contents.log
        self._queues = contents.queues
        #: Told of the bytes of the log that were read.
        self._advance = advance
        self._index = contents.index
        self._maker = maker
        self._removal = removal
        self._deleted = contents.deleted
        self._checkpointing = checkpointing
        self._checkpoint = checkpointing.last
        self._check_body = check_body
        self._log_is_durable = False
        #: All in front of it was synced, if the checkpoint tells.
        self._safe = 0
        #: From here on it is read.
        self._start = 0
        self._beginnings = Beginnings(contents.log, maker, check_body=check_body)
        #: Behind it nothing comes into queues and index.
        self._limit: int | None = None

    def run(
        self, checkpoint: Checkpoint, *, clean: bool, queues_repaired: bool, limit: int | None
    ) -> RecoveryReport:
        """Recovers the store. `checkpoint` is the file's content; `clean`: the last stop was
        orderly; `queues_repaired`: queue files had to be repaired. Nothing at or behind the log
        offset `limit` is brought into queues and index. Raises `DamagedStoreError` where going on
        could lose what was safe."""
        self._checkpoint, self._limit = checkpoint, limit
        report = RecoveryReport(clean=clean)
        if not self._log.file_starts:
            if len(self._queues):
                report.note(
                    f"there is no commit log: removed {len(self._queues)} queues that pointed to it"
                )
            self._queues.clear()
            self._cut_index(0)
            self._log.end_at(0, cut=False, since=0)
            self._deleted.rewrite(0, 0)
            return report
        if self._deleted:
            self._drop_deleted()
        try:
            start = self._choose_start(clean, queues_repaired, report)
            if self._limit is not None:
                # The queues may have more: the last record in front of the limit must be found.
                start = max(min(start, self._file_start(self._limit)), self._log.min_offset)
            if not clean:
                self._log.write_again(max(start, self._safe))
            self._scan(start, report)
        except OSError as error:
            raise DamagedStoreError(
                f"files of the store cannot be read or made durable ({error}): the commit log was"
                " left as it is; check that file and the disk"
            ) from error
        self._settle(start, report)
        if report.unsaid:
            report.notes.append(f"and {report.unsaid} more notes of this kind")
        return report

    def _drop_deleted(self) -> None:
        """Removes the files of deleted topics, which a power loss may have brought back."""
        left: dict[str, int] = {}
        for queue in self._queues:
            offset = self._deleted.offset_of(queue.topic)
            if offset:
                queue.cut_in_front(offset, self._log.min_offset)
                left[queue.topic] = left.get(queue.topic, 0) + queue.max_offset
        for topic, units in left.items():
            if not units:
                self._queues.remove_topic(topic)

    def _choose_start(self, clean: bool, repaired: bool, report: RecoveryReport) -> int:
        log, queues, checkpoint = self._log, self._queues, self._checkpoint
        safe = checkpoint.safe_offset
        is_known = log.min_offset <= safe <= log.files_end and self._starts_record(safe)
        if is_known:
            self._safe = safe
        gone, gone_units = self._deleted.since(checkpoint)
        may_be_empty = safe >= 0 and checkpoint.queues <= gone
        if repaired or checkpoint.is_of_log_alone or (not len(queues) and not may_be_empty):
            report.note(
                f"queue files are missing or damaged: built all again from {log.min_offset}"
            )
            start = log.min_offset
        elif is_known:
            self._cut_queues(safe, clean)
            has_all = (
                queues.with_files >= checkpoint.queues - gone
                and queues.units >= checkpoint.units - gone_units
            )
            if has_all and not queues.is_torn:
                return self._index_start(safe, trusted=True)
            report.note(
                _torn(log.min_offset)
                if has_all
                else f"queues have {queues.units} messages in front of {safe} where they had"
                f" {checkpoint.units}: built them again from {log.min_offset}"
            )
            start = log.min_offset
        elif clean and not queues.is_torn:
            # As after a stop of stock: the queues are whole, what they have is passed over.
            start = self._file_start(max(queues.max_physical, log.min_offset))
            return self._index_start(min(start, log.file_starts[-1]), trusted=False)
        else:
            start = self._file_by_time(checkpoint.min_timestamp)
        self._checkpointing.retract()
        self._cut_queues(start, False)
        if queues.is_torn:
            report.note(_torn(log.min_offset))
            start = log.min_offset
            self._cut_queues(start, False)
        return self._index_start(start, trusted=False)

    def _index_start(self, start: int, *, trusted: bool) -> int:
        """Keys wait in memory for company, so the index may be behind the queues; one that was
        removed is built again."""
        index, log = self._index, self._log
        if index is None or (trusted and index.end_offset >= self._checkpoint.index_end):
            return start
        if index.end_offset >= log.min_offset:
            return min(start, index.end_offset)
        return log.min_offset if self._checkpoint.index_msg_timestamp else start

    def _starts_record(self, offset: int) -> bool:
        """Returns whether a record, a blank or the end stands at an offset, or so many zeros as a
        power loss leaves of a record."""
        if offset == self._log.files_end:
            return True
        data = self._log.peek(SIZE_AND_MAGIC.size, offset)
        if len(data) < SIZE_AND_MAGIC.size:
            return False
        size, magic = SIZE_AND_MAGIC.unpack(data)
        if magic not in (MAGIC_V1, MAGIC_V2):
            if self._log.front_size:
                # Of an entry.
                return True
            # The next sector may be there though this one is not.
            rest = min(MIN_RECORD_SIZE, SECTOR - offset % SECTOR)
            return magic == BLANK_MAGIC or not any(self._log.peek(rest, offset))
        head = parse_head(self._log.peek(max(size, 0), offset), check_body=False)
        return head is None or head.physical_offset == offset

    def _file_by_time(self, timestamp: int) -> int:
        """Returns the last file that begins with a message stored at or before a time."""
        log = self._log
        for start in reversed(log.file_starts):
            for head in log.scan(start, start + log.file_size, check_body=False):
                if 0 < head.store_timestamp <= timestamp:
                    return start
                break
        return log.file_starts[0]

    def _file_start(self, offset: int) -> int:
        return offset - offset % self._log.file_size

    def _cut_queues(self, start: int, clean: bool) -> None:
        def is_before(unit: Unit) -> bool:
            return unit.is_written and unit.position < start

        for queue in self._queues:
            if clean and queue.max_physical <= start:
                continue
            queue.cut_where(is_before)
            # A crash may have left garbage behind the synced units, and the search fell into it.
            end = queue.max_offset
            while not self._agrees(queue, end - 1, start):
                end -= 1
            if end < queue.max_offset:
                queue.cut_at(end)

    def _agrees(self, queue: ConsumeQueue, offset: int, start: int) -> bool:
        """Returns whether the unit points to its message, or to one that the log has no more."""
        unit = queue.unit(offset)
        if unit is None or unit.is_filler:
            return True
        if not unit.is_written or unit.position >= start:
            return False
        if unit.position < self._log.min_offset:
            return True
        head = parse_head(self._log.peek(unit.size, unit.position), check_body=False)
        return head is not None and (
            (head.size, head.topic, head.queue_id, head.queue_offset)
            == (unit.size, queue.topic, queue.queue_id, offset)
        )

    def _scan(self, start: int, report: RecoveryReport) -> None:
        self._start = start
        scan = self._log.scan(
            start,
            self._log.files_end,
            check_body=self._check_body,
        )
        #: What comes next in the queues met so far; whatever else comes is looked at closely.
        expected: dict[tuple[str, int], int] = {}
        entries: list[DispatchEntry] = []
        deleted = self._deleted
        limit = scan.end if self._limit is None else self._limit
        reached, is_behind, told = start, False, start
        for head in scan:
            report.records += 1
            report.last_timestamp = head.store_timestamp
            end = head.physical_offset + head.size
            if end > limit:
                is_behind = True
                continue
            reached, report.dispatched_timestamp = end, head.store_timestamp
            if not report.clean and may_lack_a_sector(head):
                # Never cut for that: it may be what a user sent, and safe with all behind it.
                report.note(
                    f"record at {head.physical_offset} ({head.size} bytes): part of its properties"
                    " is zeros; if it was not synced before a power loss, that may be why"
                )
            if deleted and deleted.covers(head.topic, head.physical_offset):
                continue
            entry = self._maker.of_head(head)
            if entry.in_queue:
                key = head.topic, head.queue_id
                if expected.get(key) != head.queue_offset:
                    self._put(entries)
                    if not self._can_have(head, report):
                        continue
                expected[key] = head.queue_offset + 1
            entries.append(entry)
            if len(entries) == _BATCH:
                self._put(entries)
                self._advance(end - told)
                told = end
        self._put(entries)
        self._advance(scan.position - told)
        if scan.damaged:
            self._refuse_to_lose(scan.position)
        self._queues.write_out()
        if self._index:
            self._index.write_pending()
        report.start_offset = start
        report.end_offset = scan.position
        report.dispatched_offset = reached if is_behind else scan.position

    def _put(self, entries: list[DispatchEntry]) -> None:
        """Brings records into queues and index, and empties the list."""
        if not entries:
            return
        self._queues.put(entries)
        if self._index:
            self._index.add(entries)
        self._queues.write_pending()
        entries.clear()

    def _can_have(self, head: RecordHead, report: RecoveryReport) -> bool:
        """Returns whether there can be a queue with that record at its queue offset; else a note
        says what is wrong."""
        try:
            queue = self._queues.find_or_create(head.topic, head.queue_id)
        except IllegalMessageError as error:
            report.note(f"record at {head.physical_offset}: {error}")
            return False
        if is_first_again(queue, head.queue_offset, head.physical_offset):
            if not self._beginnings.is_genuine(head):
                report.note(
                    f"record at {head.physical_offset}: {head.topic}/{head.queue_id} goes on from"
                    f" {queue.max_offset} behind it, so it has not queue offset 0: left out"
                )
                return False
            report.note(
                f"record at {head.physical_offset}: {head.topic} was deleted and made again:"
                f" {head.queue_id} begins anew in place of {queue.max_offset} messages"
            )
            self._make_log_durable()
            self._removal.begin_anew(queue)
            return True
        if not queue.may_have(head.queue_offset, head.physical_offset):
            report.note(
                f"record at {head.physical_offset}: {head.queue_offset} can be no queue"
                f" offset in {head.topic}/{head.queue_id}: left out"
            )
            return False
        self._note_odd_place(queue, head, report)
        return True

    def _note_odd_place(
        self, queue: ConsumeQueue, head: RecordHead, report: RecoveryReport
    ) -> None:
        """Notes a record that contradicts its queue: no checksum covers the place that it says.
        Which of two is the wrong one cannot be known here, so it is taken as it stands."""
        offset, end = head.queue_offset, queue.max_offset
        told = f"record at {head.physical_offset}: it says that it is {offset} of"
        told += f" {head.topic}/{head.queue_id}"
        if offset < end:
            unit = queue.unit(offset)
            if unit is not None and unit.position != head.physical_offset and not unit.is_filler:
                report.note(f"{told}, as the one at {unit.position} does: left out")
        elif offset > end and queue.max_physical >= 0:
            report.note(f"{told}, which had come to {end}: what is between is nowhere")
        elif offset > end and self._start == self._log.min_offset == 0:
            report.note(f"{told}, which nothing else is in, though the log begins at 0")

    def _make_log_durable(self) -> None:
        """Before anything is removed because of it."""
        if not self._log_is_durable:
            self._log.end_at(self._log.files_end, cut=False, since=self._start)
            self._log_is_durable = True

    def _refuse_to_lose(self, position: int) -> None:
        """A torn tail has nothing safe behind it; damage in the middle has."""
        log = self._log
        safe = max(self._checkpoint.safe_offset, 0)
        # Times tell only where offsets do not: a replica may copy older ones behind younger ones.
        later = [start for start in log.file_starts if start > position and not safe]
        for start in later:
            for head in log.scan(start, start + log.file_size, check_body=False):
                if 0 < head.store_timestamp <= self._checkpoint.min_timestamp:
                    safe = max(safe, head.physical_offset)
                break
        if position < safe:
            self._checkpointing.claim_log(safe)
            raise DamagedStoreError(
                f"the commit log is damaged at offset {position}, in front of {safe} up to where "
                "it was safe: nothing was changed; restore the file from a replica"
            )

    def _settle(self, start: int, report: RecoveryReport) -> None:
        log, end, dispatched = self._log, report.end_offset, report.dispatched_offset
        # Also where zeros follow: older bytes may stand behind them.
        cut = not report.clean or end != self._checkpoint.safe_offset
        if cut and any(log.peek(4096, end)):
            report.note(
                f"cut the commit log at {end}, behind its last whole record: the"
                f" {log.files_end - end} bytes behind it are zeros now"
            )
        log.end_at(end, cut=cut, since=start)
        if not report.clean:
            self._queues.mark_names_unsynced()
        if self._checkpointing.last.safe_offset < 0 and self._queues.max_physical > dispatched:
            # A start behind a crash in here would go by the times of what is cut.
            self._checkpointing.retract()
        for queue in self._queues:
            if queue.max_physical > dispatched:
                queue.cut_behind(dispatched)
            if not log.min_offset:
                queue.clear_stray_files()
            queue.correct_min_offset(log.min_offset)
        self._checkpointing.before_index_cut(dispatched)
        self._cut_index(dispatched)
        # A deletion may be forgotten once no power loss brings the files of its queues back.
        for topic in self._deleted.topics():
            if self._deleted.offset_of(topic) <= log.min_offset:
                self._queues.sync_names(topic)
        # Of what began anew in this start.
        self._removal.settle()
        self._deleted.rewrite(log.min_offset, end)

    def _cut_index(self, offset: int) -> None:
        if self._index:
            for _ in self._index.cut(offset):
                # Nobody else waits.
                pass


def _torn(start: int) -> str:
    return f"queues have lost parts of their extensions: built them again from {start}"
