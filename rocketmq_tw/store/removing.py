"""Taking things out of a store: the end of the log, its oldest files, and topics."""

from __future__ import annotations

from collections.abc import Set

from rocketmq_tw.store.checkpointing import Checkpointing
from rocketmq_tw.store.deleted_topics import DeletedTopics, Deletion
from rocketmq_tw.store.dispatching import Dispatching
from rocketmq_tw.store.errors import StoreError
from rocketmq_tw.store.index import MessageIndex
from rocketmq_tw.store.interface import ILog
from rocketmq_tw.store.queues import QueueTable


def truncate(
    log: ILog,
    queues: QueueTable,
    index: MessageIndex | None,
    checkpointing: Checkpointing,
    deleted: DeletedTopics,
    offset: int,
) -> None:
    """Ends log, queues and index at `offset`; see `IMessageStore.truncate_to`. Raises `StoreError`
    where the log has it not, and `OSError` from half-way."""
    if not log.min_offset <= offset <= log.end_offset:
        raise StoreError(
            f"cannot truncate to {offset}: the log has {log.min_offset} to {log.end_offset}"
        )
    # Before the log shrinks: a checkpoint must never claim more than there is.
    checkpointing.before_cut(offset)
    log.truncate_to(offset)
    for queue in queues:
        if queue.max_physical > offset:
            queue.cut_behind(offset)
        queue.next_offset = queue.max_offset
    if index:
        index.cut(offset)
    checkpointing.after_cut()
    deleted.rewrite(log.min_offset, offset)


def remove_topics(
    log: ILog,
    queues: QueueTable,
    deleted: DeletedTopics,
    dispatching: Dispatching,
    topics: Set[str],
) -> None:
    """Removes the queues of topics, and notes that what the log has of them is of no queue. Raises
    `OSError`, and then nothing is removed."""
    if not topics:
        return
    # Where a failed write could not be cut off, what it left may be found by the next start.
    end = log.files_end if log.failure else log.end_offset
    deleted.note([Deletion(topic, end, *queues.count_of(topic)) for topic in sorted(topics)])
    dispatching.forget_topics(topics)
    for topic in topics:
        queues.remove_topic(topic)


def remove_oldest(
    log: ILog, queues: QueueTable, index: MessageIndex | None, count: int, safe_offset: int
) -> int:
    """Removes the log's `count` oldest files, and those of queues and index that point into them
    only; returns how many files there were. The checkpoint claims all up to `safe_offset`."""
    if not count:
        return 0
    for _ in range(count):
        log.remove_first()
    removed = count
    for queue in queues:
        removed += queue.remove_before(log.min_offset, safe_offset)
    if index:
        removed += index.remove_before(log.min_offset)
    return removed
