"""The broker among name servers, as a part of the broker."""

from __future__ import annotations

from collections.abc import Iterable

from twisted.internet.defer import Deferred

from rocketmq_tw.broker.assembly.host import Addresses, Host
from rocketmq_tw.broker.assembly.part import Part, Periodic
from rocketmq_tw.broker.cluster.membership import ClusterMembership
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.config.change import on_change
from rocketmq_tw.metrics.instruments import Metric, gauge

#: Seconds between tries to register where a name server could not be reached.
RETRY_SECONDS = 3.0


class Cluster(Part):
    """Registers the broker in its role with all name servers, and takes that back at the end."""

    def __init__(
        self,
        host: Host,
        role: RoleHolder,
        addresses: Addresses,
        writing: Writing,
        tables: Tables,
    ) -> None:
        self._config = host.config
        self._role = role
        self._health = writing.health
        self._is_writable = True
        self._forget_config = on_change(host.config, self._config_changed)
        self._topics = tables.topics
        self.membership = ClusterMembership(host, addresses, tables, role, writing.health)
        role.changed.add(self._role_changed)
        self._forget_health = writing.health.changed.add(self._health_changed)

    def periodic(self) -> Iterable[Periodic]:
        config, membership = self._config, self.membership
        period = config.register_name_server_period / 1000
        yield Periodic("the registration", period, membership.register, may_hang=True)
        yield Periodic("registering again", RETRY_SECONDS, membership.retry, may_hang=True)

    def ready(self, state: RoleState) -> None:
        if state.role is Role.ACTING_MASTER:
            # Name servers know the slave, and choose the acting master themselves.
            return
        if state.role is Role.MASTER and state.epoch is not None:
            # Name servers pass over a master of an older epoch, which may not know yet that it is
            # none any more.
            self._topics.touch()
        self.membership.begin()
        # Nothing waits for it: a name server that hangs takes its time.
        self.membership.register(force=True)

    def metrics(self) -> Iterable[Metric]:
        yield gauge("rocketmq_broker_permission", self._config.broker_permission)
        yield gauge("rocketmq_broker_master", int(self._role.is_master))

    def _role_changed(self, former: RoleState, now: RoleState) -> None:
        """A master that is elected once more enters no role."""
        if former.role is now.role is Role.MASTER and former.epoch != now.epoch:
            self.ready(now)

    def _config_changed(self, keys: frozenset[str]) -> None:
        if "brokerPermission" in keys:
            self._permission_changed()

    def _health_changed(self) -> None:
        is_writable = not self._health.cannot_write
        if is_writable is not self._is_writable:
            self._is_writable = is_writable
            if self._role.is_master:
                self._permission_changed()

    def _permission_changed(self) -> None:
        self._topics.touch()
        self.membership.register(force=True)

    def stop(self) -> Deferred[None]:
        self._forget_health()
        self._forget_config()
        return self.membership.leave()
