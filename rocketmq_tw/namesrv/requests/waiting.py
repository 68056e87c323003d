"""Registrations that take their time: one at a time, and few that wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from rocketmq_tw.namesrv.brokers import BrokerKey
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.runtime.fairness import Serial, SerialQueue
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

#: Registrations of one connection that wait; a process with some brokers has one for each.
MAX_WAITING_REGISTRATIONS = 32


@attrs.define(eq=False)
class _Waiting:
    size: int
    done: Deferred[Any] = attrs.field(factory=Deferred)


class WaitingRegistrations:
    """One registration is read and taken in at a time, so that no more than one stands in memory
    as what it inflates to. One connection is served after the other, however many registrations one
    has sent."""

    def __init__(self) -> None:
        self._one = Serial()
        self._waiting: dict[IPeer, dict[BrokerKey, list[_Waiting]]] = {}

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
        the new one does not; a larger one may, since brokers also send single topics. Fails with
        SYSTEM_BUSY for what is given up; raises it where the connection has too many that wait.
        """
        for former in list(self._waiting.get(peer, {}).get(key, ())):
            if former.size <= size:
                former.done.cancel()
        brokers = self._waiting.setdefault(peer, {})
        if sum(map(len, brokers.values())) >= MAX_WAITING_REGISTRATIONS:
            raise RequestError(
                ResponseCode.SYSTEM_BUSY,
                f"{MAX_WAITING_REGISTRATIONS} registrations of this connection wait:"
                " wait for their answers",
            )
        waiting = _Waiting(size)
        brokers.setdefault(key, []).append(waiting)

        def begin() -> Any:
            self._forget(peer, key, waiting)
            return work()

        def given_up(failure: Failure) -> Any:
            failure.trap(CancelledError)
            self._forget(peer, key, waiting)
            raise RequestError(
                ResponseCode.SYSTEM_BUSY,
                f"a newer registration of {key.address} came while this one waited",
            )

        waiting.done = of_peer.run(peer, lambda: self._one.run(begin))
        return waiting.done.addErrback(given_up)

    def alone(self, work: Callable[[], Any]) -> Deferred[Any]:
        """Fires with what `work` returns, called while no other registration is taken in."""
        return self._one.run(work)

    def _forget(self, peer: IPeer, key: BrokerKey, waiting: _Waiting) -> None:
        """Forgets a request that does not wait any more."""
        brokers = self._waiting.get(peer, {})
        if waiting in brokers.get(key, ()):
            brokers[key].remove(waiting)
            if not brokers[key]:
                del brokers[key]
            if not brokers:
                del self._waiting[peer]
