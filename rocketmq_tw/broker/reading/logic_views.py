"""Answers requests for offsets and times (29 to 32) of the logic queues of static topics, each over
all its physical queues (docs/formats/static-topics.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred

from rocketmq_tw.broker.cluster.broker_client import BrokerClient
from rocketmq_tw.broker.tables.topics.queue_mappings import QueueMappings
from rocketmq_tw.message.logic_queues import item_at, last_item, logic_offset
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.structs import replace
from rocketmq_tw.wire.bodies.topics import LogicQueueMappingItem
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
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

_Header = (
    GetEarliestMsgStoretimeRequestHeader
    | GetMaxOffsetRequestHeader
    | GetMinOffsetRequestHeader
    | SearchOffsetRequestHeader
)


class LogicViews:
    """Asks the physical queues, here or on other brokers; raises `RequestError` for a queue that
    this broker does not lead."""

    def __init__(
        self, store: IMessageStore, mappings: QueueMappings, brokers: BrokerClient
    ) -> None:
        self._store = store
        self._mappings = mappings
        self._brokers = brokers

    def around(self, plain: Mapping[int, Handler]) -> dict[int, Handler]:
        """Returns the handlers of `plain`, which knows physical queues only, but for requests about
        logic queues."""
        answers: dict[int, tuple[type[_Header], Any]] = {
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: (SearchOffsetRequestHeader, self.search_offset),
            RequestCode.GET_MAX_OFFSET: (GetMaxOffsetRequestHeader, self.max_offset),
            RequestCode.GET_MIN_OFFSET: (GetMinOffsetRequestHeader, self.min_offset),
            RequestCode.GET_EARLIEST_MSG_STORETIME: (
                GetEarliestMsgStoretimeRequestHeader,
                self.earliest_store_time,
            ),
        }

        def wrap(code: int) -> Handler:
            header_type, answer = answers[code]

            def handle(request: RemotingCommand, peer: IPeer) -> Any:
                header = request.header(header_type)
                if header.topic in self._mappings and header.lo is not False:
                    return Deferred.fromCoroutine(answer(request, header))
                return plain[code](request, peer)

            return handle

        return {code: wrap(code) for code in plain}

    async def search_offset(
        self, request: RemotingCommand, header: SearchOffsetRequestHeader
    ) -> RemotingCommand:
        """Answers 29: the first message of the time or later, in any item; the offset behind the
        last message where there is none."""
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
        """Answers 30: the offset behind the last message."""
        queue = self._mappings.queue(header.topic, header.queue_id)
        item = _decided(last_item(queue.items), header.topic)
        end = await self._end(item, header.topic)
        return request.response(header=GetMaxOffsetResponseHeader(offset=logic_offset(item, end)))

    async def min_offset(
        self, request: RemotingCommand, header: GetMinOffsetRequestHeader
    ) -> RemotingCommand:
        """Answers 31: the offset of the first message of the first item."""
        item, here = self._first_item(header), self._store.min_queue_offset
        first = await self._ask(item, header, RequestCode.GET_MIN_OFFSET, here)
        return request.response(header=GetMinOffsetResponseHeader(offset=logic_offset(item, first)))

    async def earliest_store_time(
        self, request: RemotingCommand, header: GetEarliestMsgStoretimeRequestHeader
    ) -> RemotingCommand:
        """Answers 32: when the first message of the first item was stored, in ms."""
        item, here = self._first_item(header), self._store.earliest_store_time
        timestamp = await self._ask(item, header, RequestCode.GET_EARLIEST_MSG_STORETIME, here)
        return request.response(header=GetEarliestMsgStoretimeResponseHeader(timestamp=timestamp))

    def _first_item(
        self, header: GetMinOffsetRequestHeader | GetEarliestMsgStoretimeRequestHeader
    ) -> LogicQueueMappingItem:
        queue = self._mappings.queue(header.topic, header.queue_id)
        return _decided(item_at(queue.items, 0), header.topic)

    async def _search(self, item: LogicQueueMappingItem, header: SearchOffsetRequestHeader) -> int:
        is_upper = (header.boundary_type or "").upper() == "UPPER"
        here = partial(self._store.offset_by_time, timestamp=header.timestamp, upper=is_upper)
        return await self._ask(item, header, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, here)

    async def _end(self, item: LogicQueueMappingItem, topic: str) -> int:
        """Returns the offset at which the item's physical queue ends."""
        header = GetMaxOffsetRequestHeader(topic=topic, queue_id=item.queue_id)
        here = self._store.max_queue_offset
        return await self._ask(item, header, RequestCode.GET_MAX_OFFSET, here)

    async def _ask(
        self,
        item: LogicQueueMappingItem,
        header: _Header,
        code: int,
        here: Callable[[str, int], int],
    ) -> int:
        """Returns what `here` says of the item's physical queue where that is this broker's, else
        what its broker answers, asked as `header` asks about the logic one."""
        if self._mappings.is_here(item):
            return here(header.topic, item.queue_id)
        asked = replace(header, queue_id=item.queue_id, lo=False, bname=item.bname)
        answer = await self._brokers.ask(item.bname, header.topic, code, asked)
        if answer.code != ResponseCode.SUCCESS:
            raise RequestError(answer.code, answer.remark or "")
        if code == RequestCode.GET_EARLIEST_MSG_STORETIME:
            return answer.header(GetEarliestMsgStoretimeResponseHeader).timestamp
        # All the others answer with the same field.
        return answer.header(GetMaxOffsetResponseHeader).offset


def _decided(item: LogicQueueMappingItem | None, topic: str) -> LogicQueueMappingItem:
    if item is None:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR, f"no item of the logic queue of {topic} has a beginning yet"
        )
    return item
