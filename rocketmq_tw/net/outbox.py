"""Writes that go to the kernel at once; what one stretch of work, or one turn of the reactor,
writes, together at its end.

A write through the reactor costs two `epoll_ctl` and an `epoll_wait` beside its `send`, which is
much where each turn has one answer. So `send_now` sends by itself while nothing waits in front of
it; what the kernel does not take goes through the transport, whose limits hold as ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.tcp import Connection

from rocketmq_tw.runtime.turns import known_turns

#: Bytes from which on data does not wait for the turn's end, and goes through the transport, which
#: must learn of it.
SIZE_LIMIT = 128 * 1024


def send_now(transport: Any, data: bytes) -> None:
    """Writes `data` behind all that was written to `transport`, without the reactor where that can
    be.

    With TLS the transport is a protocol that encrypts, and the socket is not ours to use.
    """
    if (
        isinstance(transport, Connection)
        and len(data) < SIZE_LIMIT
        and not transport.dataBuffer
        and not transport._tempDataLen
        and transport.connected
        and not transport.disconnecting
    ):
        try:
            sent = transport.socket.send(data)
        except OSError:
            # Full, or an error that the reactor meets again where it ends connections.
            sent = 0
        if sent == len(data):
            return
        data = data[sent:]
    transport.write(data)


class Outboxes:
    """The outboxes of connections that share a reactor."""

    def __init__(self, reactor: object) -> None:
        self._turns = known_turns(reactor)
        self._gathers = False
        #: What has something that leaves at the end of the work, and at the end of the turn.
        self._of_work: list[Outbox] = []
        self._of_turn: list[Outbox] = []

    def gather(self, work: Callable[..., Any], *args: Any) -> None:
        """Carries out `work`; what it writes to a connection leaves in one piece behind it."""
        if self._gathers:
            work(*args)
            return
        self._gathers = True
        try:
            work(*args)
        finally:
            self._gathers = False
            filled, self._of_work = self._of_work, []
            for outbox in filled:
                outbox.flush()

    def flush_later(self, outbox: Outbox) -> bool:
        """Has `outbox` be flushed once the work is done, and else at the end of the turn. Returns
        False where there is neither, so that nobody would do so."""
        if self._gathers:
            self._of_work.append(outbox)
        elif self._turns is None:
            return False
        else:
            if not self._of_turn:
                self._turns.at_turn_end(self._flush_turn)
            self._of_turn.append(outbox)
        return True

    def _flush_turn(self) -> None:
        filled, self._of_turn = self._of_turn, []
        for outbox in filled:
            outbox.flush()


class Outbox:
    """Collects what is written to one transport as long as its `Outboxes` says, and passes it on at
    once otherwise."""

    __slots__ = ("_is_closed", "_owner", "_parts", "_size", "_transport")

    def __init__(self, owner: Outboxes, transport: Any) -> None:
        self._owner = owner
        self._transport = transport
        self._is_closed = False
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        """Sends `data` behind all that was written before, at once or with what is gathered."""
        if not self._parts and not self._owner.flush_later(self):
            self._transport.write(data)
            return
        self._parts.append(data)
        self._size += len(data)
        if self._size >= SIZE_LIMIT:
            self.flush()

    def flush(self) -> None:
        """Hands on what is gathered."""
        if self._is_closed or not self._parts:
            return
        parts = self._parts
        self._parts, self._size = [], 0
        send_now(self._transport, parts[0] if len(parts) == 1 else b"".join(parts))

    def close(self) -> None:
        """Drops what is gathered and will be: the connection is cut."""
        self._is_closed = True
        self._parts = []
