"""Queues that begin anew: their topic was deleted and made again, and only the log tells.

A replica gets its master's log before it gets its tables, and stock keeps no note of deletions. A
queue that knows a message then gets a first one, which nothing else explains but damage: no
checksum covers a record's queue offset.

The topic counts as deleted at the earliest place that the log allows: behind the last message of
that queue, and of each that began in front of the place. Queues that began behind it may be of the
new topic and stay, as they are, until they get a first message again in their turn. A queue that
knows no message, as retention or a power loss took what it had, says nothing: it goes on with
whatever it gets.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from rocketmq_tw.message.record import RecordHead
from rocketmq_tw.store.consume_queue import ConsumeQueue
from rocketmq_tw.store.dispatch_entries import EntryMaker
from rocketmq_tw.store.interface import ILog


def is_first_again(queue: ConsumeQueue | None, queue_offset: int, position: int) -> bool:
    """Whether the record at `position` of the log would be the first of a queue that knows one."""
    return queue_offset == 0 and queue is not None and 0 <= queue.max_physical <= position


_first_position = attrgetter("first_position")


def former_part(
    queue: ConsumeQueue, of_topic: Iterable[ConsumeQueue]
) -> tuple[int, list[ConsumeQueue]]:
    """`queue` gets a first message again: behind which log offset its topic was deleted, and which
    of the topic's queues were so with it."""
    end, gone = queue.max_physical, list[ConsumeQueue]()
    for each in sorted(of_topic, key=_first_position):
        if each.first_position >= end:
            break
        end = max(end, each.max_physical)
        gone.append(each)
    return end, gone


class Beginnings:
    """Those of a log that is not written to; the log is read once more, when first asked."""

    def __init__(self, log: ILog, maker: EntryMaker, *, check_body: bool) -> None:
        self._log = log
        self._maker = maker
        self._check_body = check_body
        self._damaged: set[int] | None = None

    def is_genuine(self, head: RecordHead) -> bool:
        """Whether the queue of a record with queue offset 0 goes on behind it from there; not where
        it goes on from what it had."""
        if self._damaged is None:
            self._damaged = self._find_damaged(head.physical_offset)
        return head.physical_offset not in self._damaged

    def _find_damaged(self, start: int) -> set[int]:
        damaged: set[int] = set()
        last: dict[tuple[str, int], int] = {}
        for head in self._log.scan(start, self._log.files_end, check_body=self._check_body):
            key = head.topic, head.queue_id
            if head.queue_offset:
                first = last.pop(key, None)
                if first is not None and head.queue_offset > 1:
                    damaged.add(first)
            elif self._maker.of_head(head).in_queue:
                last[key] = head.physical_offset
        return damaged
