"""A master that stops lets its slaves copy its tables first: one of them may be made the master by
hand, and what changed since its last copy would be gone.

Stock has no word for that. Our slaves ask their master with a 906 that has a field of ours, which
stock's masters answer at once. Ours answer it when they stop; the slave copies, and asks again to
say that it has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.net.host_shares import HostShares
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.net.networks import host_of
from rocketmq_tw.runtime.alarm import Alarm
from rocketmq_tw.runtime.scope import Scope
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.broker import (
    ExchangeHAInfoRequestHeader,
    ExchangeHAInfoResponseHeader,
)

#: Seconds that the slaves get to copy before a master stops.
LAST_COPY_SECONDS = 3.0
#: Slaves that are told, of all hosts and of one; more get no word. Anybody may ask.
_MAX_SLAVES, _MAX_OF_A_HOST = 100, 10

log = Logger()


class StopNotices:
    """The slaves that asked this master to be told before it stops."""

    def __init__(self, clock: IReactorTime) -> None:
        #: Each slave's request, and what it is answered through.
        self._waiting: dict[IPeer, tuple[RemotingCommand, Deferred[RemotingCommand]]] = {}
        #: How many of them each host has.
        self._of_host = HostShares()
        #: Connections that asked and are not lost yet.
        self._watched: set[IPeer] = set()
        #: Slaves that were told and copy now.
        self._copying: set[IPeer] = set()
        self._stopping: Deferred[None] | None = None
        self._limit = Alarm(clock, self._go_on)

    def asked(self, usual: Handler) -> Handler:
        """Returns a handler of 906 that answers slaves that ask for word of the stop, and leaves
        the others to `usual`."""

        def handle(request: RemotingCommand, peer: IPeer) -> Any:
            if not request.header(ExchangeHAInfoRequestHeader).until_stop:
                return usual(request, peer)
            return self.ask(request, peer)

        return handle

    def ask(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Answers a slave that has copied all by now: when the master stops, or at once where it
        does already or too many wait."""
        self._answer(peer)
        if self._stopping is not None:
            self._copied(peer)
            return request.response()
        host = host_of(peer.address)
        is_full = len(self._waiting) >= _MAX_SLAVES or self._of_host.of(host) >= _MAX_OF_A_HOST
        if is_full or not peer.connected:
            return request.response()
        answered: Deferred[RemotingCommand] = Deferred()
        self._waiting[peer] = request, answered
        self._of_host.add(host)
        if peer not in self._watched:
            self._watched.add(peer)
            peer.when_lost(self._lost)
        return answered

    def stop(self) -> Deferred[None]:
        """Tells all slaves that wait; fires once they have copied or are gone, or
        `LAST_COPY_SECONDS` have passed."""
        if not self._waiting or self._stopping is not None:
            return succeed(None)
        self._stopping = stopping = Deferred[None]()
        self._copying = set(self._waiting)
        self._limit.set(LAST_COPY_SECONDS)
        for peer in list(self._waiting):
            self._answer(peer, stops=True)
        return stopping

    def end(self) -> None:
        """Answers all that wait: the broker is no master any more."""
        for peer in list(self._waiting):
            self._answer(peer)
        self._go_on()

    def _answer(self, peer: IPeer, *, stops: bool | None = None) -> None:
        waiting = self._waiting.pop(peer, None)
        if waiting is not None:
            self._of_host.remove(host_of(peer.address))
            request, answered = waiting
            answered.callback(request.response(header=ExchangeHAInfoResponseHeader(stops=stops)))

    def _lost(self, peer: IPeer) -> None:
        self._watched.discard(peer)
        self._answer(peer)
        self._copied(peer)

    def _copied(self, peer: IPeer) -> None:
        self._copying.discard(peer)
        if not self._copying:
            self._go_on()

    def _go_on(self) -> None:
        self._limit.cancel()
        stopping, self._stopping = self._stopping, None
        if stopping is not None:
            stopping.callback(None)


class StopWatch:
    """Has a slave's master tell before it stops, and calls `copy` then. `ask(address)` asks the
    master there and fires with whether it stops; all of it ends with `scope`."""

    def __init__(
        self, ask: Callable[[str], Deferred[bool]], copy: Callable[[], object], scope: Scope
    ) -> None:
        self._ask = ask
        self._copy = copy
        self._scope = scope
        #: The master that was asked and has not answered.
        self._address = ""
        self._give_up: Callable[[], None] = lambda: None

    def copied(self, address: str) -> None:
        """Takes that all was copied from the master at `address`: asks it, unless it was asked and
        has not answered."""
        if self._scope.is_over or address == self._address:
            return
        self._give_up()
        self._address = address
        asked = self._ask(address)
        self._give_up = asked.cancel
        forget = self._scope.on_end(asked.cancel)

        def answered(result: bool | Failure) -> None:
            forget()
            self._address = ""
            if isinstance(result, Failure):
                # It is gone, or is asked behind the next copy.
                result.trap(RemotingError, RequestError, CancelledError)
            elif result and not self._scope.is_over:
                log.info("the master {address} stops: copying once more", address=address)
                self._copy()

        asked.addBoth(answered).addErrback(
            lambda failure: log.failure("asking the master to tell of its stop failed", failure)
        )
