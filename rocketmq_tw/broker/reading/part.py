"""Pulls, as a part of the broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from twisted.internet.defer import Deferred

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.part import Part, Periodic
from rocketmq_tw.broker.clients.part import Clients
from rocketmq_tw.broker.cluster.broker_client import BrokerClient
from rocketmq_tw.broker.filters.part import Filters
from rocketmq_tw.broker.reading.held_pulls import HeldPulls
from rocketmq_tw.broker.reading.logic_pull import LogicPulls
from rocketmq_tw.broker.reading.pull import PullRequests
from rocketmq_tw.broker.reading.pull_checks import PullChecks
from rocketmq_tw.broker.reading.pull_reads import PullReads
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.net.interfaces import Handler


class Reading(Part):
    """Answers pulls, and holds those for which nothing is there yet."""

    def __init__(
        self,
        host: Host,
        writing: Writing,
        tables: Tables,
        clients: Clients,
        filters: Filters,
        brokers: BrokerClient,
        reads: PullReads,
    ) -> None:
        self._host = host
        store = writing.store
        self.held = HeldPulls(store, host.config, host.elapsed_ms, host.in_slices)
        store.on_arrival(self.held.arrived)
        writing.dispatcher.on_dispatched(self.held.resume_woken)
        writing.truncation.after_cut.add(lambda end: self.held.resume_all())
        self._pulls = PullRequests(
            LogicPulls(tables.mappings, brokers),
            PullChecks(host.config, tables, clients.registry, filters.filters),
            reads,
            self.held,
            filters.filters.budget,
        )

    def handlers(self, role: Role) -> Mapping[int, Handler]:
        return self._pulls.handlers()

    def periodic(self) -> Iterable[Periodic]:
        yield Periodic("the check of held pulls", self.held.check_interval, self._check_held)

    def _check_held(self) -> Deferred[Any]:
        return self._host.in_slices(self.held.check())

    def leave(self, state: RoleState) -> None:
        # In another role the broker may answer otherwise, or send consumers elsewhere.
        self.held.resume_all()
