"""Topics on their way into the file and to the name servers.

Whoever is told that a topic was made, or that its first message is stored, may rely on it, and may
ask a name server for its route at once, as with stock. So these answers wait until the topic is
kept, and then for the registration, for a moment at most: a name server that hangs must not hold up
senders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError

#: Sends an answer; what it returns does not matter.
Reply = Callable[[RemotingCommand], Any]

#: Seconds; well below the 3 s after which stock's producers give up a send.
LIMIT = 1.0


class Announcements:
    """Which topics are being registered, and who waits for that."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._under_way: dict[str, Deferred[RequestError | None]] = {}

    def begin(
        self, topics: Iterable[str], kept: Deferred[None], register: Callable[[], Deferred[Any]]
    ) -> None:
        """`topics` are announced once `kept` has fired and then `register`, whatever with; where
        they cannot be kept, the answers become that refusal."""
        begun: dict[str, Deferred[RequestError | None]] = {name: Deferred() for name in topics}
        self._under_way.update(begun)

        def end(refusal: RequestError | None = None) -> None:
            for name, announced in begun.items():
                if self._under_way.get(name) is announced:
                    del self._under_way[name]
                announced.callback(refusal)
            begun.clear()

        def announce(_: None) -> None:
            registered = register()
            timer = self._clock.callLater(LIMIT, end)

            def registration_ended(_result: Any) -> None:
                if timer.active():
                    timer.cancel()
                    end()

            registered.addBoth(registration_ended)

        def refuse(failure: Failure) -> Failure:
            end(failure.value if isinstance(failure.value, RequestError) else None)
            return failure

        kept.addCallbacks(announce, refuse)

    def under_way(self, topic: str) -> Deferred[RequestError | None] | None:
        """Fires once the name servers know the topic, or with why it is none; None where nothing
        is under way. It is shared: a callback must return what it gets."""
        return self._under_way.get(topic)

    def hold(self, response: RemotingCommand, topic: str) -> RemotingCommand | Deferred[Any]:
        """`response`, once the name servers know the topic: what a handler may return."""
        if self.under_way(topic) is None:
            return response
        held: Deferred[RemotingCommand] = Deferred()
        self.replying(held.callback, topic)(response)
        return held

    def when_announced(self, topics: Iterable[str]) -> Deferred[None] | None:
        """Fires once the name servers know all of the topics, or they turn out to be none; None
        where nothing is under way."""
        waiting = [
            announced
            for announced in map(self._under_way.get, dict.fromkeys(topics))
            if announced is not None
        ]
        if not waiting:
            return None
        done: Deferred[None] = Deferred()
        left = len(waiting)

        def one_less(refusal: RequestError | None) -> RequestError | None:
            nonlocal left
            left -= 1
            if not left:
                done.callback(None)
            return refusal

        for announced in waiting:
            announced.addCallback(one_less)
        return done

    def replying(self, reply: Reply, topic: str) -> Reply:
        """How an answer leaves through `reply`: that of a topic's first messages once name servers
        know it; as a refusal where the topic could not be kept."""
        announced = self._under_way.get(topic)
        if announced is None:
            return reply

        def wait(response: RemotingCommand) -> None:
            def leave(refusal: RequestError | None) -> RequestError | None:
                reply(response if refusal is None else _refused(response, refusal))
                return refusal

            announced.addCallback(leave)

        return wait


def _refused(response: RemotingCommand, refusal: RequestError) -> RemotingCommand:
    """A refusal of the request that `response` would have answered."""
    return RemotingCommand(
        refusal.code,
        remark=refusal.remark,
        opaque=response.opaque,
        flag=response.flag,
        serialization=response.serialization,
    )
