"""Offsets of groups in logic queues; they are stored as offsets of the physical queue."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from rocketmq_tw.broker.cluster.broker_client import BrokerClient
from rocketmq_tw.broker.tables.offsets.requests import OffsetRequests
from rocketmq_tw.broker.tables.offsets.table import OffsetTable
from rocketmq_tw.broker.tables.topics.queue_mappings import QueueMappings
from rocketmq_tw.message.logic_queues import item_at, logic_offset, physical_offset_in
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.structs import replace
from rocketmq_tw.wire.bodies.topics import LogicQueueMappingItem
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.offsets import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)


class StaticOffsets:
    """Answers 14 and 15 about logic queues that this broker leads."""

    def __init__(
        self,
        mappings: QueueMappings,
        offsets: OffsetTable,
        brokers: BrokerClient,
        physical: OffsetRequests,
    ) -> None:
        self._mappings = mappings
        self._offsets = offsets
        self._brokers = brokers
        self._physical = physical

    def query(
        self, request: RemotingCommand, header: QueryConsumerOffsetRequestHeader
    ) -> Deferred[RemotingCommand]:
        """Fires with the group's offset in the last item where it has one."""
        return Deferred.fromCoroutine(self._query(request, header))

    def update(
        self, request: RemotingCommand, header: UpdateConsumerOffsetRequestHeader, peer: IPeer
    ) -> Deferred[RemotingCommand]:
        """Kept where the item is that has the offset."""
        return Deferred.fromCoroutine(self._update(request, header, peer))

    async def _query(
        self, request: RemotingCommand, header: QueryConsumerOffsetRequestHeader
    ) -> RemotingCommand:
        queue = self._mappings.queue(header.topic, header.queue_id)
        items = queue.items
        if len(items) == 1 and items[0].logic_offset == 0:
            here = replace(header, queue_id=items[0].queue_id)
            return self._physical.query_here(request, here)
        for item in reversed(items):
            if item.logic_offset < 0:
                continue
            offset = await self._of_item(item, header)
            if offset >= 0:
                found = QueryConsumerOffsetResponseHeader(offset=logic_offset(item, offset))
                return request.response(header=found)
        raise RequestError(
            ResponseCode.QUERY_NOT_FOUND,
            f"group {header.consumer_group} has no offset in logic queue {header.queue_id} of"
            f" {header.topic}: it may be starting for the first time",
        )

    async def _of_item(
        self, item: LogicQueueMappingItem, header: QueryConsumerOffsetRequestHeader
    ) -> int:
        """Returns the group's offset in a physical queue; -1 where it has none."""
        group, topic = header.consumer_group, header.topic
        if self._mappings.is_here(item):
            return self._offsets.query(group, topic, item.queue_id)
        asked = replace(
            header,
            queue_id=item.queue_id,
            set_zero_if_not_found=False,
            lo=False,
            bname=item.bname,
        )
        code = RequestCode.QUERY_CONSUMER_OFFSET
        answer = await self._brokers.ask(item.bname, topic, code, asked)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return -1
        if answer.code != ResponseCode.SUCCESS:
            raise RequestError(answer.code, answer.remark or "")
        return answer.header(QueryConsumerOffsetResponseHeader).offset

    async def _update(
        self, request: RemotingCommand, header: UpdateConsumerOffsetRequestHeader, peer: IPeer
    ) -> RemotingCommand:
        topic = header.topic
        queue = self._mappings.queue(topic, header.queue_id)
        item = item_at(queue.items, header.commit_offset)
        if item is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"logic queue {header.queue_id} of {topic} is being moved: commit again later",
            )
        there = replace(
            header,
            queue_id=item.queue_id,
            commit_offset=physical_offset_in(item, header.commit_offset),
            lo=False,
            bname=item.bname,
        )
        if self._mappings.is_here(item):
            return self._physical.update_here(request, there, peer)
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        answer = await self._brokers.ask(item.bname, topic, code, there)
        return request.response(answer.code, answer.remark)
