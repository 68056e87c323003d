"""29 to 32 about logic queues: offsets and times over all the physical queues of each."""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from rocketmq_tw.broker.interfaces import IMessageStore
from rocketmq_tw.broker.static_topics.others import OtherBrokers
from rocketmq_tw.broker.tables.queue_mappings import QueueMappings
from rocketmq_tw.message.logic_queues import item_at, last_item, logic_offset
from rocketmq_tw.wire.bodies.topics import LogicQueueMappingItem
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.base import Header
from rocketmq_tw.wire.headers.offsets import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
)

H = TypeVar("H", bound=Header)
_Asking = (
    GetEarliestMsgStoretimeRequestHeader
    | GetMaxOffsetRequestHeader
    | GetMinOffsetRequestHeader
    | SearchOffsetRequestHeader
)


class LogicViews:
    """Asks the physical queues, here or on other brokers; raises `RequestError` for a queue that
    this broker does not lead."""

    def __init__(self, store: IMessageStore, mappings: QueueMappings, others: OtherBrokers) -> None:
        self._store = store
        self._mappings = mappings
        self._others = others

    async def search_offset(
        self, request: RemotingCommand, header: SearchOffsetRequestHeader
    ) -> RemotingCommand:
        """The first message of the time or later, in whichever item it is; behind the last message
        where there is none."""
        queue = self._mappings.queue(header.topic, header.queue_id)
        found = 0
        for item in queue.items:
            if item.logic_offset < 0:
                continue
            offset = await self._search(item, header)
            found = logic_offset(item, max(0, offset))
            if item is not queue.leader and offset < await self._end(item, header.topic):
                break
        return request.response(header=SearchOffsetResponseHeader(offset=found))

    async def max_offset(
        self, request: RemotingCommand, header: GetMaxOffsetRequestHeader
    ) -> RemotingCommand:
        queue = self._mappings.queue(header.topic, header.queue_id)
        item = _decided(last_item(queue.items), header.topic)
        end = await self._end(item, header.topic)
        return request.response(header=GetMaxOffsetResponseHeader(offset=logic_offset(item, end)))

    async def min_offset(
        self, request: RemotingCommand, header: GetMinOffsetRequestHeader
    ) -> RemotingCommand:
        queue = self._mappings.queue(header.topic, header.queue_id)
        item = _decided(item_at(queue.items, 0), header.topic)
        if self._mappings.is_here(item):
            first = self._store.min_queue_offset(header.topic, item.queue_id)
        else:
            code = RequestCode.GET_MIN_OFFSET
            answer = await self._ask(item, code, header, GetMinOffsetResponseHeader)
            first = answer.offset
        return request.response(header=GetMinOffsetResponseHeader(offset=logic_offset(item, first)))

    async def earliest_store_time(
        self, request: RemotingCommand, header: GetEarliestMsgStoretimeRequestHeader
    ) -> RemotingCommand:
        queue = self._mappings.queue(header.topic, header.queue_id)
        item = _decided(item_at(queue.items, 0), header.topic)
        if self._mappings.is_here(item):
            timestamp = self._store.earliest_store_time(header.topic, item.queue_id)
        else:
            code = RequestCode.GET_EARLIEST_MSG_STORETIME
            answer = await self._ask(item, code, header, GetEarliestMsgStoretimeResponseHeader)
            timestamp = answer.timestamp
        return request.response(header=GetEarliestMsgStoretimeResponseHeader(timestamp=timestamp))

    async def _search(self, item: LogicQueueMappingItem, header: SearchOffsetRequestHeader) -> int:
        if self._mappings.is_here(item):
            return self._store.offset_by_time(
                header.topic,
                item.queue_id,
                header.timestamp,
                upper=(header.boundary_type or "").upper() == "UPPER",
            )
        code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        answer = await self._ask(item, code, header, SearchOffsetResponseHeader)
        return answer.offset

    async def _end(self, item: LogicQueueMappingItem, topic: str) -> int:
        """Where the item's physical queue ends."""
        if self._mappings.is_here(item):
            return self._store.max_queue_offset(topic, item.queue_id)
        header = GetMaxOffsetRequestHeader(topic=topic, queue_id=item.queue_id)
        code = RequestCode.GET_MAX_OFFSET
        answer = await self._ask(item, code, header, GetMaxOffsetResponseHeader)
        return answer.offset

    async def _ask(
        self, item: LogicQueueMappingItem, code: int, header: _Asking, answer_type: type[H]
    ) -> H:
        """What the item's broker answers about the physical queue, asked as `header` asks about the
        logic one."""
        asked = replace(header, queue_id=item.queue_id, lo=False, bname=item.bname)
        answer = await self._others.ask(item.bname, header.topic, code, asked)
        if answer.code != ResponseCode.SUCCESS:
            raise RequestError(answer.code, answer.remark or "")
        return answer.header(answer_type)


def _decided(item: LogicQueueMappingItem | None, topic: str) -> LogicQueueMappingItem:
    if item is None:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR, f"no item of the logic queue of {topic} has a beginning yet"
        )
    return item
