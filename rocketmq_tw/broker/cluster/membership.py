"""This broker's place in the cluster, over all its roles: which name servers it is registered with.

While the broker has a role, a `RoleRegistration` keeps it registered; one that is isolated, or on
its way into a role, is not. A name server that is down is passed over, and asked again and again
until it has everything. What name servers answer about the master and ordered topics is handed on.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred, DeferredList, inlineCallbacks, succeed

from rocketmq_tw.broker.assembly.host import Addresses, Host
from rocketmq_tw.broker.cluster.group_members import GroupMembers, LivingMembers
from rocketmq_tw.broker.cluster.name_server_links import Master, NameServerLink, tell_all
from rocketmq_tw.broker.cluster.registration import RoleRegistration
from rocketmq_tw.broker.role.health import Health
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.net.address import split_addresses
from rocketmq_tw.runtime.listeners import Listeners
from rocketmq_tw.wire import permissions
from rocketmq_tw.wire.bodies.route import MASTER_ID
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.headers.namesrv import UnRegisterBrokerRequestHeader

#: Seconds; as stock waits.
UNREGISTER_TIMEOUT = 3.0
#: Registrations that may stay without an answer before the broker counts as not known any more.
MISSED_REGISTRATIONS = 3
#: Seconds after which it does in any case: name servers forget who is silent for so long.
LONGEST_SILENCE = 120.0


class ClusterMembership:
    """Registers the broker in each role, and takes that back at the end."""

    def __init__(
        self,
        host: Host,
        addresses: Addresses,
        tables: Tables,
        role: RoleHolder,
        health: Health,
    ) -> None:
        self._config = host.config
        self._addresses = addresses
        self._role = role
        self._health = health
        self._announcements = tables.announcements
        #: Told of the master's address in answers to registrations, which may know none.
        self.masters = Listeners[Master]("a name server told of the master")
        self._links = {
            address: NameServerLink(host.client, address, self._came_back, host.reactor.seconds)
            for address in split_addresses(host.config.namesrv_addr)
        }
        host.client.lost.add(self._lost)
        links = tuple(self._links.values())
        #: Asks the name servers which brokers of the group live.
        self.group = GroupMembers(host, addresses, role, tables.topics, tuple(self._links))
        self._registration: RoleRegistration | None = None
        self._begin: Callable[[], RoleRegistration] = lambda: RoleRegistration(
            host, addresses, tables, role, links, self.masters, self._permission
        )
        self._left = False
        self._is_held = False
        self.group.answered.add(self._group_told)
        tables.topics.changed.add(self._topics_changed)

    def begin(self) -> None:
        """Lets the broker be registered until its present role is over; does nothing where that has
        begun already, it is held back, or there are no name servers."""
        may_begin = not self._left and not self._is_held
        if self._links and self._registration is None and may_begin:
            self._registration = self._begin()
            self._role.scope.on_end(self._end)

    def hold(self) -> None:
        """Keeps the broker from being registered, whatever role it takes, until `release`."""
        self._is_held = True

    def release(self) -> None:
        """Registers the broker in the role that it has."""
        if self._is_held:
            self._is_held = False
            if self._role.role is not Role.ISOLATED:
                self.begin()
                self.register(force=True)

    def hold_from(self, name_server: str) -> None:
        """Sends this name server, one of `namesrvAddr`, no registration until `release_to`."""
        self._links[name_server].is_held = True

    def release_to(self, name_servers: Iterable[str]) -> None:
        """Registers the broker with those of these name servers that were held."""
        held = [link for link in map(self._links.__getitem__, name_servers) if link.is_held]
        for link in held:
            link.is_held = False
        if held and self._registration is not None:
            self._registration.retry(held)

    @property
    def is_held_from_some(self) -> bool:
        """Whether there are name servers that are held."""
        return any(link.is_held for link in self._links.values())

    @property
    def is_begun(self) -> bool:
        """Whether the broker is to be registered in its present role."""
        return self._registration is not None

    def not_registered(self) -> str:
        """Returns why clients cannot find this broker; an empty text while a name server has it
        and answers, and where there are no name servers."""
        if not self._links:
            return ""
        silences = [link.silent_seconds for link in self._links.values() if link.has_broker]
        if not silences:
            return "no name server has taken its registration"
        period = self._config.register_name_server_period / 1000
        silence = min(silences)
        if silence > min(MISSED_REGISTRATIONS * period, LONGEST_SILENCE):
            return f"no name server has answered for {silence:.0f} s"
        return ""

    def when_registered(self, name_server: str) -> Deferred[None]:
        """Fires once the name server of this address, one of `namesrvAddr`, has taken a
        registration."""
        return self._links[name_server].when_registered()

    def register(self, *, force: bool | None = None) -> Deferred[None]:
        """Registers everything; unless forced (None: as `forceRegister` says), only where a name
        server knows another version. Fires when all name servers have answered or failed; never
        fails."""
        if self._registration is None:
            return succeed(None)
        if force is None:
            force = self._config.force_register
        return self._registration.register(force=force)

    @inlineCallbacks
    def members(self) -> Generator[Any, Any, frozenset[tuple[int, str]] | None]:
        """Fires with the ids and addresses of the group's slaves, as the name servers tell that
        know this broker; None where none does."""
        config, own = self._config, self._addresses.broker
        asked = [
            link.members(config.broker_cluster_name, config.broker_name)
            for link in self._links.values()
        ]
        answers = yield DeferredList(asked)
        found = [members for _, members in answers if own in members.values()]
        if not found:
            return None
        return frozenset(
            (broker_id, address)
            for members in found
            for broker_id, address in members.items()
            if address != own and broker_id != MASTER_ID
        )

    def retry(self) -> Deferred[None]:
        """Registers everything with the name servers that could not be reached last time."""
        registration = self._registration
        if registration is None:
            return succeed(None)
        return registration.retry([link for link in self._links.values() if not link.is_reachable])

    def leave(self) -> Deferred[None]:
        """Takes the registration back for good, as `unregister` does."""
        self._left = True
        return self.unregister()

    def unregister(self) -> Deferred[None]:
        """Takes the registration back, until `begin` is called, where this broker was, or may have
        been, registered: another one may have its name, as where the port was taken. Fires when all
        name servers that were told have answered or failed."""
        self._end()
        header = UnRegisterBrokerRequestHeader(
            broker_name=self._config.broker_name,
            broker_addr=self._addresses.broker,
            cluster_name=self._config.broker_cluster_name,
            broker_id=self._role.state.broker_id,
        )
        links = tuple(link for link in self._links.values() if link.may_have_broker)
        for link in links:
            link.has_broker = False
        return tell_all(links, RequestCode.UNREGISTER_BROKER, header, b"", UNREGISTER_TIMEOUT)

    def _permission(self) -> int:
        """Returns what clients may do with this broker: no sends go to a master that cannot store
        them."""
        permitted = self._config.broker_permission
        is_unable = self._role.is_master and self._health.cannot_write
        return permitted & ~permissions.WRITE if is_unable else permitted

    def _end(self) -> None:
        if self._registration is not None:
            self._registration.end()
            self._registration = None
        for link in self._links.values():
            link.is_held = False

    def _lost(self, address: str) -> None:
        if address in self._links:
            self._links[address].lost()

    def _came_back(self, link: NameServerLink) -> None:
        if self._registration is not None:
            self._registration.tell_again(link)

    def _group_told(self, answers: Mapping[str, LivingMembers | None]) -> None:
        """A name server may lose a broker by mistake, and does not tell it."""
        own, registration = self._role.state.broker_id, self._registration
        if registration is None:
            return
        for address, members in answers.items():
            link = self._links[address]
            if members is None:
                continue
            link.heard()
            if own not in members and link.forgot():
                registration.retry([link])

    def _topics_changed(self, topics: Sequence[TopicConfig], kept: Deferred[None]) -> None:
        if self._left:
            return
        changed = {topic.topic_name: topic for topic in topics}

        def register() -> Deferred[None]:
            registration = self._registration
            return succeed(None) if registration is None else registration.register_changed(changed)

        self._announcements.begin(changed, kept, register)
