"""Filters by properties, as a part of the broker."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.part import KeptTable, Part
from rocketmq_tw.broker.clients.part import Clients
from rocketmq_tw.broker.filters.filter_requests import FilterRequests
from rocketmq_tw.broker.filters.filters import MessageFilters
from rocketmq_tw.broker.filters.message_bits import MessageBits
from rocketmq_tw.broker.filters.table import FilterTable
from rocketmq_tw.broker.filters.turns import CompilingTurns
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.net.interfaces import Handler
from rocketmq_tw.wire.bodies.heartbeat import SubscriptionData

#: Seconds between two writes of the file, as in stock.
SAVE_SECONDS = 10.0


class Filters(Part):
    """Keeps what groups filter by, makes filters of it and bits of messages, and checks expressions
    (46)."""

    def __init__(self, host: Host, clients: Clients, writing: Writing) -> None:
        self._host = host
        self._store = writing.store
        self.table = FilterTable(host.config, host.table_file("consumerFilter"), host.now_ms)
        #: None where no message gets any.
        self.bits: MessageBits | None = None
        if self._store.extensions.are_written:
            self.bits = MessageBits(host.config, self.table, host.in_slices)
        turns = CompilingTurns(host.reactor)
        self.filters = MessageFilters(host.config, self.table, turns, self.bits)
        self._handlers = FilterRequests(self.filters).handlers()
        clients.registry.on_subscriptions(self._subscribed)

    def start(self) -> None:
        """From here on: a start that builds queues again does so in another thread."""
        if self.bits is not None:
            offset = self._store.last_record_offset
            newest = self._store.message_at(offset) if offset >= 0 else None
            if newest is not None:
                self.table.newest_stored = newest.store_timestamp
            self.bits.believed_from = self._store.end_offset
            self._store.extensions.bits_of = self.bits.of

    def handlers(self, role: Role) -> Mapping[int, Handler]:
        return self._handlers

    def tables(self) -> Iterable[KeptTable]:
        yield KeptTable("the filters of groups", self.table.load, self._save, SAVE_SECONDS)

    def _subscribed(self, group: str, wanted: Sequence[SubscriptionData] | None) -> None:
        if wanted is None:
            self.table.left(group)
        else:
            self.table.subscribed(group, wanted)

    @inlineCallbacks
    def _save(self) -> Generator[Deferred[Any], Any, None]:
        yield self._host.in_slices(self.table.check())
        encode = self.table.pending_write()
        if encode is None:
            return
        try:
            yield self._host.in_thread(lambda: self.table.write(encode()))
        except Exception:
            self.table.write_failed()
            raise
