"""Lanes: connections to brokers, on each of which a group has one client at most.

A broker knows the clients of a group by their connections. One over which two of them register
shows the second only, with stock's brokers as with ours. So the clients of a group stand on lanes
of their own, while clients of other groups share these: there are as many lanes as the largest
group has clients here. Where there may be no more lanes, brokers see one of those that share the
last one, and not the others: each that registered would take the place of the one before.

A broker closes a connection that is silent about one of its groups, and all clients of the lane
lose their requests then. So brokers are to be told of each group that has nobody on a lane any
more: a `Departure`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

import attrs

from rocketmq_tw.net.host_shares import HostShares
from rocketmq_tw.net.networks import host_of
from rocketmq_tw.proxy.brokers import IProxyClient
from rocketmq_tw.proxy.memberships import Addressee, Membership
from rocketmq_tw.runtime.listeners import Listeners
from rocketmq_tw.wire.bodies.clients import MAX_GROUPS_PER_PEER
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

#: Groups of all clients together.
MAX_MEMBERSHIPS = 500_000

_NOBODY: dict[IProxyClient, None] = {}


class LanePlace:
    """Where a client of a host stands, under which id, and in which groups."""

    def __init__(self, lane: int, client_id: str, host: str) -> None:
        self.lane = lane
        self.client_id = client_id
        self.host = host
        self.memberships: set[Membership] = set()
        #: Brokers that know it.
        self.brokers: set[str] = set()


@attrs.frozen
class Departure:
    """Groups that brokers are to forget a client in, on a lane where nobody else is in them."""

    client_id: str
    lane: int
    memberships: Collection[Membership]
    brokers: Collection[str]


class Lanes:
    """The lanes and the clients on them. Where all `limit` lanes have a client of a group, further
    ones of it share the last lane, on which brokers see the first of them until it leaves.

    Where there is no room for a client, the largest ones of the host that is in most groups give
    way, unless the client's own would be in as many then."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._members: list[dict[Membership, IProxyClient]] = []
        #: Lane -> client id -> client.
        self._ids: list[dict[str, IProxyClient]] = []
        self._places: dict[IProxyClient, LanePlace] = {}
        #: The memberships of all clients; those on each lane that brokers see.
        self._shares = HostShares()
        self._seen: list[HostShares] = []
        #: Those that brokers do not see, in order.
        self._unseen: dict[Membership, dict[IProxyClient, None]] = {}
        #: Told of a membership that brokers do not see others in, or see them in now.
        self.unseen_changed: Listeners[Membership] = Listeners("brokers see other clients")

    def __len__(self) -> int:
        return len(self._members)

    def place(self, client: IProxyClient) -> LanePlace | None:
        """Returns where a client stands; None where it is in no group."""
        return self._places.get(client)

    def unseen(self, membership: Membership) -> Collection[IProxyClient]:
        """Returns the clients of a group that brokers do not see."""
        return self._unseen.get(membership, _NOBODY).keys()

    def unseen_in(self, client: IProxyClient) -> Collection[Membership]:
        """Returns the groups that brokers do not see a client in."""
        place = self._places.get(client)
        if place is None or not self._unseen:
            return frozenset()
        return {each for each in place.memberships if client in self.unseen(each)}

    def has_member(self, lane: int, membership: Membership, broker_name: str) -> bool:
        """Returns whether a group has a client on a lane that a broker knows there."""
        client = self._members[lane].get(membership)
        return client is not None and broker_name in self._places[client].brokers

    def enter(
        self,
        client: IProxyClient,
        memberships: Iterable[Membership],
        broker_names: Collection[str] | None = None,
    ) -> list[Departure]:
        """Has a client be in these groups and no others, on a lane where it is alone in them, and
        be known to no other brokers than these; without `broker_names` to all that know it. Returns
        what they are to forget. Raises `RequestError` where there is no room; then the client is
        where it was."""
        wanted = set(memberships)
        _check_number(client, wanted)
        place = self._places.get(client)
        grown = len(wanted) - (0 if place is None else len(place.memberships))
        excess = max(0, self._shares.total + grown - MAX_MEMBERSHIPS) if grown > 0 else 0
        departures: list[Departure | None] = []
        lane: int | None = None
        if not excess:
            stays = place is not None and self._is_free(place.lane, wanted, client)
            lane = place.lane if place is not None and stays else self._free_lane(wanted, client)
        if place is not None and place.lane == lane:
            departures.append(self._leave(client, place, place.memberships - wanted))
            departures.append(self._forget_elsewhere(client, place, broker_names))
            self._put(client, place, wanted)
        else:
            if lane is None:
                lane, victims = self._make_room(client, wanted, excess)
                departures += map(self.remove, victims)
            departures.append(self.remove(client))
            self._put(client, LanePlace(lane, client.client_id, host_of(client.address)), wanted)
        return [departure for departure in departures if departure is not None]

    def leave(self, client: IProxyClient, memberships: Iterable[Membership]) -> Departure | None:
        """Takes a client out of groups, as far as it is in them; returns those."""
        place = self._places.get(client)
        if place is None:
            return None
        return self._leave(client, place, place.memberships.intersection(memberships))

    def remove(self, client: IProxyClient) -> Departure | None:
        """Removes a client; returns the groups that it was in."""
        place = self._places.pop(client, None)
        if place is None:
            return None
        departure = self._leave(client, place, set(place.memberships))
        self._drop_id(client, place)
        return departure

    def find(self, lane: int, addressee: Addressee) -> IProxyClient | None:
        """Returns whom a request is for that a broker sent over a lane: the client with the id, a
        member of the group, where the request names them. None where there is no such client."""
        if lane >= len(self._members):
            return None
        membership, client_id = addressee
        if client_id is None:
            return None if membership is None else self._members[lane].get(membership)
        client = self._ids[lane].get(client_id)
        if client is None or (
            membership is not None and membership not in self._places[client].memberships
        ):
            return None
        return client

    def _make_room(
        self, client: IProxyClient, wanted: set[Membership], excess: int
    ) -> tuple[int, list[IProxyClient]]:
        """Returns a lane, and the clients on it that give way to `client`, so that all together are
        in `excess` groups less. Raises `RequestError` where none has to."""
        host = self._shares.giving_way(host_of(client.address), len(wanted))
        if host is not None:
            lane = max(range(len(self._members)), key=lambda each: self._seen[each].of(host))
            crowd = len(self._members[lane]) + len(wanted) - MAX_GROUPS_PER_PEER
            number = max(excess, crowd)
            if number <= self._seen[lane].of(host):
                return lane, self._largest(lane, host, number)
        if excess:
            reason = f"the clients of this proxy are in {self._shares.total} groups"
        else:
            reason = (
                f"the {self._limit} connections to each broker (maxConnectionsPerBroker) have as"
                " many groups as brokers take"
            )
        raise RequestError(ResponseCode.SYSTEM_BUSY, f"{reason}: use another proxy")

    def _largest(self, lane: int, host: str, number: int) -> list[IProxyClient]:
        """Returns clients of a host that brokers see in so many groups on a lane, or in more."""
        members = self._members[lane]
        seen = Counter(each for each in members.values() if self._places[each].host == host)
        found = []
        for client, count in seen.most_common():
            if number <= 0:
                break
            found.append(client)
            number -= count
        return found

    def _is_free(self, lane: int, wanted: set[Membership], client: IProxyClient) -> bool:
        """Returns whether there is room on a lane, and nobody else of these groups or with the
        client's id."""
        members = self._members[lane]
        if self._ids[lane].get(client.client_id) not in (None, client):
            return False
        known = self._places.get(client)
        own = len(known.memberships) if known is not None and known.lane == lane else 0
        if len(members) - own + len(wanted) > MAX_GROUPS_PER_PEER:
            return False
        return all(members.get(membership) in (None, client) for membership in wanted)

    def _free_lane(self, wanted: set[Membership], client: IProxyClient) -> int | None:
        """Returns a lane that has room for these groups; None where there is none."""
        for lane in range(len(self._members)):
            if self._is_free(lane, wanted, client):
                return lane
        if len(self._members) < self._limit:
            self._members.append({})
            self._ids.append({})
            self._seen.append(HostShares())
        last = len(self._members) - 1
        if len(self._members[last].keys() | wanted) > MAX_GROUPS_PER_PEER:
            return None
        return last

    def _put(self, client: IProxyClient, place: LanePlace, wanted: set[Membership]) -> None:
        self._places[client] = place
        self._shares.remove(place.host, len(place.memberships))
        self._shares.add(place.host, len(wanted))
        place.memberships = wanted
        self._drop_id(client, place)
        place.client_id = client.client_id
        self._ids[place.lane][client.client_id] = client
        members, gained = self._members[place.lane], 0
        for membership in wanted:
            if membership not in members:
                members[membership] = client
                gained += 1
            self._note(client, membership, is_unseen=members[membership] is not client)
        self._seen[place.lane].add(place.host, gained)

    def _note(self, client: IProxyClient, membership: Membership, *, is_unseen: bool) -> None:
        """Notes whether brokers do not see a client in a group that it is in."""
        if (client in self.unseen(membership)) is is_unseen:
            return
        unseen = self._unseen.setdefault(membership, {})
        if is_unseen:
            unseen[client] = None
        else:
            del unseen[client]
        if not unseen:
            del self._unseen[membership]
        self.unseen_changed.tell(membership)

    def _drop_id(self, client: IProxyClient, place: LanePlace) -> None:
        ids = self._ids[place.lane]
        if ids.get(place.client_id) is client:
            del ids[place.client_id]

    def _forget_elsewhere(
        self, client: IProxyClient, place: LanePlace, broker_names: Collection[str] | None
    ) -> Departure | None:
        gone = set() if broker_names is None else place.brokers.difference(broker_names)
        place.brokers -= gone
        members = self._members[place.lane]
        own = [each for each in place.memberships if members.get(each) is client]
        return Departure(place.client_id, place.lane, own, gone) if own and gone else None

    def _leave(
        self, client: IProxyClient, place: LanePlace, memberships: Collection[Membership]
    ) -> Departure | None:
        members = self._members[place.lane]
        # Where others of a group share the lane, brokers know one of them there.
        own = [membership for membership in memberships if members.get(membership) is client]
        for membership in own:
            del members[membership]
        for membership in memberships:
            self._note(client, membership, is_unseen=False)
        self._seen[place.lane].remove(place.host, len(own))
        place.memberships = place.memberships.difference(memberships)
        self._shares.remove(place.host, len(memberships))
        if not own or not place.brokers:
            return None
        return Departure(place.client_id, place.lane, own, frozenset(place.brokers))


def _check_number(client: IProxyClient, wanted: Collection[Membership]) -> None:
    """Raises `RequestError` where a client is in more groups than brokers take of one."""
    if len(wanted) > MAX_GROUPS_PER_PEER:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"client {client.client_id} is in {len(wanted)} groups, or produces to as many"
            f" topics; {MAX_GROUPS_PER_PEER} are the limit: use further instances for more",
        )
