"""Registrations that take their time: one at a time, and few that wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from rocketmq_tw.namesrv.brokers import BrokerKey
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.net.networks import host_of
from rocketmq_tw.runtime.fairness import SerialQueue, SerialRoundRobin
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

#: Registrations of one connection that wait; a process with some brokers has one for each.
MAX_WAITING_REGISTRATIONS = 32


@attrs.define(eq=False)
class _Request:
    size: int
    work: Callable[[], Any]
    answer: Deferred[Any] = attrs.field(factory=Deferred)

    def give_up(self, why: str) -> None:
        """Refuses what need not be taken in any more."""
        self.answer.errback(RequestError(ResponseCode.SYSTEM_BUSY, f"{why} while this one waited"))


@attrs.define(eq=False)
class _Place:
    """A place in the order, and the registration that has it."""

    request: _Request
    #: Fires with what the registration returns that has the place when its turn comes.
    turn: Deferred[Any] = attrs.field(factory=Deferred)
    #: What its broker sent later waits behind it, and is to stay before what comes now.
    is_followed: bool = False


class WaitingRegistrations:
    """One registration is read and taken in at a time, so that no more than one stands in memory
    as what it inflates to. One host is served after the other, however many connections it has and
    registrations it has sent."""

    def __init__(self) -> None:
        self._one = SerialRoundRobin[str]()
        self._waiting: dict[IPeer, dict[BrokerKey, list[_Place]]] = {}
        self._watched: set[IPeer] = set()

    def add(
        self,
        of_peer: SerialQueue[IPeer],
        peer: IPeer,
        key: BrokerKey,
        size: int,
        work: Callable[[], Any],
    ) -> Deferred[Any]:
        """Fires with what `work` returns, called when it is the turn of a registration of `size`
        bytes.

        One of the same broker that waits and is no larger is given up, for it says nothing that
        the new one does not; a larger one may, since brokers also send single topics. The new one
        gets its place: who says all again from time to time would never have a turn otherwise.
        Fails with SYSTEM_BUSY for what is given up, also with its connection; raises it where that
        has too many that wait.
        """
        new, newer = _Request(size, work), f"a newer registration of {key.address} came"
        known = self._waiting.get(peer, {}).get(key, ())
        former = [place for place in known if place.request.size <= size]
        kept = next((place for place in former if not place.is_followed), None)
        for place in former:
            if place is not kept:
                place.turn.cancel()
        if kept is not None:
            replaced, kept.request = kept.request, new
            replaced.give_up(newer)
            return new.answer
        brokers = self._waiting.setdefault(peer, {})
        if sum(map(len, brokers.values())) >= MAX_WAITING_REGISTRATIONS:
            raise RequestError(
                ResponseCode.SYSTEM_BUSY,
                f"{MAX_WAITING_REGISTRATIONS} registrations of this connection wait:"
                " wait for their answers",
            )
        if peer not in self._watched:
            self._watched.add(peer)
            peer.when_lost(self._lost)
        place = _Place(new)
        brokers.setdefault(key, []).append(place)

        def begin() -> Any:
            self._forget(peer, key, place)
            return place.request.work()

        def failed(failure: Failure) -> None:
            if failure.check(CancelledError):
                self._forget(peer, key, place)
                place.request.give_up(newer if peer.connected else "its connection was lost")
            else:
                place.request.answer.errback(failure)

        place.turn = of_peer.run(peer, lambda: self.alone(peer, begin))
        place.turn.addCallbacks(lambda result: place.request.answer.callback(result), failed)
        return new.answer

    def alone(self, peer: IPeer, work: Callable[[], Any]) -> Deferred[Any]:
        """Fires with what `work` of a peer returns, called while no other registration is taken
        in."""
        return self._one.run(host_of(peer.address), work)

    def follow(self, peer: IPeer, key: BrokerKey) -> None:
        """Notes that something else of a broker waits behind its registrations, so that a newer one
        does not get their place."""
        for place in self._waiting.get(peer, {}).get(key, ()):
            place.is_followed = True

    def _lost(self, peer: IPeer) -> None:
        """Gives up what waits of a connection: whoever comes and goes leaves nothing in memory."""
        self._watched.discard(peer)
        for places in list(self._waiting.get(peer, {}).values()):
            for place in list(places):
                place.turn.cancel()

    def _forget(self, peer: IPeer, key: BrokerKey, place: _Place) -> None:
        """Forgets a place of a request that does not wait any more."""
        brokers = self._waiting.get(peer, {})
        if place in brokers.get(key, ()):
            brokers[key].remove(place)
            if not brokers[key]:
                del brokers[key]
            if not brokers:
                del self._waiting[peer]
