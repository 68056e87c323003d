"""The end of the container's pipes that is in a broker's process."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import msgspec
from twisted.internet.error import ReactorNotRunning
from twisted.internet.protocol import connectionDone
from twisted.internet.stdio import StandardIO
from twisted.logger import Logger
from twisted.protocols.basic import LineOnlyReceiver
from twisted.python.failure import Failure

from rocketmq_tw.config.properties import Setting
from rocketmq_tw.container.messages import (
    MAX_LINE,
    ORDERS,
    REPORTS,
    ChildReport,
    Orders,
    encode_line,
    read_first_line,
)
from rocketmq_tw.container.neighbours import NamedNeighbours

log = Logger()


def read_settings(descriptor: int = ORDERS) -> list[Setting]:
    """Returns what the container sets for this broker; blocks until it has said so. Raises
    `EOFError` where it is gone, `ValueError` where that is no container."""
    orders = msgspec.json.decode(read_first_line(descriptor), type=Orders)
    return [Setting(key, value, "the container") for key, value in (orders.settings or {}).items()]


class Supervision(LineOnlyReceiver):
    """Hears the container, and stops this process cleanly once it is gone or says so by closing the
    pipe."""

    delimiter = b"\n"
    MAX_LENGTH = MAX_LINE

    def __init__(self, reactor: Any) -> None:
        self.neighbours = NamedNeighbours()
        self._reactor = reactor
        self._is_connected = False

    def begin(self) -> None:
        """Listens to the container, in a session of its own: Ctrl-C at the container's terminal is
        the container's, which stops its brokers itself."""
        with contextlib.suppress(PermissionError):
            os.setsid()
        self._is_connected = True
        StandardIO(self, ORDERS, REPORTS, self._reactor)  # type: ignore[call-arg]

    def serves(self, address: str) -> None:
        """Tells the container that the broker serves."""
        self._report(ChildReport(serves=address))

    def failed(self, why: str) -> None:
        """Tells the container why the broker cannot start."""
        self._report(ChildReport(failed=why))

    def lineReceived(self, line: bytes) -> None:
        orders = msgspec.json.decode(line, type=Orders)
        if orders.masters is not None:
            self.neighbours.names = orders.masters

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._is_connected = False
        log.info("the container ends this broker, or is gone")
        with contextlib.suppress(ReactorNotRunning):
            self._reactor.stop()

    def _report(self, report: ChildReport) -> None:
        """Writes at once: the process may end before its reactor would."""
        if self._is_connected:
            try:
                os.write(REPORTS, encode_line(report))
            except OSError as error:
                log.warn("the container cannot be told: {why}", why=error.strerror)
