"""Topics, groups and consumer offsets, as a part of the broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from twisted.internet.defer import Deferred

from rocketmq_tw.broker.assembly.handlers import merge_handlers, refusing
from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.part import KeptTable, Metric, Part
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import Role
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
from rocketmq_tw.net.interfaces import Handler
from rocketmq_tw.wire.codes import RequestCode, ResponseCode

#: Requests that change what a slave copies; stock 4.9's slaves refuse them with SYSTEM_ERROR.
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
                    config, topics, offsets, store, self.announcements, stats.traffic, in_thread
                ).handlers(),
                GroupRequests(groups, offsets, role, in_thread).handlers(),
                OffsetRequests(offsets, topics, groups, store, in_thread).handlers(),
            ]
        )

    def handlers(self, role: Role) -> Mapping[int, Handler]:
        if role is Role.MASTER:
            return self._handlers
        return self._handlers | refusing(CHANGING, ResponseCode.SYSTEM_ERROR, ONLY_A_MASTER_CHANGES)

    def tables(self) -> Iterable[KeptTable]:
        seconds = self._host.config.flush_consumer_offset_interval / 1000
        return [
            KeptTable("topics", self.topics.load, self.topics.when_kept),
            KeptTable("groups", self.groups.load, self.groups.when_kept),
            KeptTable("offsets", self.offsets.load, self._write_offsets, seconds),
        ]

    def truncating(self, end: int) -> Deferred[Any]:
        store = self._writing.store
        self.offsets.clamp(lambda topic, queue_id: store.queue_end_at(topic, queue_id, end))
        return self._write_offsets()

    def metrics(self) -> Iterable[Metric]:
        yield Metric("rocketmq_topic_number", len(self.topics.all()))
        yield Metric("rocketmq_consumer_group_number", len(self.groups.all()))

    def _write_offsets(self) -> Deferred[Any]:
        return write_progress(self.offsets, self._writing.commit, self._host.in_thread)
