"""The check of a whole store: log, queues, index and what else is beside them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import attrs

from rocketmq_tw.storecheck.findings import Finding, Findings, Remedy
from rocketmq_tw.storecheck.index import IndexCheck
from rocketmq_tw.storecheck.layout import Known, Store
from rocketmq_tw.storecheck.long_file import directories
from rocketmq_tw.storecheck.marks import EPOCHS, CheckpointCheck, EpochCheck, deleted_topics
from rocketmq_tw.storecheck.queue_tree import check_kinds
from rocketmq_tw.storecheck.queues import Mend, QueueCheck
from rocketmq_tw.storecheck.records import (
    LogRecord,
    further_places,
    key_hashes,
    tags_code_of,
)
from rocketmq_tw.storecheck.tables import OffsetAhead, TableCheck
from rocketmq_tw.storecheck.timers import TimerCheck


@attrs.define
class Summary:
    """What was looked at; offsets are bytes of the log, times milliseconds."""

    log_start: int = 0
    log_end: int = 0
    records: int = 0
    queues: int = 0
    index_entries: int = 0
    timer_entries: int = 0
    oldest: int = 0
    newest: int = 0
    clean: bool = True
    #: Where the log is damaged first, with whole records behind that; None: nowhere.
    damaged_at: int | None = None
    #: Whole records behind that; log offsets of the first and the last of them.
    behind: int = 0
    first_behind: int = 0
    last_behind: int = 0
    #: Messages stand in further queues beside their own.
    has_further: bool = False
    #: Queues of these topics are of kinds that are not looked at.
    passed_over: list[str] = attrs.field(factory=list)
    #: By topic and queue id, the first queue offset that the log has.
    first_offsets: dict[tuple[str, int], int] = attrs.field(factory=dict)
    #: Records that say a wrong place in their queues.
    mends: list[Mend] = attrs.field(factory=list)
    #: Files below the root that cannot be read, or are missing, and whose `.bak` can be read.
    with_copy: list[str] = attrs.field(factory=list)
    offsets_ahead: list[OffsetAhead] = attrs.field(factory=list)
    #: Epochs start behind the end of the log.
    epochs_ahead: bool = False

    @property
    def has_table_mends(self) -> bool:
        """Whether a table or the epoch file can be put right by what is known."""
        return bool(self.with_copy or self.offsets_ahead or self.epochs_ahead)


def check_store(
    store: Store,
    report: Callable[[Finding], None],
    advance: Callable[[int], object] = lambda count: None,
) -> tuple[Summary, Findings]:
    """Looks through all of a store; `report` gets what is wrong, `advance` the bytes of the log
    that were read."""
    check = _StoreCheck(store, Findings(report))
    check.read_log(advance)
    check.finish()
    return check.summary, check.findings


class _StoreCheck:
    """The check of one store: its log first, with what is in the order of the log, then the rest,
    which is judged by the log's end and by the ends of the queues."""

    def __init__(self, store: Store, findings: Findings) -> None:
        self.findings = findings
        self.summary = Summary(
            clean=store.was_closed,
            log_start=store.log_start,
            passed_over=list(directories(f"{store.root}/batchconsumequeue")),
        )
        self._store = store
        check_kinds(store.root, findings)
        self._checkpoint = CheckpointCheck(store.root, findings)
        self._tables = TableCheck(store.root, findings)
        self._known = self._what_is_known()
        self._queues = QueueCheck(store.root, findings, store.sizes, self._known)
        self._index = IndexCheck(store.root, findings, store.sizes, self._known)
        if self._checkpoint.has_index and not self._index.files:
            findings.add("index-gone", "index", None, "its files are missing", Remedy.REPAIR)
        ours = self._checkpoint.ours
        self._safe = ours.safe_offset if ours is not None else -1
        self._has_record_at_safe = False

    def _what_is_known(self) -> Known:
        store = self._store
        is_group = bool(store.member) or os.path.exists(f"{store.root}/{EPOCHS}")
        return Known(
            log_start=self.summary.log_start,
            log_name=store.name,
            read_log=store.read,
            confirmed=self._checkpoint.confirmed if is_group else None,
            was_closed=self.summary.clean,
            deleted=deleted_topics(store.root),
            passed_over=self.summary.passed_over,
        )

    # The log

    def read_log(self, advance: Callable[[int], object]) -> None:
        """Reads the log, and compares each record with queues and index."""
        store, summary, findings = self._store, self.summary, self.findings
        for walk in store.walks(findings, advance, lost=self._known.lost):
            for record in walk:
                self._count(record, is_behind=walk.damaged_at is not None)
                self._compare(record)
            summary.log_end = walk.end
            if summary.damaged_at is None:
                summary.damaged_at = walk.damaged_at
        store.log.check_names(findings)
        store.log.check_files(findings)
        if store.member:
            store.entries.check_names(findings)
            # A member's start extends its files.
            store.entries.check_files(findings, short=Remedy.START)

    def _count(self, record: LogRecord, *, is_behind: bool) -> None:
        """Takes a record into the summary; `is_behind`: the log is damaged in front of it."""
        summary, position, stored = self.summary, record.position, record.store_timestamp
        summary.records += 1
        if is_behind:
            if not summary.behind:
                summary.first_behind = position
            summary.behind += 1
            summary.last_behind = position
        if position == self._safe:
            self._has_record_at_safe = True
        if stored > summary.newest:
            summary.newest = stored
        summary.oldest = summary.oldest or stored

    def _compare(self, record: LogRecord) -> None:
        """Compares a record with its queues and the index."""
        wanted = record.wanted
        if record.in_queue:
            code = tags_code_of(wanted)
            if record.has_place:
                self._queues.put(record, code)
            elif not self._queues.put_elsewhere(record, code):
                self._tell_without_place(record)
                return
            if b"INNER_MULTI_QUEUE_OFFSET" in wanted:
                for topic, queue_id, offset in further_places(record, wanted):
                    self._queues.put_further(record, topic, queue_id, offset, code)
        if self._index.files:
            self._index.put(record, key_hashes(record, wanted))

    def _tell_without_place(self, record: LogRecord) -> None:
        file, at = self._store.name(record.position)
        self.findings.add(
            "queue-name", file, at,
            f"the record at {record.position} can be in no queue: its topic is"
            f" {record.topic[:300]!r}, its queue {record.queue_id}", Remedy.RESTORE,
        )  # fmt: skip
        self._known.lost.add(record.position, record.position + record.size)

    # What the log's end is needed for

    def finish(self) -> None:
        """Looks at all else; to be called when the log is read."""
        store, summary, findings, known = self._store, self.summary, self.findings, self._known
        end = summary.log_end
        at_record = self._has_record_at_safe or self._safe == end or self._safe in known.lost
        if self._checkpoint.finish(summary.log_start, end, summary.newest, at_record=at_record):
            known.lost.add(end, sys.maxsize)
        self._queues.finish(self._tables.topics)
        self._index.finish()
        epochs = EpochCheck(store.root, findings, end, known.lost)
        summary.epochs_ahead = epochs.are_ahead
        self._tables.check(self._queues.queues, summary.passed_over)
        summary.offsets_ahead = self._tables.offsets_ahead
        summary.with_copy = self._tables.with_copy + [EPOCHS] * epochs.has_copy
        log = store.entries if store.member else store.log
        timers = TimerCheck(store.root, findings, store.sizes.timer_log, log, known, end)
        timers.run()
        summary.timer_entries = timers.count
        self._sum_up()

    def _sum_up(self) -> None:
        summary, queues = self.summary, self._queues
        summary.queues, summary.index_entries = len(queues.queues), self._index.entries
        summary.has_further, summary.mends = queues.has_further, queues.mends
        summary.first_offsets = {
            place: queue.first for place, queue in queues.queues.items() if queue.first is not None
        }
