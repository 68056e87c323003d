"""Looking at messages and queues: 33 by offset, 12 by key, 29 to 32 for offsets and times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from twisted.internet.defer import Deferred

from rocketmq_tw.broker.interfaces import IMessageStore
from rocketmq_tw.broker.reading.logic_views import LogicViews
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.tables.topics.queue_mappings import QueueMappings
from rocketmq_tw.broker.tables.topics.table import TopicTable
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.net.interfaces import Handler, IPeer
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
from rocketmq_tw.wire.headers.pull import (
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)

#: Set in `extFields` by a client whose key is a unique id.
UNIQUE_KEY_FLAG = "_UNIQUE_KEY_QUERY"
#: Messages, and bytes of them, in one answer to a query.
MAX_QUERY_MESSAGES = 64
MAX_QUERY_BYTES = 8 * 1024 * 1024


class ViewRequests:
    """Answers from the store alone; what is not there is said, never created."""

    def __init__(
        self,
        store: IMessageStore,
        config: MessageStoreConfig,
        topics: TopicTable,
        role: RoleHolder,
        in_slices: Callable[[Iterator[None]], Deferred[Any]],
        mappings: QueueMappings,
        logic: LogicViews,
    ) -> None:
        self._mappings = mappings
        self._logic = logic
        self._in_slices = in_slices
        self._store = store
        self._config = config
        self._topics = topics
        self._role = role

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.VIEW_MESSAGE_BY_ID: self.view,
            RequestCode.QUERY_MESSAGE: self.query,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search_offset,
            RequestCode.GET_MAX_OFFSET: self.max_offset,
            RequestCode.GET_MIN_OFFSET: self.min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.earliest_store_time,
        }

    def view(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """The record at a physical offset, as it is in the log."""
        offset = request.header(ViewMessageRequestHeader).offset
        record = self._store.record_at(offset)
        if record is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"no message starts at the offset {offset} of the log"
            )
        return request.response(body=record)

    def query(self, request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        """The records that the index has for a key of a topic, joined. Many messages may share a
        key: others are served while it is searched for."""
        header = request.header(QueryMessageRequestHeader)
        most = header.max_num
        if request.ext_fields.get(UNIQUE_KEY_FLAG) == "true":
            most = self._config.default_query_max_num
        found: list[int] = []
        steps = self._store.search_by_key(
            header.topic,
            header.key,
            max(1, min(most, MAX_QUERY_MESSAGES)),
            header.begin_timestamp,
            header.end_timestamp,
            found,
        )
        searched = self._in_slices(steps)
        return searched.addCallback(lambda _: self._found(request, header, found))

    def _found(
        self, request: RemotingCommand, header: QueryMessageRequestHeader, offsets: list[int]
    ) -> RemotingCommand:
        last_time, last_offset = self._store.indexed
        records: list[bytes] = []
        size = 0
        for offset in offsets:
            record = self._store.record_at(offset)
            if record is not None:
                records.append(record)
                size += len(record)
                if size >= MAX_QUERY_BYTES:
                    break
        if not records:
            raise RequestError(
                ResponseCode.QUERY_NOT_FOUND,
                f"no message of {header.topic} has the key {header.key!r} in this time",
            )
        return request.response(
            header=QueryMessageResponseHeader(
                index_last_update_timestamp=last_time, index_last_update_phyoffset=last_offset
            ),
            body=b"".join(records),
        )

    def search_offset(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        header = request.header(SearchOffsetRequestHeader)
        if header.topic in self._mappings and header.lo is not False:
            return Deferred.fromCoroutine(self._logic.search_offset(request, header))
        self._check(header.topic)
        offset = self._store.offset_by_time(
            header.topic,
            header.queue_id,
            header.timestamp,
            upper=(header.boundary_type or "").upper() == "UPPER",
        )
        return request.response(header=SearchOffsetResponseHeader(offset=offset))

    def max_offset(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        header = request.header(GetMaxOffsetRequestHeader)
        if header.topic in self._mappings and header.lo is not False:
            return Deferred.fromCoroutine(self._logic.max_offset(request, header))
        self._check(header.topic)
        offset = self._store.max_queue_offset(header.topic, header.queue_id)
        return request.response(header=GetMaxOffsetResponseHeader(offset=offset))

    def min_offset(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        header = request.header(GetMinOffsetRequestHeader)
        if header.topic in self._mappings and header.lo is not False:
            return Deferred.fromCoroutine(self._logic.min_offset(request, header))
        self._check(header.topic)
        offset = self._store.min_queue_offset(header.topic, header.queue_id)
        return request.response(header=GetMinOffsetResponseHeader(offset=offset))

    def earliest_store_time(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        header = request.header(GetEarliestMsgStoretimeRequestHeader)
        if header.topic in self._mappings and header.lo is not False:
            return Deferred.fromCoroutine(self._logic.earliest_store_time(request, header))
        self._check(header.topic)
        timestamp = self._store.earliest_store_time(header.topic, header.queue_id)
        return request.response(header=GetEarliestMsgStoretimeResponseHeader(timestamp=timestamp))

    def _check(self, topic: str) -> None:
        """A slave shows no queue of a topic that it does not serve: its offsets may be others than
        the master's."""
        if self._role.copies_log and self._topics.get(topic) is None:
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST, f"there is no topic {topic} on this slave"
            )
