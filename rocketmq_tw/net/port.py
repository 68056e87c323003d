"""A listening port that waits where the process has no descriptor left for a connection."""

from __future__ import annotations

import errno
import socket
from typing import Any

from twisted.internet.interfaces import IDelayedCall
from twisted.internet.tcp import Port
from twisted.logger import Logger

#: Seconds until a port without descriptors or memory tries again, as Netty's does.
ACCEPT_PAUSE = 1.0
#: What passes by itself; `accept` would fail again at once and for ever.
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class PatientPort(Port):
    """Twisted's port, but for one thing: where `accept` fails for want of descriptors or memory, it
    leaves the waiting connections in the backlog for `ACCEPT_PAUSE` seconds. Twisted closes them
    with a line each, or asks again in each turn."""

    log = Logger()

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._pause: IDelayedCall | None = None
        self._is_exhausted = False

    def createInternetSocket(self) -> socket.socket:
        made = super().createInternetSocket()
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
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
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
        clock: Any = self.reactor
        self._pause = clock.callLater(ACCEPT_PAUSE, self._go_on)

    def _go_on(self) -> None:
        self._pause = None
        self.startReading()


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
