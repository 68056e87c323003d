"""Topics, groups and consumer offsets, as a part of the broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rocketmq_tw.broker.assembly.growing_answers import GrowingAnswers
from rocketmq_tw.broker.assembly.handlers import merge_handlers, refusing
from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.part import KeptTable, Metric, Part
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import COPYING_ROLES, Role
from rocketmq_tw.broker.stats.part import Stats
from rocketmq_tw.broker.tables.announcements import Announcements
from rocketmq_tw.broker.tables.group_requests import ONLY_A_MASTER_CHANGES, GroupRequests
from rocketmq_tw.broker.tables.groups import GroupTable
from rocketmq_tw.broker.tables.offset_requests import OffsetRequests
from rocketmq_tw.broker.tables.offsets import OffsetTable
from rocketmq_tw.broker.tables.progress import write_progress
from rocketmq_tw.broker.tables.topic_requests import TopicRequests
from rocketmq_tw.broker.tables.topics import TopicTable
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand

log = Logger()

#: Requests that change what a slave copies. Stock 5.3's tools ask slaves too and fail where one
#: refuses; its slaves say yes, and the next copy from the master takes any change back.
CHANGING = (
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
)


class Tables(Part):
    """The books; a master changes them as it is asked, a slave only as its master does."""

    def __init__(self, host: Host, role: RoleHolder, writing: Writing, stats: Stats) -> None:
        self._host = host
        self._writing = writing
        config, now_ms, in_thread = host.config, host.now_ms, host.in_thread
        self.topics = TopicTable(config, host.table_file("topics"), now_ms, role, in_thread)
        self.groups = GroupTable(
            config, host.table_file("subscriptionGroup"), now_ms, role, in_thread
        )
        self.offsets = OffsetTable(config, host.table_file("consumerOffset"), now_ms)
        self.announcements = Announcements(host.reactor)
        topics, groups, offsets, store = self.topics, self.groups, self.offsets, writing.store
        self._handlers = merge_handlers(
            [
                TopicRequests(
                    config,
                    topics,
                    offsets,
                    store,
                    self.announcements,
                    stats.traffic,
                    in_thread,
                    GrowingAnswers(host.in_slices, in_thread),
                ).handlers(),
                GroupRequests(groups, offsets, role, in_thread).handlers(),
                OffsetRequests(offsets, topics, groups, store, in_thread).handlers(),
            ]
        )

    def handlers(self, role: Role) -> Mapping[int, Handler]:
        if role is Role.MASTER:
            return self._handlers
        if role in COPYING_ROLES:
            return self._handlers | dict.fromkeys(CHANGING, self._left_to_the_master)
        return self._handlers | refusing(CHANGING, ResponseCode.SYSTEM_ERROR, ONLY_A_MASTER_CHANGES)

    def _left_to_the_master(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        log.info(
            "{peer} sent request {code}: left to the master, which this slave copies",
            peer=peer.address,
            code=request.code,
        )
        return request.response(remark=ONLY_A_MASTER_CHANGES)

    def tables(self) -> Iterable[KeptTable]:
        seconds = self._host.config.flush_consumer_offset_interval / 1000
        return [
            KeptTable("topics", self.topics.load, self.topics.when_kept),
            KeptTable("groups", self.groups.load, self.groups.when_kept),
            KeptTable("offsets", self.offsets.load, self._write_offsets, seconds),
        ]

    def truncating(self, end: int) -> Deferred[Any]:
        store = self._writing.store
        clamped = self._host.in_slices(
            self.offsets.clamp(lambda topic, queue_id: store.queue_end_at(topic, queue_id, end))
        )
        return clamped.addCallback(lambda _: self._write_offsets())

    def metrics(self) -> Iterable[Metric]:
        yield Metric("rocketmq_topic_number", len(self.topics.all()))
        yield Metric("rocketmq_consumer_group_number", len(self.groups.all()))

    def _write_offsets(self) -> Deferred[Any]:
        return write_progress(self.offsets, self._writing.commit, self._host.in_thread)
