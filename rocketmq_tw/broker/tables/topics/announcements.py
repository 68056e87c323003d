"""Answers that wait until a topic is in the file and registered with the name servers.

A client that is told that a topic was made, or that its first message is stored, may ask a name
server for the route at once, as with stock. So these answers wait until the topic is written, and
then for the registration, at most `ANNOUNCEMENT_SECONDS`: a name server that hangs must not hold up
senders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from rocketmq_tw.runtime.alarm import Alarm
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError

#: Sends an answer; what it returns does not matter.
Reply = Callable[[RemotingCommand], Any]

#: Seconds; well below the 3 s after which stock's producers give up a send.
ANNOUNCEMENT_SECONDS = 1.0


class Announcements:
    """The topics that are being registered, and the answers that wait for that."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._under_way: dict[str, Deferred[RequestError | None]] = {}

    def begin(
        self, topics: Iterable[str], written: Deferred[None], register: Callable[[], Deferred[Any]]
    ) -> None:
        """Announces `topics`: once `written` has fired, `register` is called; they are announced
        once its Deferred fires or fails, or `ANNOUNCEMENT_SECONDS` are over. Where they cannot be
        written, the answers that wait become that refusal."""
        begun: dict[str, Deferred[RequestError | None]] = {name: Deferred() for name in topics}
        self._under_way.update(begun)

        def end(refusal: RequestError | None = None) -> None:
            for name, announced in begun.items():
                if self._under_way.get(name) is announced:
                    del self._under_way[name]
                announced.callback(refusal)
            begun.clear()

        limit = Alarm(self._clock, end)

        def announce(_: None) -> None:
            registered = register()
            limit.set(ANNOUNCEMENT_SECONDS)
            registered.addBoth(registration_ended)

        def registration_ended(_result: Any) -> None:
            if limit.is_set:
                limit.cancel()
                end()

        def refuse(failure: Failure) -> Failure:
            end(failure.value if isinstance(failure.value, RequestError) else None)
            return failure

        written.addCallbacks(announce, refuse)

    def under_way(self, topic: str) -> Deferred[RequestError | None] | None:
        """Fires with None once the topic is announced, or with why it could not be made; returns
        None where it is not being announced. It is shared: a callback must return what it gets."""
        return self._under_way.get(topic)

    def hold(self, response: RemotingCommand, topic: str) -> RemotingCommand | Deferred[Any]:
        """Returns `response`, or what fires with it once the topic is announced, or with a refusal
        where it could not be made: what a handler may return."""
        if self.under_way(topic) is None:
            return response
        held: Deferred[RemotingCommand] = Deferred()
        self.replying(held.callback, topic)(response)
        return held

    def when_announced(self, topics: Iterable[str]) -> Deferred[None] | None:
        """Fires once all of the topics are announced or could not be made; returns None where none
        is being announced."""
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
        """Returns what sends an answer through `reply` once the topic is announced, or a refusal in
        its place where the topic could not be made."""
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
    """Returns a refusal of the request that `response` would have answered."""
    return RemotingCommand(
        refusal.code,
        remark=refusal.remark,
        opaque=response.opaque,
        flag=response.flag,
        serialization=response.serialization,
    )
