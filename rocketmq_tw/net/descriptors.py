"""Bounds how many files and sockets the process may have open and what of it connections may take,
and has a listening port wait where none is left."""

from __future__ import annotations

import errno
import resource
import socket
from typing import Any

from twisted.internet.tcp import Port, Server
from twisted.logger import Logger

from rocketmq_tw.interpreter import IS_PYPY
from rocketmq_tw.runtime.alarm import Alarm

#: What the store, its checkpoints, replicas and our own connections need at most: a store without
#: descriptors cannot go on to its next file.
_RESERVED = 512
#: What a store makes use of, and what it needs at least.
_MOST_FILES, _FEWEST_FILES = 256, 8
_NO_LIMIT = 1 << 31
#: Seconds until a port without descriptors or memory tries again, as Netty's does.
ACCEPT_PAUSE = 1.0
#: What passes by itself; `accept` would fail again at once and for ever.
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

#: Bytes that a connection reads at once at least.
_SMALL_READ = 4096

log = Logger()


def raise_descriptor_limit() -> None:
    """Raises the soft limit of open files to the hard one, as a JVM does at its start: the usual
    soft limit of 1024 is for programs that use `select`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        log.info("the limit of open files stays at {soft}: {error}", soft=soft, error=error)


def room_for_connections() -> int:
    """Returns the connections that leave the rest of the process its descriptors: all but
    `_RESERVED`, or half of them where there are few."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return _NO_LIMIT
    return limit - min(_RESERVED, limit // 2)


def room_for_files() -> int:
    """Returns the files that a store may keep open: where the limit is low, a half of what
    connections leave, so that checkpoints, replicas and the store's other files have the rest."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return _MOST_FILES
    return min(_MOST_FILES, max(_FEWEST_FILES, (limit - room_for_connections()) // 2))


class FittingReads(Server):
    """A connection that reads little at once while little comes. PyPy takes memory for all that a
    read may bring, 64 KiB with Twisted's limit, where most requests have some hundred bytes."""

    bufferSize = _SMALL_READ

    def _dataReceived(self, data: bytes | None) -> Any:
        size = len(data or b"")
        if size == self.bufferSize:
            self.bufferSize = min(2 * size, Server.bufferSize)
        elif 8 * size < self.bufferSize:
            self.bufferSize = max(self.bufferSize // 2, _SMALL_READ)
        return super()._dataReceived(data)


class PatientPort(Port):
    """Twisted's port, but for two things, and `FittingReads` on PyPy. Where `accept` fails for want
    of descriptors or memory, it leaves the waiting connections in the backlog for `ACCEPT_PAUSE`
    seconds; Twisted closes them with a line each, or asks again in each turn. And it may be shared
    with other processes."""

    log = Logger()
    transport = FittingReads if IS_PYPY else Server
    #: Whether other processes of the user may listen on it too, where theirs is shared as well.
    is_shared = False

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        clock: Any = self.reactor
        self._pause = Alarm(clock, self.startReading)
        self._is_exhausted = False

    def createInternetSocket(self) -> socket.socket:
        made = super().createInternetSocket()
        if self.is_shared:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening = _Listening(made.family, made.type, made.proto, made.detach())
        listening.setblocking(False)
        return listening

    def doRead(self) -> None:
        listening: Any = self.socket
        listening.failure = None
        super().doRead()
        if listening.failure is not None:
            self._wait(listening.failure)
        elif self._is_exhausted:
            self._is_exhausted = False
            self.log.info("port {port} accepts connections again", port=self._realPortNumber)

    def connectionLost(self, reason: Any) -> None:
        self._pause.cancel()
        super().connectionLost(reason)

    def _wait(self, failure: OSError) -> None:
        if not self._is_exhausted:
            self._is_exhausted = True
            self.log.warn(
                "port {port} cannot accept connections: {reason}",
                port=self._realPortNumber,
                reason=failure.strerror,
            )
        self.stopReading()
        self._pause.set(ACCEPT_PAUSE)


class _Listening(socket.socket):
    """Shows a want of descriptors as having nothing to accept; `failure` tells."""

    failure: OSError | None = None

    def accept(self) -> Any:
        try:
            return super().accept()
        except OSError as error:
            if error.errno not in _EXHAUSTED:
                raise
            self.failure = error
            raise BlockingIOError(errno.EAGAIN, "no descriptors are left") from error
