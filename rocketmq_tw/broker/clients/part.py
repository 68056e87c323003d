"""Connected clients and the queues that they lock, as a part of the broker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any

from twisted.internet.defer import Deferred

from rocketmq_tw.broker.assembly.handlers import merge_handlers
from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.part import KeptTable, Part, Periodic
from rocketmq_tw.broker.clients.client_requests import ClientRequests
from rocketmq_tw.broker.clients.connection_requests import ConnectionRequests
from rocketmq_tw.broker.clients.group_locks import GroupLocks
from rocketmq_tw.broker.clients.locks import LockFile, LockRequests, RebalanceLock
from rocketmq_tw.broker.clients.member_notices import MemberNotices
from rocketmq_tw.broker.clients.registry import ClientKind, ClientRegistry
from rocketmq_tw.broker.clients.subscription_requests import SubscriptionRequests
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.message.names import SYSTEM_GROUP_PREFIX
from rocketmq_tw.metrics.instruments import MAX_SERIES, Metric, gauge, truth
from rocketmq_tw.net.growing_answers import GrowingAnswers
from rocketmq_tw.net.interfaces import Handler
from rocketmq_tw.wire.command import version_name

#: Stock's words for how a group consumes, in its metrics.
_CONSUME_MODES = {"CONSUME_ACTIVELY": "pull", "CONSUME_PASSIVELY": "push", "CONSUME_POP": "pop"}
#: Seconds between scans for clients without heartbeats, as in stock.
_SCAN_SECONDS = 10.0
#: Seconds after which a lock that was taken is in the file.
LOCK_SECONDS = 1.0


class Clients(Part):
    """Registers connected clients, shows them to each other, and grants locks on queues."""

    def __init__(self, host: Host, writing: Writing, tables: Tables) -> None:
        self._host = host
        notices = MemberNotices(host.in_slices)
        self.registry = ClientRegistry(host.config, host.now_ms, host.elapsed_ms, notices.changed)
        self.locks = RebalanceLock(host.elapsed_ms)
        #: Has the locks granted by most brokers of the group, where that is wanted.
        self.group_locks = GroupLocks(host)
        self._lock_file = LockFile(self.locks, host.table_file("rebalanceLock"))
        registry, topics, groups = self.registry, tables.topics, tables.groups
        in_slices = host.in_slices
        growing = GrowingAnswers(in_slices, host.in_thread)
        families = (
            ClientRequests(in_slices, host.config, registry, groups, topics, tables.announcements),
            ConnectionRequests(host.config, registry, topics, groups, writing.store, growing),
            SubscriptionRequests(registry, tables.offsets, in_slices, growing),
            LockRequests(self.locks, self.group_locks),
        )
        self._handlers = merge_handlers(family.handlers() for family in families)

    def leave(self, state: RoleState) -> None:
        if state.role.delivers:
            self.locks.end_role()

    def handlers(self, role: Role) -> Mapping[int, Handler]:
        return self._handlers

    def tables(self) -> Iterable[KeptTable]:
        file = self._lock_file
        save = partial(file.save, self._host.in_thread)
        return [KeptTable("the locks of orderly consumers", file.load, save, LOCK_SECONDS)]

    def periodic(self) -> Iterable[Periodic]:
        yield Periodic("the scan for silent clients", _SCAN_SECONDS, self._expire)
        yield Periodic("the scan for expired locks", _SCAN_SECONDS, self._forget)

    def _expire(self) -> Deferred[Any]:
        return self._host.in_slices(self.registry.expire())

    def _forget(self) -> Deferred[Any]:
        return self._host.in_slices(self.locks.forget_expired())

    def metrics(self) -> Iterable[Metric]:
        for kind, number in self.registry.producer_kinds().items():
            yield gauge("rocketmq_producer_connections", number, _labels_of(kind))
        yield from islice(self._consumer_connections(), MAX_SERIES)

    def _consumer_connections(self) -> Iterator[Metric]:
        for group, kinds in self.registry.consumer_kinds():
            labels = {
                "consumer_group": group.name,
                "consume_mode": _CONSUME_MODES.get(group.consume_type or "", "unknown"),
                "is_system": truth(group.name.startswith(SYSTEM_GROUP_PREFIX)),
            }
            for kind, number in kinds.items():
                yield gauge("rocketmq_consumer_connections", number, labels | _labels_of(kind))


def _labels_of(kind: ClientKind) -> dict[str, str]:
    return {
        "language": kind.language.lower(),
        "version": version_name(kind.version).lower(),
        "protocol_type": "remoting",
    }
