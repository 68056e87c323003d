"""Views of messages, queues and offsets, as a part of the broker: 33 by offset, 12 by key, 29 to 32
for offsets and times, 321 for the units of a queue (`queue_requests.py`)."""

from __future__ import annotations

from collections.abc import Mapping

from twisted.internet.defer import Deferred, maybeDeferred

from rocketmq_tw.broker.assembly.handlers import merge_handlers
from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.part import Part
from rocketmq_tw.broker.clients.part import Clients
from rocketmq_tw.broker.cluster.broker_client import BrokerClient
from rocketmq_tw.broker.filters.part import Filters
from rocketmq_tw.broker.reading.logic_views import LogicViews
from rocketmq_tw.broker.reading.queue_requests import QueueRequests
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.store.interface import MOST_ANSWER_BYTES
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
    UNIQUE_KEY_FLAG,
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)

#: Messages in one answer to a query.
MAX_QUERY_MESSAGES = 64


class Views(Part):
    """Shows messages, queues and offsets; none of these requests creates anything."""

    def __init__(
        self,
        host: Host,
        role: RoleHolder,
        writing: Writing,
        tables: Tables,
        clients: Clients,
        filters: Filters,
        brokers: BrokerClient,
    ) -> None:
        self._in_slices = host.in_slices
        self._store = writing.store
        self._config = host.store_config
        self._topics = tables.topics
        self._role = role
        logic = LogicViews(self._store, tables.mappings, brokers)
        units = QueueRequests(clients.registry, filters, self._store, tables.topics, role)
        own: dict[int, Handler] = {
            RequestCode.VIEW_MESSAGE_BY_ID: self.view,
            RequestCode.QUERY_MESSAGE: self.query,
        }
        self._handlers = merge_handlers(
            [
                own,
                logic.around(
                    {
                        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search_offset,
                        RequestCode.GET_MAX_OFFSET: self.max_offset,
                        RequestCode.GET_MIN_OFFSET: self.min_offset,
                        RequestCode.GET_EARLIEST_MSG_STORETIME: self.earliest_store_time,
                    }
                ),
                units.handlers(),
            ]
        )

    def handlers(self, role: Role) -> Mapping[int, Handler]:
        return self._handlers

    def view(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 33: the record at a physical offset, as it is in the log."""
        offset = request.header(ViewMessageRequestHeader).offset
        record = self._store.record_at(offset)
        if record is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"no message starts at the offset {offset} of the log"
            )
        return request.response(body=record)

    def query(self, request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        """Answers 12: the newest records that the index has for a key of a topic, joined, the
        oldest one of them first. Many messages may share a key, so others are served while it is
        searched for."""
        header = request.header(QueryMessageRequestHeader)
        most = header.max_num
        if request.ext_fields.get(UNIQUE_KEY_FLAG) == "true":
            most = self._config.default_query_max_num
        found: list[int] = []
        if most <= 0:
            return maybeDeferred(self._found, request, header, found)
        steps = self._store.search_by_key(
            header.topic,
            header.key,
            min(most, MAX_QUERY_MESSAGES),
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
        for offset in sorted(offsets, reverse=True):
            record = self._store.record_at(offset)
            if record is not None:
                size += len(record)
                if records and size > MOST_ANSWER_BYTES:
                    break
                records.append(record)
        if not records:
            raise RequestError(
                ResponseCode.QUERY_NOT_FOUND,
                f"no message of {header.topic} has the key {header.key!r} in this time",
            )
        return request.response(
            header=QueryMessageResponseHeader(
                index_last_update_timestamp=last_time, index_last_update_phyoffset=last_offset
            ),
            body=b"".join(reversed(records)),
        )

    def search_offset(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 29: the offset of the first message of a time, in ms, or later; with the boundary
        UPPER of the last one of that time or before."""
        header = request.header(SearchOffsetRequestHeader)
        self._check(header.topic)
        offset = self._store.offset_by_time(
            header.topic,
            header.queue_id,
            header.timestamp,
            upper=(header.boundary_type or "").upper() == "UPPER",
        )
        return request.response(header=SearchOffsetResponseHeader(offset=offset))

    def max_offset(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 30: the offset behind the last message of a queue."""
        header = request.header(GetMaxOffsetRequestHeader)
        self._check(header.topic)
        offset = self._store.max_queue_offset(header.topic, header.queue_id)
        return request.response(header=GetMaxOffsetResponseHeader(offset=offset))

    def min_offset(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 31: the offset of the first message of a queue that is still there."""
        header = request.header(GetMinOffsetRequestHeader)
        self._check(header.topic)
        offset = self._store.min_queue_offset(header.topic, header.queue_id)
        return request.response(header=GetMinOffsetResponseHeader(offset=offset))

    def earliest_store_time(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 32: when the first message of a queue was stored, in ms."""
        header = request.header(GetEarliestMsgStoretimeRequestHeader)
        self._check(header.topic)
        timestamp = self._store.earliest_store_time(header.topic, header.queue_id)
        return request.response(header=GetEarliestMsgStoretimeResponseHeader(timestamp=timestamp))

    def _check(self, topic: str) -> None:
        """Raises `RequestError` for a topic that this slave does not serve, whose offsets may be
        others than the master's."""
        if self._role.copies_log and self._topics.get(topic) is None:
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST, f"there is no topic {topic} on this slave"
            )
