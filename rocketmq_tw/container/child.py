"""The end of the container's pipes that is in a broker's process."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import select
import signal
import sys
from threading import Thread
from typing import Any

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
from rocketmq_tw.structs import msgspec

#: Of Linux: the signal that a process gets when its parent ends.
_PR_SET_PDEATHSIG = 1
#: Seconds that the process may take to stop before the container has said how many.
_STOP_SECONDS = 60.0

log = Logger()


def read_settings(descriptor: int = ORDERS) -> list[Setting]:
    """Returns what the container sets for this broker; blocks until it has said so. Raises
    `EOFError` where it is gone, `ValueError` where that is no container."""
    orders = msgspec.json.decode(read_first_line(descriptor), type=Orders)
    return [Setting(key, value, "the container") for key, value in (orders.settings or {}).items()]


class Supervision(LineOnlyReceiver):
    """Hears the container, and stops this process cleanly once it is gone or says so by closing the
    pipe. A process that does not stop in time is killed by its own alarm: a container that is gone
    kills nobody. One that somebody has paused goes on when the container ends."""

    delimiter = b"\n"
    MAX_LENGTH = MAX_LINE

    def __init__(self, reactor: Any) -> None:
        self.neighbours = NamedNeighbours()
        self._reactor = reactor
        self._is_connected = False
        #: How long this process may take to stop.
        self._stop_seconds = _STOP_SECONDS

    def begin(self) -> None:
        """Listens to the container, in a session of its own: Ctrl-C at the container's terminal is
        the container's, which stops its brokers itself."""
        with contextlib.suppress(PermissionError):
            os.setsid()
        _go_on_with_end_of_parent()
        self._is_connected = True
        # Not on the reactor's thread, which may be what hangs.
        Thread(target=self._limit_stop, args=(os.dup(ORDERS),), daemon=True).start()
        StandardIO(self, ORDERS, REPORTS, self._reactor)  # type: ignore[call-arg]

    def serves(self, address: str) -> None:
        """Tells the container that the broker serves."""
        self._report(ChildReport(serves=address))

    def failed(self, why: str) -> None:
        """Tells the container why the broker cannot start."""
        self._report(ChildReport(failed=why))

    def lineReceived(self, line: bytes) -> None:
        orders = msgspec.json.decode(line, type=Orders)
        if orders.stop_timeout_millis is not None:
            self._stop_seconds = orders.stop_timeout_millis / 1000
        if orders.masters is not None:
            self.neighbours.names = orders.masters

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._is_connected = False
        log.info("the container ends this broker, or is gone")
        with contextlib.suppress(ReactorNotRunning):
            self._reactor.stop()

    def _limit_stop(self, descriptor: int) -> None:
        """Waits for the end of the orders; from then on the time runs."""
        ends = select.poll()
        # Their end alone: what they say is for the reactor.
        ends.register(descriptor, 0)
        ends.poll()
        # The system does it, whatever this process is busy with.
        signal.alarm(math.ceil(self._stop_seconds))

    def _report(self, report: ChildReport) -> None:
        """Writes at once: the process may end before its reactor would."""
        if self._is_connected:
            try:
                os.write(REPORTS, encode_line(report))
            except OSError as error:
                log.warn("the container cannot be told: {why}", why=error.strerror)


def _go_on_with_end_of_parent() -> None:
    """Has a pause of this process (SIGSTOP) end when its parent does: it would keep its port and
    its store from the next container. Without effect where the system is not Linux."""
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)
