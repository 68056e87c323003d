"""The producers and consumers that are connected, by group and by connection.

Clients come with heartbeats (34) and go with unregistrations (35), lost connections, and a scan for
those that are silent. Of groups of consumers whose members change `member_notices.py` is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from twisted.logger import Logger

from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.message.tags import tag_match
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.runtime.listeners import Listeners
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.clients import (
    MAX_GROUPS_PER_PEER,
    ConsumerData,
    ConsumerIdList,
    SubscriptionData,
)
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

BROADCASTING = "BROADCASTING"
#: Groups that one step visits.
_STEP = 1000
#: Bytes that the subscriptions of all groups may take, roughly: 10,000 groups with 100 topics each.
MAX_SUBSCRIPTION_BYTES = 512 * 1024 * 1024

log = Logger()


class Client:
    """One client's connection; `version` is stock's ordinal, `language` a name."""

    __slots__ = ("client_id", "language", "last_update_ms", "peer", "renewed_ms", "version")

    def __init__(self, peer: IPeer, client_id: str, language: str, version: int) -> None:
        self.peer = peer
        self.client_id = client_id
        self.language = language
        self.version = version
        #: The last heartbeat in milliseconds: of the time of day, and of a clock that is never set.
        self.last_update_ms = 0
        self.renewed_ms = 0


class ClientKind(NamedTuple):
    """What a client says of its program; `version` is stock's ordinal."""

    language: str
    version: int


def _kinds(clients: Mapping[IPeer, Client]) -> Iterator[ClientKind]:
    return (ClientKind(client.language, client.version) for client in clients.values())


class ConsumerGroup:
    """The consumers of one group and what they subscribe to. All have to subscribe to the same;
    where they do not, the latest heartbeat counts, as in stock."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.clients: dict[IPeer, Client] = {}
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.consume_type: str | None = None
        self.message_model: str | None = None
        self.consume_from_where: str | None = None
        self.notify_changes = True
        self.fingerprint = 0
        #: Bytes that its subscriptions take in memory, roughly.
        self.size = 0
        self._id_list: bytes | None = None
        #: Topic -> a subscription and what `tag_match` made of it; all its reads share that.
        self._matches: dict[str, tuple[SubscriptionData, Callable[[int], bool] | None]] = {}

    @property
    def is_broadcasting(self) -> bool:
        """Whether each member gets all messages."""
        return self.message_model == BROADCASTING

    def client_ids(self) -> list[str]:
        """Returns the ids of the members, each once."""
        return list(dict.fromkeys(client.client_id for client in self.clients.values()))

    def id_list(self) -> bytes:
        """Returns these ids as the body of an answer to 38. It is encoded once for all that ask
        until the members change: when they do, each of them asks."""
        if self._id_list is None:
            self._id_list = encode_body(ConsumerIdList(consumer_id_list=self.client_ids()))
        return self._id_list

    def enter(self, client: Client) -> None:
        """Adds a member, or gives the connection of one another client id."""
        self.clients[client.peer] = client
        self._id_list = None

    def leave(self, peer: IPeer) -> bool:
        """Removes the member of a connection; returns whether it was one."""
        self._id_list = None
        return self.clients.pop(peer, None) is not None

    def find(self, client_id: str) -> Client | None:
        """Returns the member with an id; None without one."""
        for client in self.clients.values():
            if client.client_id == client_id:
                return client
        return None

    def subscribe(self, wanted: Iterable[SubscriptionData]) -> bool:
        """Takes over the subscriptions of a heartbeat; returns whether a topic was added or
        removed."""
        before = self.subscriptions
        after = {}
        for subscription in wanted:
            known = before.get(subscription.topic)
            if known is None or subscription.sub_version > known.sub_version:
                known = subscription
            after[subscription.topic] = known
        self.subscriptions = after
        self._matches = {
            topic: made for topic, made in self._matches.items() if after.get(topic) is made[0]
        }
        return before.keys() != after.keys()

    def wanted_tags(self, topic: str) -> Callable[[int], bool] | None:
        """Returns a predicate of tags codes for a topic that the group subscribes to; None where
        every message matches."""
        made = self._matches.get(topic)
        if made is None:
            subscription = self.subscriptions[topic]
            match = tag_match(subscription.sub_string, subscription.code_set)
            made = self._matches[topic] = (subscription, match)
        return made[1]


class _Memberships:
    """The groups that one connection takes part in."""

    __slots__ = ("consuming", "producing")

    def __init__(self) -> None:
        self.producing: set[str] = set()
        self.consuming: set[str] = set()


class ClientRegistry:
    """Connected producers and consumers. `now_ms` is the time of day in milliseconds, which may be
    set; whether a client is silent is judged by `elapsed_ms`, which may not. `members_changed` is
    told of each group whose members are to be notified."""

    def __init__(
        self,
        config: BrokerConfig,
        now_ms: Callable[[], int],
        elapsed_ms: Callable[[], int],
        members_changed: Callable[[ConsumerGroup], object],
    ) -> None:
        self._config = config
        self._now_ms = now_ms
        self._elapsed_ms = elapsed_ms
        self._members_changed = members_changed
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[IPeer, Client]] = {}
        #: Client id -> its connections and how many groups each produces for; the newest is last.
        self._producing: dict[str, dict[IPeer, int]] = {}
        self._peers: dict[IPeer, _Memberships] = {}
        self._size = 0
        #: Told of a group with the subscriptions that a heartbeat has in full; with None once the
        #: group's last consumer left.
        self.subscribed: Listeners[str, Sequence[SubscriptionData] | None] = Listeners(
            "a group's subscriptions were told"
        )

    # Look-up

    def consumer_group(self, group: str) -> ConsumerGroup | None:
        """Returns the group while a consumer of it is connected, else None."""
        return self._consumers.get(group)

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """Returns what the group's connected consumers subscribe to in a topic, or None."""
        found = self._consumers.get(group)
        return None if found is None else found.subscriptions.get(topic)

    def add_subscribers(self, topic: str, found: set[str]) -> Iterator[None]:
        """Adds the connected groups that consume a topic to `found`; a step for each thousand
        groups."""
        for number, (name, group) in enumerate(list(self._consumers.items()), 1):
            if topic in group.subscriptions:
                found.add(name)
            if number % _STEP == 0:
                yield

    def producer_groups(self) -> list[str]:
        """Returns the groups with connected producers."""
        return list(self._producers)

    def producers(self, group: str) -> list[Client]:
        """Returns the producers of a group."""
        return list(self._producers.get(group, {}).values())

    def producer_peer(self, client_id: str) -> IPeer | None:
        """Returns the newest connection over which a client is a producer; None where it is not
        one."""
        peers = self._producing.get(client_id)
        return None if peers is None else next(reversed(peers))

    def producer_kinds(self) -> Counter[ClientKind]:
        """Returns how many memberships of producers there are, by language and version; a
        connection counts in each of its groups."""
        return Counter(kind for group in self._producers.values() for kind in _kinds(group))

    def consumer_kinds(self) -> Iterator[tuple[ConsumerGroup, Counter[ClientKind]]]:
        """Yields each group of consumers with the languages and versions of its members; groups
        that come or go meanwhile may be there or not."""
        for group in list(self._consumers.values()):
            yield group, Counter(_kinds(group.clients))

    # Registration

    def register_producer(self, group: str, client: Client) -> None:
        """Adds the client to a group of producers or renews it."""
        member = self._memberships_of(client.peer).producing
        self._check_limit(member, group, client)
        clients = self._producers.setdefault(group, {})
        if client.peer not in clients:
            peers = self._producing.setdefault(client.client_id, {})
            peers[client.peer] = peers.get(client.peer, 0) + 1
        self._renew(clients.setdefault(client.peer, client))
        member.add(group)

    def register_consumer(
        self,
        client: Client,
        data: ConsumerData,
        *,
        notify_changes: bool,
        fingerprint: int = 0,
        without_sub: bool = False,
    ) -> bool:
        """Adds or renews a member of `data.group_name`; returns whether the client should send
        its subscriptions in full again, because others of the group said something else since.

        `without_sub`: the heartbeat leaves the subscriptions out, as they are what it sent before.
        """
        name = data.group_name
        member = self._memberships_of(client.peer).consuming
        self._check_limit(member, name, client)
        group = self._consumers.get(name) or ConsumerGroup(name)
        if not without_sub:
            self._make_room(group, data.subscription_data_set)
        self._consumers[name] = group
        resend = group.fingerprint not in (0, fingerprint) or (
            without_sub and not group.subscriptions
        )
        group.fingerprint = fingerprint
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        group.notify_changes = notify_changes
        member.add(name)
        changed = self._add_or_renew(group, client)
        if not without_sub:
            changed = group.subscribe(data.subscription_data_set) or changed
            self.subscribed.tell(name, data.subscription_data_set)
        if changed:
            log.info(
                "client {client} joined group {group!r}, or changed what that reads",
                client=client.client_id,
                group=name,
            )
            self._notify(group)
        return resend

    # Unregistration

    def unregister_producer(self, group: str, peer: IPeer) -> None:
        """Removes a producer from a group."""
        member = self._peers.get(peer)
        if member is not None:
            member.producing.discard(group)
        self._drop_producer(group, peer)

    def unregister_consumer(self, group: str, peer: IPeer) -> None:
        """Removes a consumer from a group and notifies the others."""
        member = self._peers.get(peer)
        if member is not None:
            member.consuming.discard(group)
        self._drop_consumer(group, peer)

    def peer_lost(self, peer: IPeer) -> None:
        """Removes all memberships of a connection that is lost."""
        member = self._peers.pop(peer, None)
        if member is None:
            return
        for group in member.producing:
            self._drop_producer(group, peer)
        for group in member.consuming:
            self._drop_consumer(group, peer)

    def expire(self) -> Iterator[None]:
        """Closes connections without heartbeats for `channelExpiredTimeout` milliseconds; a step
        for each, between which clients may come and go."""
        oldest = self._elapsed_ms() - self._config.channel_expired_timeout
        for peer in list(self._peers):
            member = self._peers.get(peer)
            if member is not None and any(
                client.renewed_ms < oldest for client in self._clients_of(peer, member)
            ):
                peer.close("its client sends no heartbeats any more")
                self.peer_lost(peer)
            yield

    def _clients_of(self, peer: IPeer, member: _Memberships) -> Iterator[Client]:
        """Yields the memberships of one connection."""
        for name in member.producing:
            yield self._producers[name][peer]
        for name in member.consuming:
            yield self._consumers[name].clients[peer]

    def _memberships_of(self, peer: IPeer) -> _Memberships:
        member = self._peers.get(peer)
        if member is None:
            member = self._peers[peer] = _Memberships()
            peer.when_lost(self.peer_lost)
        return member

    def _check_limit(self, member: set[str], group: str, client: Client) -> None:
        if group not in member and len(member) >= MAX_GROUPS_PER_PEER:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"client {client.client_id} is in {len(member)} groups:"
                " use further instances for more",
            )

    def _make_room(self, group: ConsumerGroup, wanted: Iterable[SubscriptionData]) -> None:
        size = sum(map(_size_of, wanted))
        grown = size - group.size
        if grown > 0 and self._size + grown > MAX_SUBSCRIPTION_BYTES:
            raise RequestError(
                ResponseCode.SYSTEM_BUSY,
                f"the subscriptions of all groups take {self._size} bytes: subscribe to less",
            )
        group.size = size
        self._size += grown

    def _add_or_renew(self, group: ConsumerGroup, client: Client) -> bool:
        """Renews the connection's membership; returns whether it or its client id is new."""
        known = group.clients.get(client.peer)
        if known is not None and known.client_id == client.client_id:
            self._renew(known)
            return False
        self._renew(client)
        group.enter(client)
        return True

    def _renew(self, client: Client) -> None:
        client.last_update_ms = self._now_ms()
        client.renewed_ms = self._elapsed_ms()

    def _drop_producer(self, group: str, peer: IPeer) -> None:
        clients = self._producers.get(group)
        client = None if clients is None else clients.pop(peer, None)
        if clients is None or client is None:
            return
        if not clients:
            del self._producers[group]
        peers = self._producing[client.client_id]
        peers[peer] -= 1
        if not peers[peer]:
            del peers[peer]
        if not peers:
            del self._producing[client.client_id]

    def _drop_consumer(self, name: str, peer: IPeer) -> None:
        group = self._consumers.get(name)
        if group is None or not group.leave(peer):
            return
        log.info("the client at {peer} left group {group!r}", peer=peer.address, group=name)
        if not group.clients:
            del self._consumers[name]
            self._size -= group.size
            self.subscribed.tell(name, None)
        else:
            self._notify(group)

    def _notify(self, group: ConsumerGroup) -> None:
        if (
            not self._config.notify_consumer_ids_changed_enable
            or not group.notify_changes
            or group.is_broadcasting
        ):
            return
        self._members_changed(group)


def _size_of(subscription: SubscriptionData) -> int:
    return (
        512
        + len(subscription.topic)
        + len(subscription.sub_string or "")
        + sum(64 + len(tag) for tag in subscription.tags_set)
        + 40 * len(subscription.code_set)
    )
