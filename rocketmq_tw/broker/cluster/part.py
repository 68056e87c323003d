"""The broker among name servers, as a part of the broker."""

from __future__ import annotations

from collections.abc import Iterable

from twisted.internet.defer import Deferred

from rocketmq_tw.broker.assembly.host import Addresses, Host
from rocketmq_tw.broker.assembly.part import Part, Periodic
from rocketmq_tw.broker.cluster.membership import Membership
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import RoleState
from rocketmq_tw.broker.tables.part import Tables

#: Seconds between tries to register where a name server could not be reached.
RETRY_SECONDS = 3.0


class Cluster(Part):
    """Registers the broker in its role with all name servers, and takes that back at the end."""

    def __init__(self, host: Host, role: RoleHolder, addresses: Addresses, tables: Tables) -> None:
        self._config = host.config
        self.membership = Membership(
            host.config,
            tables.topics,
            host.client,
            addresses,
            tables.announcements,
            role,
            host.in_thread,
        )

    def periodic(self) -> Iterable[Periodic]:
        config, membership = self._config, self.membership
        period = config.register_name_server_period / 1000
        yield Periodic("the registration", period, membership.register, may_hang=True)
        yield Periodic("registering again", RETRY_SECONDS, membership.retry, may_hang=True)

    def ready(self, state: RoleState) -> None:
        # Nobody waits for it: a name server that hangs takes its time.
        self.membership.register(force=True)

    def stop(self) -> Deferred[None]:
        return self.membership.leave()
