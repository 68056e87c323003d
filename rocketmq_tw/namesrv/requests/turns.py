"""One request of a connection after the other, where an earlier one takes its time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, DeferredLock

from rocketmq_tw.net.interfaces import IPeer


class Turns:
    """What a broker says later must not be taken in before what it said first."""

    def __init__(self) -> None:
        self._busy: dict[IPeer, DeferredLock] = {}

    def is_busy(self, peer: IPeer) -> bool:
        """Whether something of the peer is under way, behind which the next one belongs."""
        return peer in self._busy

    def run(self, peer: IPeer, work: Callable[[], Any]) -> Deferred[Any]:
        """What `work` returns, called once everything before it is over."""
        lock = self._busy.setdefault(peer, DeferredLock())

        def over(result: Any) -> Any:
            if not lock.locked and self._busy.get(peer) is lock:
                del self._busy[peer]
            return result

        return lock.run(work).addBoth(over)
