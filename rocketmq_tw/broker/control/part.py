"""The requests of administrators, as a part of the broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

from rocketmq_tw.broker.assembly.assembly import Assembly
from rocketmq_tw.broker.assembly.handlers import merge_handlers, refusing
from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.part import Part
from rocketmq_tw.broker.clients.part import Clients
from rocketmq_tw.broker.control.admin import AdminRequests
from rocketmq_tw.broker.control.cold_data import ColdDataRequests
from rocketmq_tw.broker.control.consume_stats import ConsumeStatsRequests
from rocketmq_tw.broker.control.consumer_status import ConsumerStatusRequests
from rocketmq_tw.broker.control.group_lag import GroupLag
from rocketmq_tw.broker.control.resets import ResetRequests
from rocketmq_tw.broker.control.topic_traffic import TopicTraffic
from rocketmq_tw.broker.filters.bloom import BloomFilter
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import Role, role_keys
from rocketmq_tw.broker.stats.part import Stats
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.metrics.instruments import Metric
from rocketmq_tw.net.growing_answers import GrowingAnswers
from rocketmq_tw.net.interfaces import Handler
from rocketmq_tw.wire.codes import RequestCode, ResponseCode

#: Requests that move offsets.
MOVING = (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RequestCode.CLONE_GROUP_OFFSET)


class Control(Part):
    """Answers administrators: configuration, runtime info of all parts, progress of groups."""

    def __init__(
        self,
        host: Host,
        role: RoleHolder,
        parts: Assembly,
        writing: Writing,
        tables: Tables,
        clients: Clients,
        stats: Stats,
    ) -> None:
        self._parts = parts
        self._role = role
        self._config = host.config
        config, store, registry = host.config, writing.store, clients.registry
        growing = GrowingAnswers(host.in_slices, host.in_thread)
        boot_timestamp = stats.statistics.boot_timestamp
        self._cold_data = ColdDataRequests()
        families = (
            AdminRequests(
                host,
                store,
                writing.cleaning,
                tables.topics,
                boot_timestamp,
                self._shown,
                self._shown_keys,
                growing,
            ),
            self._cold_data,
            ConsumeStatsRequests(host, tables, registry, store, stats.traffic, growing),
            ResetRequests(config, tables, registry, store, growing),
            ConsumerStatusRequests(registry, host.in_slices, host.in_thread),
        )
        self._lag = GroupLag(host, tables, store)
        self._topic_traffic = TopicTraffic(tables, writing.incoming, stats.traffic)
        self._handlers = merge_handlers(
            [*(family.handlers() for family in families), _without_rocksdb()]
        )

    def handlers(self, role: Role) -> Mapping[int, Handler]:
        if role is Role.MASTER:
            return self._handlers
        remark = f"this broker is {role.words} and its offsets are the master's: move them there"
        return {**self._handlers, **refusing(MOVING, ResponseCode.SYSTEM_ERROR, remark)}

    def metrics(self) -> Iterable[Metric]:
        return chain(self._topic_traffic.metrics(), self._lag.metrics())

    def _shown(self) -> Mapping[str, str]:
        # As in stock: whether it delivers what is due, as masters and those that act for them do.
        shown = {"brokerActive": str(self._role.role.delivers).lower()}
        for part in self._parts:
            shown |= part.runtime_info()
        return shown

    def _shown_keys(self) -> Mapping[str, str]:
        bits = BloomFilter(
            self._config.max_error_rate_of_bloom_filter, self._config.expect_consumer_num_use_filter
        ).bits
        return {
            **role_keys(self._role.state),
            **self._cold_data.keys(),
            # As in stock: what the two keys amount to.
            "bitMapLengthConsumeQueueExt": str(bits),
        }


def _without_rocksdb() -> dict[int, Handler]:
    """Handlers of what stock asks brokers whose queues and tables are in RocksDB."""
    return refusing(
        (RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON),
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        "queues and tables of this broker are plain files, none is in RocksDB: there is nothing to"
        " compare or to convert",
    )
