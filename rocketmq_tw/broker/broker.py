"""A broker put together: which parts it has, and its ports."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.error import CannotListenError
from twisted.logger import Logger

from rocketmq_tw.broker.acting.absence import Absence
from rocketmq_tw.broker.acting.locks import LockQuorum
from rocketmq_tw.broker.acting.part import Acting
from rocketmq_tw.broker.acting.pre_online import PreOnline
from rocketmq_tw.broker.acting.standing_by import StandingBy
from rocketmq_tw.broker.acting.taking_back import TakingBack
from rocketmq_tw.broker.assembly.assembly import Assembly
from rocketmq_tw.broker.assembly.fast_failure import FastFailure
from rocketmq_tw.broker.assembly.host import Addresses, Host, Surroundings
from rocketmq_tw.broker.assembly.life import Life
from rocketmq_tw.broker.assembly.part import Part
from rocketmq_tw.broker.assignment.part import Assignment
from rocketmq_tw.broker.clients.part import Clients
from rocketmq_tw.broker.cluster.addresses import named_config, resolve
from rocketmq_tw.broker.cluster.broker_client import BrokerClient
from rocketmq_tw.broker.cluster.part import Cluster
from rocketmq_tw.broker.control.part import Control
from rocketmq_tw.broker.delay.part import Delay
from rocketmq_tw.broker.dledger.part import DLedgerGroup
from rocketmq_tw.broker.election.part import ElectedRole
from rocketmq_tw.broker.filters.part import Filters
from rocketmq_tw.broker.pop.part import Pop
from rocketmq_tw.broker.pop.revive_part import Reviving
from rocketmq_tw.broker.pop.timed_check_points import TimedCheckPoints
from rocketmq_tw.broker.reading.part import Reading
from rocketmq_tw.broker.reading.pull_reads import PullReads
from rocketmq_tw.broker.reading.views import Views
from rocketmq_tw.broker.replicas.copied_tables import CopiedTables
from rocketmq_tw.broker.replicas.part import Replicas
from rocketmq_tw.broker.role.holder import RoleChanges, RoleHolder
from rocketmq_tw.broker.role.state import Role, RoleState, configured_role
from rocketmq_tw.broker.sending.part import Sending
from rocketmq_tw.broker.static_topics.part import StaticTopics
from rocketmq_tw.broker.stats.part import Stats
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.timer.part import Timer
from rocketmq_tw.broker.transactions.part import Transactions
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.config.heartbeats import check_heartbeats
from rocketmq_tw.metrics.instruments import Metric, labelled
from rocketmq_tw.net.interfaces import RequestCheck
from rocketmq_tw.net.server_metrics import MetricsLog
from rocketmq_tw.runtime.turns import known_turns

P = TypeVar("P", bound=Part)

#: The capabilities of a broker, in no order: that follows from what each one uses.
PARTS: tuple[type[Part], ...] = (
    Absence,
    Acting,
    Assignment,
    BrokerClient,
    Clients,
    Cluster,
    Control,
    CopiedTables,
    DLedgerGroup,
    Delay,
    ElectedRole,
    Filters,
    LockQuorum,
    Pop,
    PreOnline,
    PullReads,
    Reading,
    Replicas,
    Reviving,
    Sending,
    StandingBy,
    StaticTopics,
    Stats,
    Tables,
    TakingBack,
    TimedCheckPoints,
    Timer,
    Transactions,
    Views,
    Writing,
)
#: The port of stock's VIP channel lies so far below the listening port.
VIP_DISTANCE = 2

log = Logger()


class Broker:
    """One broker. `start` fires once it serves in the role that its configuration gives, while the
    name servers are being told (where its group gives the role, as with enableControllerMode or
    enableDLegerCommitLog, or has to be asked first, as with enableSlaveActingMaster: once it is
    ready for one); `change_role` leads it into another one;
    `stop` fires once all that it accepted is on disk and its files are closed.

    It makes a listener on the server of `surroundings` and closes that; all else there stays open.
    listenPort 0 lets the kernel choose; `addresses` tells after `start`. `kinds` are its parts.
    """

    def __init__(self, surroundings: Surroundings, kinds: Iterable[type[Part]] = PARTS) -> None:
        self.net_config = surroundings.net_config
        self.config = named_config(surroundings.config, self.net_config.bind_address)
        checks: list[RequestCheck] = []
        turns = known_turns(surroundings.reactor)
        if turns is not None:
            # Of others nobody knows how long a request was there and not read.
            checks.append(FastFailure(self.config, turns.waited))
        self.listener = surroundings.server.listener(before_request=checks)
        self.addresses = Addresses(self.config)
        self.role = RoleHolder()
        self._host = Host.of(surroundings, self.config, self.listener)
        self._changes = RoleChanges()
        self.parts = Assembly(kinds, [self._host, self.addresses, self.role, self._changes])
        self._life = Life(self._host, self.parts, self.role)
        self._changes.change = self._life.change
        self._metrics_log = MetricsLog(surroundings.reactor, self.metrics)

    def __getitem__(self, kind: type[P]) -> P:
        """Returns the part of a class."""
        return self.parts[kind]

    @inlineCallbacks
    def start(self) -> Generator[Any, Any, None]:
        """Fails with what the configuration, the store or a port refuses; then `stop` cleans up."""
        state = configured_role(self.config, self._host.store_config)
        warning = check_heartbeats(self.config)
        if warning:
            log.warn("{text}", text=warning)
        ip1 = self.config.broker_ip1
        self.addresses.ip = yield self._host.in_thread(lambda: resolve(ip1))
        yield self._life.start()
        # A port that is taken fails the start before anything is told of the broker; requests wait
        # until the configured role answers them.
        accepts = state is None
        self.addresses.port = self.listener.listen(self.net_config.listen_port, accepts=accepts)
        self._listen_vip(accepts=accepts)
        self._life.opened()
        self._metrics_log.start()
        if state is not None:
            yield self._changes.begin(state)
            self.listener.accept()
        self._life.tells_roles = True
        log.info(
            "broker {name} serves at {address}, its store is {store}, it is {role} with id {id}"
            if self.role.role is not Role.ISOLATED
            else "broker {name} waits at {address} until its group gives it a role,"
            " its store is {store}",
            name=self.config.broker_name,
            address=self.addresses.broker,
            store=self._host.store_config.store_path_root_dir,
            role=self.role.role.words,
            id=self.role.state.broker_id,
        )

    def change_role(self, state: RoleState) -> Deferred[None]:
        """Leads the broker into another role; fires once it serves in it. What was acknowledged
        stays as safe as it was, and requests that the role does not allow are refused meanwhile."""
        return self._life.change(state)

    def stop(self) -> Deferred[None]:
        """Fires once everything is written and released; fails with the first error, after all
        else was done."""
        self._metrics_log.stop()
        return self._life.stop()

    def metrics(self) -> Iterator[Metric]:
        """Yields what all parts measure now, with stock's labels for a broker."""
        labels = {
            "node_type": "broker",
            "cluster": self.config.broker_cluster_name,
            "node_id": self.config.broker_name,
        }
        return labelled((metric for part in self.parts for metric in part.metrics()), labels)

    def not_ready(self) -> str:
        """Returns why clients cannot be served yet; an empty text once they can."""
        if self.role.role is Role.ISOLATED:
            return "the broker has no role yet"
        return self[Writing].store.gone or self[Cluster].membership.not_registered()

    def _listen_vip(self, *, accepts: bool) -> None:
        """A port of the kernel's choice may have a neighbour; a configured one must not."""
        try:
            self.listener.listen(self.addresses.port - VIP_DISTANCE, accepts=accepts)
        except CannotListenError as error:
            if self.net_config.listen_port:
                raise
            log.info("no VIP channel: {why}", why=error)
