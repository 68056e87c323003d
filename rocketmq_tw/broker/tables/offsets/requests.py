"""Requests about consumer offsets: 14 queries, 15 updates, 43 returns all, as slaves copy them."""

from __future__ import annotations

from typing import Protocol

from twisted.internet.defer import Deferred

from rocketmq_tw.broker.tables.groups.table import GroupTable
from rocketmq_tw.broker.tables.offsets.table import OffsetTable
from rocketmq_tw.broker.tables.topics.queue_mappings import QueueMappings
from rocketmq_tw.broker.tables.topics.table import TopicTable
from rocketmq_tw.message.layout import physical_offset
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.net.whole_tables import WholeTables
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.offsets import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)


def check_written(store: IMessageStore) -> None:
    """Raises `RequestError` where offsets are in memory only, up to a restart: their file says
    nothing that the log may not have, and the log has failed for good."""
    if store.failure and store.refusal:
        raise RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, store.refusal)


class LogicOffsets(Protocol):
    """Answers 14 and 15 about logic queues of static topics."""

    def query(
        self, request: RemotingCommand, header: QueryConsumerOffsetRequestHeader
    ) -> Deferred[RemotingCommand]: ...

    def update(
        self, request: RemotingCommand, header: UpdateConsumerOffsetRequestHeader, peer: IPeer
    ) -> Deferred[RemotingCommand]: ...


class OffsetRequests:
    """Answers from the table. `of_logic_queues` answers for static topics, unless a request is
    about their physical queues."""

    def __init__(
        self,
        offsets: OffsetTable,
        topics: TopicTable,
        mappings: QueueMappings,
        groups: GroupTable,
        store: IMessageStore,
        whole: WholeTables,
    ) -> None:
        self._whole = whole
        self._offsets = offsets
        self._topics = topics
        self._mappings = mappings
        self.of_logic_queues: LogicOffsets | None = None
        self._groups = groups
        self._store = store

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self.query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.all,
        }

    def query(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Answers 14: the offset of a group in a physical queue, or a logic one."""
        header = request.header(QueryConsumerOffsetRequestHeader)
        logic = self._logic(header)
        return self.query_here(request, header) if logic is None else logic.query(request, header)

    def query_here(
        self, request: RemotingCommand, header: QueryConsumerOffsetRequestHeader
    ) -> RemotingCommand:
        """Answers for a physical queue. A group without an offset starts at 0 only where the queue
        begins at 0 and its first message is still in the log's cache; elsewhere QUERY_NOT_FOUND
        lets the client decide by its ConsumeFromWhere."""
        offset = self._offsets.query(header.consumer_group, header.topic, header.queue_id)
        if offset < 0:
            if header.set_zero_if_not_found is False or not self._starts_in_memory(
                header.topic, header.queue_id
            ):
                raise RequestError(
                    ResponseCode.QUERY_NOT_FOUND,
                    f"group {header.consumer_group} has no offset in queue {header.queue_id} of"
                    f" {header.topic}: it may be starting for the first time",
                )
            offset = 0
        return request.response(header=QueryConsumerOffsetResponseHeader(offset=offset))

    def update(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Answers 15: sets the offset of a group in a physical queue, or a logic one."""
        header = request.header(UpdateConsumerOffsetRequestHeader)
        logic = self._logic(header)
        if logic is not None:
            return logic.update(request, header, peer)
        return self.update_here(request, header, peer)

    def update_here(
        self, request: RemotingCommand, header: UpdateConsumerOffsetRequestHeader, peer: IPeer
    ) -> RemotingCommand:
        """Sets the offset in a physical queue."""
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        self._groups.known(group)
        config = self._topics.known(topic)
        queues = max(config.read_queue_nums, config.write_queue_nums)
        known = queue_id in self._offsets.of(group, topic)
        if header.commit_offset < 0 or not (0 <= queue_id < queues or known):
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"offset {header.commit_offset} in queue {queue_id} of {topic}:"
                f" the topic has queues 0 to {queues - 1}, offsets start at 0",
            )
        check_written(self._store)
        if self._offsets.has_reset(group, topic, queue_id):
            return request.response(remark="the offset was reset and waits to be taken up")
        self._offsets.commit(group, topic, queue_id, header.commit_offset, peer.address)
        return request.response()

    def all(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Answers 43: all offsets, as they are in the file."""
        return self._whole.answer(request, peer, "offsets", self._offsets.encoder)

    def _logic(
        self, header: QueryConsumerOffsetRequestHeader | UpdateConsumerOffsetRequestHeader
    ) -> LogicOffsets | None:
        if header.topic not in self._mappings or header.lo is False:
            return None
        return self.of_logic_queues

    def _starts_in_memory(self, topic: str, queue_id: int) -> bool:
        if self._store.min_queue_offset(topic, queue_id) > 0:
            return False
        first = self._store.read_queue(topic, queue_id, 0, 1, 1)
        if not first.messages:
            return False
        return self._store.end_offset - physical_offset(first.data) <= self._store.cached_bytes
