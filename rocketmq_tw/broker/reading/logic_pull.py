"""Pulls of logic queues: which physical queue is read for one, and what its answer says then."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from rocketmq_tw.broker.tables.topics.queue_mappings import LogicQueue
from rocketmq_tw.message.logic_queues import (
    has_end,
    item_at,
    item_behind,
    known_end,
    logic_offset,
    physical_offset_in,
)
from rocketmq_tw.wire.bodies.topics import LogicQueueMappingItem
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.pull import PULL_COMMIT_OFFSET, PULL_SUSPEND, PullMessageRequestHeader


class Offsets(NamedTuple):
    """What the answer to a pull says of offsets; `delta` is added to those of its messages."""

    code: ResponseCode
    next: int
    min: int
    max: int
    delta: int = 0


class LogicPull:
    """One pull of a logic queue: `item` has what it wants, `header` asks that physical queue for
    it, over its broker where that is another one. Raises `RequestError` where it is not decided
    where the queue begins."""

    def __init__(self, queue: LogicQueue, header: PullMessageRequestHeader) -> None:
        item = item_at(queue.items, header.queue_offset)
        if item is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"no item of logic queue {queue.id} of {header.topic} has a beginning yet",
            )
        self._queue = queue
        self.item = item
        most = header.max_msg_nums
        if has_end(item):
            most = min(most, item.end_offset - item.start_offset)
        self.header = replace(
            header,
            queue_id=item.queue_id,
            queue_offset=physical_offset_in(item, header.queue_offset),
            max_msg_nums=most,
            commit_offset=self._committed_in(item, header.commit_offset),
        )

    def for_other_broker(self) -> PullMessageRequestHeader:
        """The header for the broker of `item`: it neither holds the pull nor commits."""
        return replace(
            self.header,
            lo=False,
            bname=self.item.bname,
            sys_flag=self.header.sys_flag & ~(PULL_SUSPEND | PULL_COMMIT_OFFSET),
        )

    def _committed_in(self, item: LogicQueueMappingItem, committed: int) -> int:
        """The committed offset where it lies in the item; -1 commits nothing."""
        if committed < 0 or item_at(self._queue.items, committed) is not item:
            return -1
        return physical_offset_in(item, committed)

    def moved_to(self, answer: Offsets) -> Offsets:
        """The answer of the physical queue to one whose group was reset there."""
        return self._logic(self.item, answer)

    def logic(self, answer: Offsets) -> Offsets:
        """The answer of the physical queue as one of the logic queue: who is at the end of an item
        goes on in the next one."""
        item = self.item
        if answer.code is not ResponseCode.SUCCESS:
            item, answer = self._elsewhere(answer)
        if has_end(item):
            answer = answer._replace(next=min(answer.next, item.end_offset))
        return self._logic(item, answer)

    def _elsewhere(self, answer: Offsets) -> tuple[LogicQueueMappingItem, Offsets]:
        """Where a read goes on that found nothing, by stock's rules."""
        items, item, offset = self._queue.items, self.item, self.header.queue_offset
        is_first = item is item_at(items, 0)
        if item is self._queue.leader:
            if answer.code is ResponseCode.PULL_OFFSET_MOVED and offset > answer.max:
                answer = answer._replace(next=answer.max)
            elif offset < answer.min and not is_first:
                answer = _again(answer, answer.min)
        elif not is_first and offset < answer.min:
            answer = _again(answer, answer.min)
        elif offset >= answer.max:
            following = item_behind(items, item)
            if following is None:
                # Where the next item begins is not decided yet.
                return item, answer._replace(code=ResponseCode.PULL_NOT_FOUND)
            start = following.start_offset
            answer = Offsets(ResponseCode.PULL_RETRY_IMMEDIATELY, start, start, start)
            return following, answer
        if is_first and offset < answer.min:
            answer = answer._replace(code=ResponseCode.PULL_OFFSET_MOVED, next=answer.min)
        return item, answer

    def _logic(self, item: LogicQueueMappingItem, answer: Offsets) -> Offsets:
        return Offsets(
            answer.code,
            logic_offset(item, answer.next),
            logic_offset(item, max(item.start_offset, answer.min)),
            max(logic_offset(item, answer.max), known_end(self._queue.leader)),
            item.logic_offset - item.start_offset,
        )


def _again(answer: Offsets, offset: int) -> Offsets:
    return answer._replace(code=ResponseCode.PULL_RETRY_IMMEDIATELY, next=offset)
