"""Topics on their way to the name servers.

Whoever is told that a topic was made, or that its first message is stored, may ask a name server
for its route at once, as with stock. So these answers wait for the registration, for a moment at
most: a name server that hangs must not hold up senders.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.wire.command import RemotingCommand

#: Seconds; well below the 3 s after which stock's producers give up a send.
LIMIT = 1.0


class Announcements:
    """Which topics are being registered, and who waits for that."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._under_way: dict[str, Deferred[None]] = {}

    def begin(self, topics: Iterable[str], registered: Deferred[Any]) -> None:
        """`topics` are announced once `registered` has fired, whatever with."""
        begun: dict[str, Deferred[None]] = {name: Deferred() for name in topics}
        self._under_way.update(begun)

        def end() -> None:
            for name, announced in begun.items():
                if self._under_way.get(name) is announced:
                    del self._under_way[name]
                announced.callback(None)
            begun.clear()

        timer = self._clock.callLater(LIMIT, end)

        def registration_ended(_result: Any) -> None:
            if timer.active():
                timer.cancel()
                end()

        registered.addBoth(registration_ended)

    def under_way(self, topic: str) -> Deferred[None] | None:
        """Fires once the name servers know the topic; None where nothing is under way. It is
        shared: a callback must return None."""
        return self._under_way.get(topic)

    def hold(self, response: RemotingCommand, topic: str) -> RemotingCommand | Deferred[Any]:
        """`response`, once the name servers know the topic: what a handler may return."""
        announced = self.under_way(topic)
        if announced is None:
            return response
        held: Deferred[RemotingCommand] = Deferred()
        announced.addCallback(lambda _: held.callback(response))
        return held
