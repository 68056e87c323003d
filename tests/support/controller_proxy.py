"""A controller as a broker sees it, with a kill -9 of the broker at one of its requests."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from enum import Enum

from rocketmq_tw.wire.command import RemotingCommand, decode_command, encode_command
from rocketmq_tw.wire.frame import FrameDecoder
from tests.support.ports import LOOPBACK
from tests.support.running import Closing

_LEADER = "controllerLeaderAddress"


class Moment(Enum):
    """When: the controller has not heard of the request, or has answered and nobody heard that."""

    ASKED = "asked"
    DECIDED = "decided"


class KillingProxy(Closing):
    """Stands before the controller at `target` ("host:port"), and names itself as the leader.

    At the first request `code` it calls `kill` and passes nothing on any more: the request is lost
    with Moment.ASKED, the answer with Moment.DECIDED.
    """

    def __init__(self, target: str, code: int, moment: Moment, kill: Callable[[], None]) -> None:
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self._code = code
        self._moment = moment
        self._kill = kill
        self._lock = threading.Lock()
        self._closed = False
        #: Whether the broker is being killed.
        self._killing = False
        #: Set once the broker was killed.
        self.killed = threading.Event()
        self._listener = socket.create_server((LOOPBACK, 0))
        self.address = f"{LOOPBACK}:{self._listener.getsockname()[1]}"
        self._sockets = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            sockets, self._sockets = self._sockets, []
        for end in sockets:
            # A blocked accept or recv holds it until it returns.
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                broker, _ = self._listener.accept()
                controller = socket.create_connection(self._target, 5)
                controller.settimeout(None)
                with self._lock:
                    self._sockets += (broker, controller)
                asked: set[int] = set()
                for source, sink, passes in (
                    (broker, controller, self._request),
                    (controller, broker, self._answer),
                ):
                    arguments = (source, sink, passes, asked)
                    threading.Thread(target=self._pass, args=arguments, daemon=True).start()

    def _pass(
        self,
        source: socket.socket,
        sink: socket.socket,
        passes: Callable[[RemotingCommand, set[int]], bool],
        asked: set[int],
    ) -> None:
        decoder = FrameDecoder()
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                for frame in decoder.feed(data):
                    command = decode_command(frame)
                    if self._killing or not passes(command, asked):
                        return
                    sink.sendall(encode_command(command))

    def _request(self, command: RemotingCommand, asked: set[int]) -> bool:
        """Whether it goes on to the controller; `asked` has the requests to be killed for."""
        if command.code == self._code and not command.is_response:
            if self._moment is Moment.ASKED:
                self._end()
                return False
            asked.add(command.opaque)
        return True

    def _answer(self, command: RemotingCommand, asked: set[int]) -> bool:
        if command.is_response and command.opaque in asked:
            self._end()
            return False
        if _LEADER in command.ext_fields:
            command.ext_fields[_LEADER] = self.address
        return True

    def _end(self) -> None:
        with self._lock:
            if self._closed or self._killing:
                return
            self._killing = True
        self._kill()
        self.killed.set()
