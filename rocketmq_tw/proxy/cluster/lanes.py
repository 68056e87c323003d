"""Lanes: connections to brokers, on each of which a group has one client at most.

A broker knows the clients of a group by their connections. One over which two of them register
shows the second only, with stock's brokers as with ours. So the clients of a group stand on lanes
of their own, while clients of other groups share these: there are as many lanes as the largest
group has clients here.
"""

from __future__ import annotations

from collections.abc import Iterable

from rocketmq_tw.proxy.brokers import IProxyClient
from rocketmq_tw.proxy.memberships import Addressee, Membership


class Place:
    """Where a client stands, and in which groups."""

    def __init__(self, lane: int) -> None:
        self.lane = lane
        self.memberships: set[Membership] = set()
        #: Brokers that know it.
        self.brokers: set[str] = set()


class Lanes:
    """The lanes and the clients on them. Where all `limit` lanes have a client of a group, further
    ones of it share the last lane, on which brokers see the one that registered last."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._members: list[dict[Membership, IProxyClient]] = []
        #: Lane -> client id -> client.
        self._ids: list[dict[str, IProxyClient]] = []
        self._places: dict[IProxyClient, Place] = {}

    def __len__(self) -> int:
        return len(self._members)

    def place(self, client: IProxyClient) -> Place | None:
        """Returns where a client stands; None where it is in no group."""
        return self._places.get(client)

    def enter(self, client: IProxyClient, memberships: Iterable[Membership]) -> Place | None:
        """Puts a client into groups, on a lane where it is alone in them. Returns its former place
        where it had to leave that one, for another lane: brokers are to forget it there."""
        wanted = set(memberships)
        place = self._places.get(client)
        if place is not None and self._is_free(place.lane, wanted, client):
            self._put(client, place, wanted)
            return None
        if place is not None:
            wanted |= place.memberships
            self.remove(client)
        self._put(client, Place(self._free_lane(wanted, client)), wanted)
        return place

    def leave(self, client: IProxyClient, memberships: Iterable[Membership]) -> None:
        """Takes a client out of groups."""
        place = self._places.get(client)
        if place is None:
            return
        members = self._members[place.lane]
        for membership in memberships:
            place.memberships.discard(membership)
            if members.get(membership) is client:
                del members[membership]

    def remove(self, client: IProxyClient) -> Place | None:
        """Removes a client; returns where it stood."""
        place = self._places.pop(client, None)
        if place is None:
            return None
        members, ids = self._members[place.lane], self._ids[place.lane]
        for membership in place.memberships:
            if members.get(membership) is client:
                del members[membership]
        if ids.get(client.client_id) is client:
            del ids[client.client_id]
        return place

    def find(self, lane: int, addressee: Addressee) -> IProxyClient | None:
        """Returns whom a request is for that a broker sent over a lane; None where there is no such
        client."""
        if lane >= len(self._members):
            return None
        if addressee.client_id is not None:
            client = self._ids[lane].get(addressee.client_id)
            if client is not None:
                return client
        membership = addressee.membership
        return None if membership is None else self._members[lane].get(membership)

    def _is_free(self, lane: int, wanted: set[Membership], client: IProxyClient) -> bool:
        members = self._members[lane]
        return all(members.get(membership) in (None, client) for membership in wanted)

    def _free_lane(self, wanted: set[Membership], client: IProxyClient) -> int:
        for lane in range(len(self._members)):
            if self._is_free(lane, wanted, client):
                return lane
        if len(self._members) < self._limit:
            self._members.append({})
            self._ids.append({})
        return len(self._members) - 1

    def _put(self, client: IProxyClient, place: Place, wanted: set[Membership]) -> None:
        self._places[client] = place
        place.memberships |= wanted
        self._ids[place.lane][client.client_id] = client
        self._members[place.lane].update(dict.fromkeys(wanted, client))
