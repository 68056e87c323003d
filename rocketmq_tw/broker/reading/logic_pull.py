"""Pulls of logic queues of static topics: which physical queue is read for one, and what the answer
says then (docs/formats/static-topics.md)."""

from __future__ import annotations

from rocketmq_tw.broker.cluster.broker_client import BrokerClient
from rocketmq_tw.broker.reading.pull_reads import RESET_REMARK, PullAnswer
from rocketmq_tw.broker.tables.topics.queue_mappings import LogicQueue, QueueMappings
from rocketmq_tw.message.logic_queues import (
    has_end,
    item_at,
    item_behind,
    known_end,
    logic_offset,
    physical_offset_in,
)
from rocketmq_tw.structs import replace
from rocketmq_tw.wire.bodies.route import MASTER_ID
from rocketmq_tw.wire.bodies.topics import LogicQueueMappingItem
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.pull import (
    PULL_COMMIT_OFFSET,
    PULL_SUSPEND,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
)

#: Codes of answers that have the header of a read.
_READ_CODES = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)


class LogicPull:
    """One pull of a logic queue. `header` is the pull of the physical queue that has what it wants;
    `is_here`: that is a queue of this broker."""

    def __init__(
        self,
        queue: LogicQueue,
        item: LogicQueueMappingItem,
        header: PullMessageRequestHeader,
        *,
        is_here: bool,
    ) -> None:
        self._queue = queue
        self.item = item
        self.is_here = is_here
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
        """Returns the header for the broker of the physical queue: it neither holds the pull nor
        commits."""
        return replace(
            self.header,
            lo=False,
            bname=self.item.bname,
            sys_flag=self.header.sys_flag & ~(PULL_SUSPEND | PULL_COMMIT_OFFSET),
        )

    def translate(self, answer: PullAnswer) -> PullAnswer:
        """Returns the answer of the physical queue as one of the logic queue: at the end of an item
        the consumer goes on in the next one, by stock's rules."""
        item = self.item
        if not answer.is_reset:
            if answer.code is not ResponseCode.SUCCESS:
                item, answer = self._where_to_go_on(answer)
            if has_end(item):
                end = min(answer.header.next_begin_offset, item.end_offset)
                answer = _with_header(answer, next_begin_offset=end)
        header = answer.header
        return _with_header(
            answer,
            next_begin_offset=self._logic_next(item, answer),
            min_offset=logic_offset(item, max(item.start_offset, header.min_offset)),
            max_offset=max(logic_offset(item, header.max_offset), known_end(self._queue.leader)),
            offset_delta=item.logic_offset - item.start_offset,
        )

    def _logic_next(self, item: LogicQueueMappingItem, answer: PullAnswer) -> int:
        """Returns where the consumer goes on. A reset to the begin of an item is one to wherever
        the group is in the item before, whose broker says that to the next pull."""
        following = answer.header.next_begin_offset
        is_first = item is item_at(self._queue.items, 0)
        if answer.is_reset and following <= item.start_offset and not is_first:
            return item.logic_offset - 1
        return logic_offset(item, following)

    def _committed_in(self, item: LogicQueueMappingItem, committed: int) -> int:
        """Returns the committed offset where it lies in the item; -1 commits nothing."""
        if committed < 0 or item_at(self._queue.items, committed) is not item:
            return -1
        return physical_offset_in(item, committed)

    def _where_to_go_on(self, answer: PullAnswer) -> tuple[LogicQueueMappingItem, PullAnswer]:
        """Returns the item in which a read goes on that found nothing, and the answer with its
        offsets."""
        items, item, offset = self._queue.items, self.item, self.header.queue_offset
        first, end = answer.header.min_offset, answer.header.max_offset
        is_first = item is item_at(items, 0)
        if item is self._queue.leader:
            if answer.code is ResponseCode.PULL_OFFSET_MOVED and offset > end:
                answer = _with_header(answer, next_begin_offset=end)
            elif offset < first and not is_first:
                answer = _retry_at(answer, first)
        elif not is_first and offset < first:
            answer = _retry_at(answer, first)
        elif offset >= end:
            following = item_behind(items, item)
            if following is None:
                # Where the next item begins is not decided yet.
                return item, replace(answer, code=ResponseCode.PULL_NOT_FOUND)
            start = following.start_offset
            answer = _with_header(_retry_at(answer, start), min_offset=start, max_offset=start)
            return following, answer
        if is_first and offset < first:
            answer = _with_header(answer, next_begin_offset=first)
            answer = replace(answer, code=ResponseCode.PULL_OFFSET_MOVED)
        return item, answer


class LogicPulls:
    """Makes pulls of logic queues that this broker leads into pulls of physical queues, here or on
    other brokers."""

    def __init__(self, mappings: QueueMappings, brokers: BrokerClient) -> None:
        self._mappings = mappings
        self._brokers = brokers

    def resolve(self, header: PullMessageRequestHeader) -> LogicPull | None:
        """Returns the pull of a logic queue; None where it asks for a physical queue. Raises
        `RequestError` where the broker does not lead the queue, or it is not decided where that
        begins."""
        if header.topic not in self._mappings or header.lo is False:
            return None
        queue = self._mappings.queue(header.topic, header.queue_id)
        item = item_at(queue.items, header.queue_offset)
        if item is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"no item of logic queue {queue.id} of {header.topic} has a beginning yet",
            )
        return LogicPull(queue, item, header, is_here=self._mappings.is_here(item))

    async def ask(self, pull: LogicPull) -> PullAnswer:
        """Returns what the broker of the physical queue answers, as an answer of the logic queue;
        raises `RequestError` where it refuses or cannot be reached."""
        header = pull.for_other_broker()
        response = await self._brokers.ask(
            pull.item.bname, header.topic, RequestCode.PULL_MESSAGE, header
        )
        if response.code not in _READ_CODES:
            raise RequestError(response.code, response.remark or "")
        code, read = ResponseCode(response.code), response.header(PullMessageResponseHeader)
        is_reset = code is ResponseCode.PULL_OFFSET_MOVED and response.remark == RESET_REMARK
        answer = pull.translate(
            PullAnswer(code, response.remark, read, response.body, is_reset=is_reset)
        )
        return _with_header(answer, suggest_which_broker_id=MASTER_ID)


def _with_header(answer: PullAnswer, **fields: int) -> PullAnswer:
    """Returns the answer with other fields of its header."""
    return replace(answer, header=replace(answer.header, **fields))


def _retry_at(answer: PullAnswer, offset: int) -> PullAnswer:
    answer = _with_header(answer, next_begin_offset=offset)
    return replace(answer, code=ResponseCode.PULL_RETRY_IMMEDIATELY)
