"""Filters by tags and SQL92 expressions, as a part of the broker."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.part import KeptTable, Part
from rocketmq_tw.broker.clients.part import Clients
from rocketmq_tw.broker.filters.compile_budget import CompileBudget
from rocketmq_tw.broker.filters.filters import MessageFilters
from rocketmq_tw.broker.filters.message_bits import MessageBits
from rocketmq_tw.broker.filters.table import FilterTable
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.message.tags import is_tag_type
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.wire.bodies.base import FEW_VALUES, decode_request
from rocketmq_tw.wire.bodies.clients import CheckClientBody, SubscriptionData
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand

#: Seconds between two writes of the file, as in stock.
SAVE_SECONDS = 10.0


class Filters(Part):
    """Keeps the expressions that groups filter by, makes filters of them and bits of messages, and
    checks expressions for consumers (request 46)."""

    def __init__(self, host: Host, clients: Clients, writing: Writing) -> None:
        self._host = host
        self._store = writing.store
        self.table = FilterTable(host.config, host.table_file("consumerFilter"), host.now_ms)
        #: Makes the bits of messages; None where the configuration wants none.
        self.bits: MessageBits | None = None
        if self._store.extensions.are_written:
            self.bits = MessageBits(host.config, self.table, host.in_slices)
        budget = CompileBudget(host.reactor)
        self.filters = MessageFilters(host.config, self.table, budget, self.bits)
        clients.registry.subscribed.add(self._subscribed)

    def start(self) -> None:
        """Gives messages bits from now on, not while a start builds queues again in a thread."""
        if self.bits is not None:
            offset = self._store.last_record_offset
            newest = self._store.message_at(offset) if offset >= 0 else None
            if newest is not None:
                self.table.newest_stored = newest.store_timestamp
            self.bits.believed_from = self._store.end_offset
            self._store.extensions.bits_of = self.bits.of

    def handlers(self, role: Role) -> Mapping[int, Handler]:
        check = self.filters.budget.retrying(self.check_client)
        return {RequestCode.CHECK_CLIENT_CONFIG: check}

    def check_client(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 46, which consumers send before they start: whether the expression of a
        subscription can be filtered by."""
        wanted = decode_request(
            CheckClientBody, request.body, max_values=FEW_VALUES
        ).subscription_data
        if wanted is not None and not is_tag_type(wanted.expression_type):
            self.filters.check_enabled(wanted.expression_type)
            self.filters.parsed(wanted.sub_string, wanted.expression_type)
        return request.response()

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
        yield self.table.save(self._host.in_thread)
