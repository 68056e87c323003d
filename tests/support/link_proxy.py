"""A TCP proxy whose links a test cuts, delays and throttles."""

from __future__ import annotations

import contextlib
import socket
import threading

from tests.support.ports import LOOPBACK
from tests.support.running import Closing

_PIECE = 16384


class LinkProxy(Closing):
    """Passes connections to `target` ("host:port") on.

    `delay` holds every piece back for so many seconds, `bytes_per_second` lets no more through;
    both hold for open connections as well. `cut` ends those.
    """

    def __init__(self, target: str) -> None:
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self._listener = socket.create_server((LOOPBACK, 0))
        self.address = f"{LOOPBACK}:{self._listener.getsockname()[1]}"
        self.delay = 0.0
        self.bytes_per_second = 0
        #: Bytes passed on, both ways.
        self.passed = 0
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> bool:
        """Ends every connection, in the middle of whatever passes; whether there was one."""
        with self._lock:
            sockets, self._open = self._open, set()
        for end in sockets:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        return bool(sockets)

    def close(self) -> None:
        self._closed.set()
        # A blocked accept holds the port until it returns.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target, 5)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            with self._lock:
                self._open |= {near, far}
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_PIECE):
                rate = self.bytes_per_second
                pause = self.delay + (len(data) / rate if rate else 0)
                if pause and self._closed.wait(pause):
                    break
                sink.sendall(data)
                self.passed += len(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._open -= {source, sink}
        source.close()
