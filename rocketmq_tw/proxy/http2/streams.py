"""A stream of a connection: what it sends, within the windows that the client gives."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from h2.errors import ErrorCodes
from zope.interface import implementer

from rocketmq_tw.proxy.http2.frames import LARGEST_PAYLOAD
from rocketmq_tw.proxy.http2.interfaces import HeaderList, IStream, IStreamHandler

if TYPE_CHECKING:
    from rocketmq_tw.proxy.http2.connection import Http2Connection

#: Bytes of a stream that wait from which on its client does not keep up.
ENOUGH_QUEUED = 64 * 1024
#: Bytes after which what is sent is handed on, so that the transport can say that it is full.
_FLUSH_SIZE = 64 * 1024
#: Data frames that carry less earn no allowance, unless they end their stream.
_SMALL = 512


@implementer(IStream)
class Http2Stream:
    """One stream. Its connection makes it, and tells it of windows and of its end."""

    __slots__ = (
        "_charged",
        "_connection",
        "_queue",
        "_queued_charged",
        "_ready",
        "_trailers",
        "address",
        "client_ended",
        "handler",
        "is_closed",
        "is_sent",
        "is_working",
        "local_address",
        "queued",
        "stream_id",
        "unacknowledged",
    )

    def __init__(self, connection: Http2Connection, stream_id: int) -> None:
        self._connection = connection
        self.stream_id = stream_id
        self.address = connection.address
        self.local_address = connection.local_address
        self.handler: IStreamHandler | None = None
        self.is_closed = False
        self.is_sent = False
        #: The client has sent all.
        self.client_ended = False
        #: What the stream began goes on, even where it is over.
        self.is_working = False
        #: Bytes taken from the client's window and not given back.
        self.unacknowledged = 0
        self._charged = 0
        self._queue: deque[bytes | memoryview] = deque()
        self.queued = 0
        #: The part of `_charged` that is for them.
        self._queued_charged = 0
        self._trailers: HeaderList | None = None
        self._ready: list[Callable[[], None]] = []

    # IStream

    def write(
        self,
        headers: HeaderList | None = None,
        data: bytes = b"",
        trailers: HeaderList | None = None,
        *,
        ends: bool = False,
    ) -> None:
        if self.is_closed:
            return
        connection = self._connection
        if headers is not None:
            connection.engine.send_headers(self.stream_id, headers, end_stream=ends)
        if data:
            # A view, since what is long is cut many times.
            self._queue.append(memoryview(data) if len(data) > LARGEST_PAYLOAD else data)
            self.queued += len(data)
        if trailers is not None:
            self._trailers = trailers
        if ends:
            self._sent_all()
        elif data or trailers is not None:
            self._send_queued()
            self._charge_queued()
        connection.flush()

    def reset(self, code: int) -> None:
        if not self.is_closed:
            self._connection.engine.reset_stream(self.stream_id, code)
            self._connection.stream_closed(self)
            self._connection.flush()

    def when_ready(self, callback: Callable[[], None]) -> None:
        if self.is_closed:
            return
        if self._keeps_up():
            callback()
        else:
            self._ready.append(callback)
            self._connection.await_window(self)

    def charge(self, size: int) -> bool:
        self._charged += size
        return self._connection.charge(size)

    def begin_work(self) -> None:
        self.is_working = True

    def end_work(self) -> None:
        self.is_working = False
        if self.is_closed:
            self.give_back()
            self._connection.place_is_free()

    # The connection's side

    def _send_queued(self) -> None:
        """Sends what the windows and the transport take."""
        connection, engine, queue = self._connection, self._connection.engine, self._queue
        sent = 0
        while queue:
            room = min(
                engine.local_flow_control_window(self.stream_id), engine.max_outbound_frame_size
            )
            if room <= 0 or connection.is_full:
                connection.await_window(self)
                return
            part = queue[0]
            if len(part) <= room:
                queue.popleft()
            else:
                part, queue[0] = part[:room], part[room:]
            engine.send_data(self.stream_id, part)
            self.queued -= len(part)
            if len(part) >= _SMALL:
                connection.allowance.earn(2)
            sent += len(part)
            if sent >= _FLUSH_SIZE:
                sent = 0
                connection.flush()
        if self._trailers is not None:
            engine.send_headers(self.stream_id, self._trailers, end_stream=True)
            self._sent_all()

    def go_on(self) -> None:
        """Sends more, since the client takes more; tells those that wait for that."""
        self._send_queued()
        self._charge_queued()
        while self._ready and not self.is_closed and self._keeps_up():
            self._ready.pop(0)()
        if self._ready and not self.is_closed:
            self._connection.await_window(self)

    def give_back(self) -> None:
        """Holds nothing more."""
        if self._charged:
            self.charge(-self._charged)

    def over(self) -> None:
        """The stream has ended, whichever way; tells its handler."""
        self.is_closed = True
        self._queue.clear()
        self.queued = 0
        self._ready.clear()
        self.charge(-self._queued_charged)
        self._queued_charged = 0
        if not self.is_working:
            self.give_back()
        handler, self.handler = self.handler, None
        if handler is not None:
            handler.closed()

    def _charge_queued(self) -> None:
        """Has what waits for the client counted, no more and no less."""
        grown = self.queued - self._queued_charged
        if grown and not self.is_closed:
            self._queued_charged = self.queued
            if not self.charge(grown) and grown > 0:
                self._connection.refuse_memory()

    def _keeps_up(self) -> bool:
        return self.queued < ENOUGH_QUEUED and not self._connection.is_full

    def _sent_all(self) -> None:
        """The response is complete; a client that still sends is told to stop."""
        connection = self._connection
        self.is_sent = True
        if not self.client_ended:
            connection.engine.reset_stream(self.stream_id, ErrorCodes.NO_ERROR)
        else:
            connection.allowance.earn(3)
        connection.stream_closed(self)
