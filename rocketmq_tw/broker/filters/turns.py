"""Each turn of the reactor makes and asks few slow expressions.

One of 8,192 characters takes some 20 ms to be made, and a read that asks a slow one some more. Many
connections may send such at once, which would hold up everyone else for seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from twisted.logger import Logger

from rocketmq_tw.broker.assembly.handlers import answer_later
from rocketmq_tw.message.sql92 import is_remembered
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.wire.command import RemotingCommand

#: Characters of new texts that one turn reads; the last of them may go beyond.
MOST_CHARACTERS = 2048
#: What a text costs beside its characters, and a read with a slow expression.
OF_ONE, OF_SLOW_READ = 64, 1024

log = Logger()


class NotThisTurn(Exception):
    """The turn has read enough; try again in a later one."""


class CompilingTurns:
    """Says when a new text, and a slow read, may take its time. Who waits goes on in later turns,
    one request of each connection after the other."""

    def __init__(self, clock: Any) -> None:
        """`clock` is the reactor."""
        self._clock = clock
        self._left = MOST_CHARACTERS
        self._is_set = False
        self._waiting: dict[IPeer, deque[Callable[[], None]]] = {}

    def admit(self, text: str) -> None:
        """Raises `NotThisTurn` where the text must not be made an expression now."""
        if not is_remembered(text):
            self._take(OF_ONE + len(text))

    def admit_read(self, weight: int) -> None:
        """Raises `NotThisTurn` where a read that asks an expression of this weight must not be
        made now."""
        if weight > 1:
            self._take(OF_SLOW_READ)

    def _take(self, cost: int) -> None:
        if self._left <= 0:
            raise NotThisTurn
        self._left -= cost
        self._begin_another()

    def patient(self, handler: Handler) -> Handler:
        """`handler`, called again in a later turn where it raises `NotThisTurn`; it must not have
        changed anything by then."""

        def handle(request: RemotingCommand, peer: IPeer) -> Any:
            try:
                return handler(request, peer)
            except NotThisTurn:
                self.later(peer, lambda: answer_later(handle, request, peer))
                return None

        return handle

    def later(self, peer: IPeer, work: Callable[[], None]) -> None:
        """Does `work` in a later turn, unless the peer is lost by then."""
        self._waiting.setdefault(peer, deque()).append(work)
        self._begin_another()

    def _begin_another(self) -> None:
        if not self._is_set:
            self._is_set = True
            self._clock.callLater(0, self._begin)

    def _begin(self) -> None:
        self._is_set, self._left = False, MOST_CHARACTERS
        while self._waiting and self._left > 0:
            peer = next(iter(self._waiting))
            mine = self._waiting.pop(peer)
            if not peer.connected:
                continue
            work = mine.popleft()
            if mine:
                # Behind the others.
                self._waiting[peer] = mine
            try:
                work()
            except Exception:
                log.failure("a request of {peer} that waited", peer=peer.address)
        if self._waiting:
            self._begin_another()
