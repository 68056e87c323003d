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
from rocketmq_tw.storecheck.marks import CheckpointCheck, check_epochs, deleted_topics
from rocketmq_tw.storecheck.queue_tree import check_kinds
from rocketmq_tw.storecheck.queues import Mend, QueueCheck
from rocketmq_tw.storecheck.records import further_places, key_hashes, tags_code_of
from rocketmq_tw.storecheck.tables import TableCheck
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


def check_store(
    store: Store,
    report: Callable[[Finding], None],
    advance: Callable[[int], object] = lambda count: None,
) -> tuple[Summary, Findings]:
    """Looks through all of a store; `report` gets what is wrong, `advance` the bytes of the log
    that were read."""
    findings = Findings(report)
    summary = Summary(clean=store.was_closed, log_start=store.log_start)
    check_kinds(store.root, findings)
    checkpoint = CheckpointCheck(store.root, findings)
    tables = TableCheck(store.root, findings)
    summary.passed_over = list(directories(f"{store.root}/batchconsumequeue"))
    is_group = bool(store.member) or os.path.exists(f"{store.root}/epochFileCheckpoint")
    known = Known(
        log_start=summary.log_start,
        log_name=store.name,
        confirmed=checkpoint.confirmed if is_group else None,
        was_closed=summary.clean,
        deleted=deleted_topics(store.root),
        passed_over=summary.passed_over,
    )
    queues = QueueCheck(store.root, findings, store.sizes, known)
    index = IndexCheck(store.root, findings, store.sizes, known)
    if checkpoint.has_index and not index.files:
        findings.add("index-gone", "index", None, "its files are missing", Remedy.REPAIR)
    safe = checkpoint.ours.safe_offset if checkpoint.ours is not None else -1
    at_safe = False
    for walk in store.walks(findings, advance, lost=known.lost):
        for record in walk:
            summary.records += 1
            if walk.damaged_at is not None:
                if not summary.behind:
                    summary.first_behind = record.position
                summary.behind += 1
                summary.last_behind = record.position
            if record.position == safe:
                at_safe = True
            if record.store_timestamp > summary.newest:
                summary.newest = record.store_timestamp
            summary.oldest = summary.oldest or record.store_timestamp
            wanted = record.wanted
            code = tags_code_of(wanted) if record.in_queue else 0
            has_place = record.has_place
            if record.in_queue and not has_place and not queues.put_elsewhere(record, code):
                file, at = store.name(record.position)
                findings.add(
                    "queue-name", file, at,
                    f"the record at {record.position} can be in no queue: its topic is"
                    f" {record.topic[:300]!r}, its queue {record.queue_id}", Remedy.RESTORE,
                )  # fmt: skip
                known.lost.add(record.position, record.position + record.size)
                continue
            if record.in_queue:
                if has_place:
                    queues.put(record, code)
                if b"INNER_MULTI_QUEUE_OFFSET" in wanted:
                    for topic, queue_id, offset in further_places(record, wanted):
                        queues.put_further(record, topic, queue_id, offset, code)
            if index.files:
                index.put(record, key_hashes(record, wanted))
        summary.log_end = walk.end
        if summary.damaged_at is None:
            summary.damaged_at = walk.damaged_at
    store.log.check_names(findings)
    if store.member:
        # A member's start extends its files.
        store.entries.check_names(findings, short=Remedy.START)
    end = summary.log_end
    at_safe = at_safe or safe == end or safe in known.lost
    if checkpoint.finish(summary.log_start, end, summary.newest, at_record=at_safe):
        known.lost.add(end, sys.maxsize)
    queues.finish(tables.topics)
    index.finish()
    check_epochs(store.root, findings, log_end=end)
    tables.check(queues.queues, summary.passed_over)
    log = store.entries if store.member else store.log
    timers = TimerCheck(store.root, findings, store.sizes.timer_log, log, known, end)
    timers.run()
    summary.queues, summary.index_entries = len(queues.queues), index.entries
    summary.timer_entries, summary.has_further = timers.count, queues.has_further
    summary.mends = queues.mends
    summary.first_offsets = {
        place: queue.first for place, queue in queues.queues.items() if queue.first is not None
    }
    return summary, findings
