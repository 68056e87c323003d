"""Static topics, as a part of the broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twisted.internet.defer import Deferred

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.part import Part, Periodic
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.broker.static_topics.cleaning import MappingCleaner
from rocketmq_tw.broker.static_topics.offsets import StaticOffsets
from rocketmq_tw.broker.static_topics.others import OtherBrokers
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.store.retention import is_delete_hour

#: Seconds between two looks at whether it is time to clean up, as in stock.
CLEAN_SECONDS = 300.0


class StaticTopics(Part):
    """Reaches the other brokers of logic queues, and forgets the items of these that are empty."""

    def __init__(self, host: Host, writing: Writing, tables: Tables) -> None:
        self._host = host
        self.others = OtherBrokers(host.config, host.client, host.elapsed_ms)
        tables.offset_requests.of_logic_queues = StaticOffsets(
            tables.mappings, tables.offsets, self.others, tables.offset_requests
        )
        self.cleaner = MappingCleaner(tables.mappings, self.others, writing.store)

    def periodic(self) -> Iterable[Periodic]:
        yield Periodic(
            "cleaning static topics", CLEAN_SECONDS, self._clean, (Role.MASTER,), may_hang=True
        )

    def _clean(self) -> Deferred[Any] | None:
        if not is_delete_hour(self._host.store_config.delete_when, self._host.now_ms()):
            return None
        return Deferred.fromCoroutine(self.cleaner.clean())
