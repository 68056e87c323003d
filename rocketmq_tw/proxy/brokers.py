"""The cluster behind a proxy, as its services see it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import attrs
from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

from rocketmq_tw.client.commands import read_send
from rocketmq_tw.client.message import SendResult
from rocketmq_tw.client.preparing import Prepared, send_command
from rocketmq_tw.message.model import TRANSACTION_PREPARED
from rocketmq_tw.proxy.memberships import Membership
from rocketmq_tw.runtime.listeners import Listeners
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.bodies.route import TopicRouteData
from rocketmq_tw.wire.command import RemotingCommand

#: Seconds for which it is remembered that there is no such topic or group: it may be made at any
#: time.
ABSENT_SECONDS = 1.0


class Outgoing(NamedTuple):
    """Messages of one topic that passed all checks but that of its type: `types` are theirs,
    `group` the message group of all; empty without. `born_timestamp` is in ms. `properties` say
    what the text in `prepared` says where it is one plain message; None for what a broker has to
    look at: a batch, a half message, one that waits for a time."""

    prepared: Prepared
    ids: Sequence[str]
    types: frozenset[str]
    group: str
    born_timestamp: int
    properties: dict[str, str] | None

    @property
    def is_half(self) -> bool:
        """Whether it waits for the decision about its transaction."""
        return bool(self.prepared.sys_flag & TRANSACTION_PREPARED)


class IProxyClient(Interface):
    """A client of the proxy, for which it asks brokers."""

    client_id: str = Attribute("The id that the client gave itself.")
    address: str = Attribute("`host:port` of the client.")

    def ask(request: RemotingCommand, timeout: float) -> Deferred[RemotingCommand]:
        """Hands on a request of a broker (39, 40, 220, 221, 307, 309, 326) to the client. Fires
        with its answer, for a oneway request with `request.response()` once it is sent; fails with
        `RequestError` where the client cannot be asked."""


class IBrokers(Interface):
    """Asks name servers and brokers. In local mode the proxy's own broker is called in the
    process, all others over the network; in cluster mode all are asked over the network."""

    def route(
        topic: str, absent_seconds: float = ABSENT_SECONDS
    ) -> Deferred[TopicRouteData | None]:
        """Fires with the route of a topic, from memory where it is fresh; None where it has none.
        That it has none may have been told so many seconds ago, with 0 name servers are asked.
        Fails with `RequestError` (SYSTEM_ERROR) where none of them answers."""

    def known_route(topic: str) -> TopicRouteData | None:
        """Returns the route of a topic where it is in memory; None where `route` has to be asked,
        which takes longer even where it knows the route."""

    def refresh_route(topic: str) -> Deferred[TopicRouteData | None]:
        """Fires with the route as name servers have it now, as where a broker could not be
        reached."""

    def ask(
        broker_name: str,
        request: RemotingCommand,
        timeout: float,
        client: IProxyClient | None = None,
    ) -> Deferred[RemotingCommand]:
        """Asks the broker of a name that serves: its master, or who acts for it. Fires with the
        answer, whatever its code; fails with `RemotingError` where the broker cannot be reached or
        does not answer within `timeout` seconds.

        `client` is whom the request comes from. Brokers know a client by its connection, so what
        has a `client` that entered groups reaches the broker over a connection on which no other
        client of these is known, and what the broker asks of them there is handed on to the client.
        A heartbeat (34) of one that is `unseen` comes there without those groups.
        """

    def send(queue: MessageQueue, outgoing: Outgoing, timeout: float) -> Deferred[SendResult]:
        """Sends to the queue; its topic stands for the group of a producer. A broker of this
        process keeps the properties of a plain message. Fires with where it is stored; fails as
        `ask` does, and with `BrokerError` where it is refused."""

    def withdraw(request: RemotingCommand, client: IProxyClient | None = None) -> bool:
        """Has a pop (200050) that was asked for `client` be held no more, where its broker is in
        this process; returns whether it was. Then `ask` fires soon with what was popped by now, or
        with POLLING_TIMEOUT. Brokers that are asked over the network hold it on."""

    def tell(
        broker_name: str, request: RemotingCommand, client: IProxyClient | None = None
    ) -> Deferred[None]:
        """Sends a oneway request; never fails."""

    def enter(
        client: IProxyClient,
        memberships: Collection[Membership],
        broker_names: Collection[str] | None = None,
    ) -> None:
        """Has a client be in these groups and no others, before brokers are asked to register it
        (34); those that know it are told of groups that it left. `broker_names` are all that are
        asked: others that know it are to forget it; without them none is. Raises `RequestError`
        where there is no room for the client."""

    def leave(client: IProxyClient, memberships: Collection[Membership]) -> None:
        """Takes a client out of groups, as far as it is in them, and tells the brokers that know it
        (35)."""

    def forget(client: IProxyClient) -> None:
        """Has brokers forget a client, which is gone."""

    unseen_changed: Listeners[str] = Attribute("Told of a group whose `unseen` are others now.")

    def unseen(group: str) -> Collection[IProxyClient]:
        """Returns the consumers of a group that entered it and are not shown to brokers: one that
        registered for more than there are connections would take the place of another one."""

    def names() -> Sequence[str]:
        """Returns the names of all brokers of the cluster that are known."""

    def are_told() -> bool:
        """Returns whether name servers have told which brokers there are: until then one that is
        not known may well be there."""


def send_by_request(
    brokers: IBrokers, queue: MessageQueue, outgoing: Outgoing, timeout: float
) -> Deferred[SendResult]:
    """Sends as `IBrokers.send` does, by a request that the broker is asked."""
    prepared = outgoing.prepared
    command = send_command(prepared, prepared.topic, queue, outgoing.born_timestamp)
    asked = brokers.ask(queue.broker_name, command, timeout)
    return asked.addCallback(_sent, queue, prepared)


def _sent(answer: RemotingCommand, queue: MessageQueue, prepared: Prepared) -> SendResult:
    return read_send(queue.broker_name, answer, prepared, queue)


def unseen_groups(brokers: IBrokers, client: IProxyClient, groups: Iterable[str]) -> set[str]:
    """Returns those of the groups that a client consumes in that brokers do not see it in."""
    return {group for group in groups if client in brokers.unseen(group)}


@attrs.frozen
class Endpoint:
    """Where clients reach a proxy."""

    host: str
    port: int
