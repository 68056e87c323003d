"""What a hostile behaviour has to work with: where the servers are, connections, and an end."""

from __future__ import annotations

import contextlib
import random
import socket
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from rocketmq_tw.wire.command import RemotingCommand, encode_command
from tests.support.remoting import Connection
from tests.support.running import Closing

#: Seconds that a peer which does not read may hold up the attacker.
_PATIENCE = 0.5
#: Seconds between two bytes or looks at the clock of those who only hold on.
_BEAT = 0.05


class Target(NamedTuple):
    """The addresses that are attacked."""

    broker: str
    name_server: str
    ha: str


class Attack(Closing):
    """One behaviour's connections, its dice and its deadline. `done` counts what it did."""

    def __init__(self, target: Target, seconds: float, seed: int) -> None:
        self.target = target
        self.dice = random.Random(seed)
        self.done = 0
        self._deadline = time.monotonic() + seconds
        self._open: list[socket.socket] = []

    @property
    def going(self) -> bool:
        """Whether there is time left."""
        return time.monotonic() < self._deadline

    def connect(self, address: str, receive_buffer: int = 0) -> socket.socket | None:
        """A connection that stays open until the attack ends; None where none is to be had."""
        host, port = address.rsplit(":", 1)
        made = socket.socket()
        made.settimeout(_PATIENCE)
        if receive_buffer:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            made.connect((host, int(port)))
        except OSError:
            made.close()
            return None
        self._open.append(made)
        return made

    def crowd(self, address: str, size: int, receive_buffer: int = 0) -> list[socket.socket]:
        """So many connections, or as many as are to be had in the attack's time."""
        made: list[socket.socket] = []
        while len(made) < size and self.going:
            connection = self.connect(address, receive_buffer)
            if connection is None:
                break
            made.append(connection)
        return made

    def drop(self, connection: socket.socket) -> None:
        """Closes a connection."""
        self._open.remove(connection)
        connection.close()

    def push(self, connection: socket.socket, data: bytes) -> bool:
        """Sends all of it; False where the server closed, or does not read (any more)."""
        try:
            connection.sendall(data)
        except OSError:
            return False
        self.done += 1
        return True

    def flood(self, address: str, size: int, make: Callable[[], bytes]) -> None:
        """`size` connections send what `make` returns in turn, unread, until the time is up; one
        that the server closed or no longer reads from gives way to a new one."""
        crowd = self.crowd(address, size)
        while self.going and crowd:
            for place, connection in enumerate(crowd):
                if not self.going:
                    return
                if self.push(connection, make()):
                    _read_what_is_there(connection)
                    continue
                self.drop(connection)
                another = self.connect(address)
                if another is None:
                    self.wait()
                    another = self.connect(address)
                if another is None:
                    return
                crowd[place] = another

    def ask_each(self, address: str, requests: Iterable[RemotingCommand], window: int = 1) -> None:
        """Sends the requests with `window` of them under way, until there are no more or the time
        is up; what the answers say is nobody's business."""
        waiting = 0
        with contextlib.suppress(OSError), Connection(address) as connection:
            for request in requests:
                if not self.going:
                    break
                connection.send(request)
                self.done += 1
                waiting += 1
                if waiting >= window:
                    connection.receive()
                    waiting -= 1
            for _ in range(waiting):
                connection.receive()

    def trickle(self, crowd: list[socket.socket], data: bytes = b"\0") -> None:
        """Each connection sends `data` now and then, until the time is up."""
        while self.going:
            for connection in crowd:
                self.push(connection, data)
            self.wait()

    def hold(self) -> None:
        """Does nothing until the time is up."""
        while self.going:
            self.wait()

    @staticmethod
    def wait() -> None:
        time.sleep(_BEAT)

    def close(self) -> None:
        for connection in self._open:
            connection.close()
        self._open.clear()


def frame(code: int, fields: dict[str, str], body: bytes = b"", **other: int) -> bytes:
    """The bytes of a request; `other` are its `opaque` and `flag`."""
    request = RemotingCommand.request(code, body=body)
    request.ext_fields = fields
    for name, value in other.items():
        setattr(request, name, value)
    return encode_command(request)


def _read_what_is_there(connection: socket.socket) -> None:
    connection.settimeout(0)
    with contextlib.suppress(OSError):
        connection.recv(1 << 20)
    connection.settimeout(_PATIENCE)
