"""Topics, groups and consumer offsets, as a part of the broker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred

from rocketmq_tw.broker.assembly.handlers import merge_handlers, refusing
from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.part import KeptTable, Part
from rocketmq_tw.broker.assembly.truncation import DerivedOffsets, LogCut
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.stats.part import Stats
from rocketmq_tw.broker.tables.changes import (
    CHANGING,
    ONLY_A_MASTER_CHANGES,
    left_to_the_master,
)
from rocketmq_tw.broker.tables.creation_times import CreationTimes
from rocketmq_tw.broker.tables.groups.requests import GroupRequests
from rocketmq_tw.broker.tables.groups.table import GroupTable
from rocketmq_tw.broker.tables.offsets.reconciling import OffsetReconciling
from rocketmq_tw.broker.tables.offsets.requests import OffsetRequests
from rocketmq_tw.broker.tables.offsets.table import OffsetTable
from rocketmq_tw.broker.tables.topics.announcements import Announcements
from rocketmq_tw.broker.tables.topics.queue_mappings import QueueMappings
from rocketmq_tw.broker.tables.topics.requests import TopicChangeRequests, TopicViewRequests
from rocketmq_tw.broker.tables.topics.table import TopicTable
from rocketmq_tw.broker.tables.versioned import TableContext
from rocketmq_tw.broker.tables.write_behind import write_progress
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.metrics.instruments import Metric, gauge
from rocketmq_tw.net.growing_answers import GrowingAnswers
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.net.whole_tables import WholeTables
from rocketmq_tw.runtime.retries import RETRY_SLOW
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError

#: Requests by which slaves copy what they remove where it is gone.
_COPIED = (RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
_ONLY_A_MASTER_TELLS = (
    "only the master of a group with controllers tells all topics and groups: ask at its address"
    " (clusterList has it), or mqadmin exportMetadata with -c and the cluster's name"
)
_NOT_YET_TOLD = "this broker has just become the master and reads its log: ask again in a second"


class Tables(Part):
    """The tables and their requests: a master changes them by requests, a slave copies its
    master's."""

    def __init__(self, host: Host, role: RoleHolder, writing: Writing, stats: Stats) -> None:
        self._host = host
        self._role = role
        self._writing = writing
        #: The end of the log, in bytes, when this broker entered its role.
        self._began_at = 0
        config, now_ms, in_thread = host.config, host.now_ms, host.in_thread
        lmq = host.store_config.enable_lmq
        context = TableContext(config, role, now_ms, in_thread, host.in_slices, lmq)
        self.topics = TopicTable(host.table_file("topics"), context)
        self.groups = GroupTable(host.table_file("subscriptionGroup"), context)
        offsets_file = host.table_file("consumerOffset")
        self.offsets = (
            OffsetTable(
                config, host.table_file("lmqConsumerOffset"), now_ms, lmq=True, former=offsets_file
            )
            if lmq
            else OffsetTable(config, offsets_file, now_ms)
        )
        #: Brings the offsets and those of other members of the group together.
        self.reconciling = OffsetReconciling(self.offsets, now_ms)
        writing.truncation.register(
            DerivedOffsets(
                "consumer offsets",
                self._clamp,
                self._write_offsets,
            )
        )
        writing.truncation.register(
            DerivedOffsets(
                "which topics and groups are known",
                self._clamp_known,
                self.topics.keep_place,
            )
        )
        self.announcements = Announcements(host.reactor)
        self.mappings = QueueMappings(
            config.broker_name, host.table_file("topicQueueMapping"), now_ms, in_thread
        )
        topics, groups, offsets, store = self.topics, self.groups, self.offsets, writing.store
        for table in (topics, groups):
            table.removed.add(stats.traffic.forget)
        topics.removed.add(writing.incoming.forget)
        growing = GrowingAnswers(host.in_slices, in_thread)
        #: Answers with the tables that slaves copy.
        self.whole = whole = WholeTables(
            host.reactor, host.in_slices, in_thread, host.net_config.frame_max_length
        )
        self.offset_requests = OffsetRequests(offsets, topics, self.mappings, groups, store, whole)
        mappings, announcements = self.mappings, self.announcements
        topic_changes = TopicChangeRequests(
            config, topics, mappings, offsets, store, announcements, growing
        )
        group_requests = GroupRequests(groups, topics, offsets, role, growing, whole)
        families = (
            topic_changes,
            TopicViewRequests(config, topics, mappings, store, stats.traffic, growing, whole),
            group_requests,
            self.offset_requests,
        )
        checks = topic_changes.checks() | group_requests.checks()
        self._left_to_the_master = {
            code: partial(left_to_the_master, check=checks[code], remark=ONLY_A_MASTER_CHANGES)
            for code in CHANGING
        }
        self._creation_times = CreationTimes(host.reactor, topics.is_system)
        self._handlers = self._creation_times.measuring(
            merge_handlers(family.handlers() for family in families)
        )

    def enter(self, state: RoleState) -> None:
        self._began_at = self._writing.store.end_offset
        self._role.scope.on_end(self.offsets.end_role)
        if state.role is Role.ACTING_MASTER:
            self.reconciling.begin_acting()
            self._role.scope.on_end(self.reconciling.end_acting)
        elif state.role is Role.MASTER:
            self.reconciling.lead()
            store = self._writing.store
            place = self.offsets.as_of.place
            self.groups.lead(self._began_at, lambda: store.dispatched_offset, place)
            self._role.scope.on_end(self.groups.as_of.end)

    def handlers(self, role: Role) -> Mapping[int, Handler]:
        controlled = self._host.config.enable_controller_mode
        if role is Role.MASTER:
            if not controlled:
                return self._handlers
            return self._handlers | {
                code: partial(self._tell_once_dispatched, self._handlers[code]) for code in _COPIED
            }
        told = self._handlers
        if controlled:
            # A slave that has not heard yet that this is its master no more, or not yet again,
            # would remove what this table lacks.
            told = told | refusing(_COPIED, ResponseCode.SYSTEM_ERROR, _ONLY_A_MASTER_TELLS)
        if role.copies_log:
            return told | self._left_to_the_master
        return told | refusing(CHANGING, ResponseCode.SYSTEM_ERROR, ONLY_A_MASTER_CHANGES)

    def _tell_once_dispatched(self, tell: Handler, request: RemotingCommand, peer: IPeer) -> Any:
        """Answers once the log that this broker took over is in its queues: a slave that copies
        keeps topics that the master lacks but has messages of, and only queues tell of these."""
        if self._writing.store.dispatched_offset < self._began_at:
            raise RequestError(ResponseCode.SYSTEM_BUSY, _NOT_YET_TOLD)
        return tell(request, peer)

    def tables(self) -> Iterable[KeptTable]:
        seconds = self._host.config.flush_consumer_offset_interval / 1000
        # All but the offsets are written with each change: only what could not be is, at intervals.
        return [
            KeptTable("topics", self.topics.load, self.topics.save, RETRY_SLOW),
            KeptTable("logic queues", self.mappings.load, self.mappings.save, RETRY_SLOW),
            KeptTable("groups", self.groups.load, self.groups.save, RETRY_SLOW),
            KeptTable("offsets", self.offsets.load, self._write_offsets, seconds),
        ]

    def stop(self) -> None:
        self.whole.stop()

    def metrics(self) -> Iterable[Metric]:
        yield gauge("rocketmq_topic_number", len(self.topics.all()))
        yield gauge("rocketmq_consumer_group_number", len(self.groups.all()))
        yield from self._creation_times.metrics()

    def _clamp_known(self, cut: LogCut) -> Iterator[None]:
        self.topics.as_of.cut(cut.end)
        self.groups.as_of.cut(cut.end)
        return iter(())

    def _clamp(self, cut: LogCut) -> Iterator[None]:
        self.offsets.as_of.cut(cut.end)
        return self.offsets.clamp(cut.first_gone)

    def _write_offsets(self) -> Deferred[Any]:
        return write_progress(self.offsets, self._writing.commit, self._host.in_thread)
