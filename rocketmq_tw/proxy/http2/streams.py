"""A stream of a connection: what it sends, within the windows that the client gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zope.interface import Attribute, Interface, implementer

from rocketmq_tw.proxy.http2.engine import Http2Engine
from rocketmq_tw.proxy.http2.frames import LARGEST_PAYLOAD, ErrorCodes
from rocketmq_tw.proxy.http2.interfaces import HeaderList, Held, IStream, IStreamHandler
from rocketmq_tw.proxy.http2.limits import FrameAllowance
from rocketmq_tw.proxy.http2.memory import ConnectionMemory, MemoryRefused, StreamMemory

# Looked up once: each look into an enumeration costs, and these are for each call.
_RESPONSE = Held.RESPONSE
#: Bytes of a stream that wait from which on its client does not keep up.
ENOUGH_QUEUED = 64 * 1024
#: Bytes after which what is sent is handed on, so that the transport can say that it is full.
_FLUSH_SIZE = 64 * 1024
#: A client that takes fewer bytes than this of what waits for it, in the time given, is stuck.
LEAST_TAKEN = 64 * 1024
#: Data frames that carry less earn no allowance, unless they end their stream.
_SMALL = 512


class IStreamConnection(Interface):
    """The connection of a stream, as the stream needs it."""

    address: str = Attribute("`host:port` of the client.")
    local_address: str = Attribute("`host:port` that the client connected to.")
    engine: Http2Engine = Attribute("The state of all its streams.")
    memory: ConnectionMemory = Attribute("Counts what its streams hold.")
    allowance: FrameAllowance = Attribute("The frames that its client may send.")
    is_full: bool = Attribute("Whether the transport takes no more now.")

    def flush() -> None:
        """Hands on what the engine has to send."""

    def refuse_memory() -> None:
        """Cuts the connection: what waits for its client is too much."""

    def await_window(stream: Any) -> None:
        """Has `stream` go on when the client takes more."""

    def when_lost(callback: Callable[[], None]) -> None:
        """Calls `callback` where it is lost before its client sends anything more."""

    def stream_closed(stream: Any) -> None:
        """Forgets `stream`, which is over, as the engine knows."""

    def place_is_free() -> None:
        """A stream and its work are over: one more may begin."""


@implementer(IStream)
class Http2Stream:
    """One stream. Its connection makes it, and tells it of windows and of its end."""

    __slots__ = (
        "_connection",
        "_looked_at",
        "_memory",
        "_queue",
        "_ready",
        "_taken",
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

    def __init__(self, connection: IStreamConnection, stream_id: int) -> None:
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
        self._memory = StreamMemory(connection.memory)
        # Mostly one entry or none, for which an empty deque takes 600 bytes.
        self._queue: list[bytes | memoryview] = []
        self.queued = 0
        #: When it was looked at first, in seconds, how much was taken, and what was taken since.
        self._looked_at: float | None = None
        self._taken = 0
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
            self._count_queued()
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

    def when_lost(self, callback: Callable[[], None]) -> None:
        self._connection.when_lost(callback)

    def hold(self, purpose: Held, size: int) -> None:
        if self.is_working or not self.is_closed:
            self._memory.hold(purpose, size)

    def begin_work(self) -> None:
        self.is_working = True

    def end_work(self) -> None:
        self.is_working = False
        if self.is_closed:
            self._memory.release()
            self._connection.place_is_free()

    # The connection's side

    def _send_queued(self) -> None:
        """Sends what the windows and the transport take."""
        connection, engine, queue = self._connection, self._connection.engine, self._queue
        sent = 0
        while queue:
            # A larger frame would leave at once, and all of it be counted nowhere.
            room = min(
                engine.local_flow_control_window(self.stream_id),
                engine.max_outbound_frame_size,
                _FLUSH_SIZE,
            )
            if room <= 0 or connection.is_full:
                connection.await_window(self)
                return
            part = queue[0]
            if len(part) <= room:
                del queue[0]
            else:
                part, queue[0] = part[:room], part[room:]
            engine.send_data(self.stream_id, part)
            self.queued -= len(part)
            self._taken += len(part)
            if len(part) >= _SMALL:
                connection.allowance.earn(2)
            sent += len(part)
            if sent >= _FLUSH_SIZE:
                sent = 0
                connection.flush()
        self._looked_at = None
        if self._trailers is not None:
            engine.send_headers(self.stream_id, self._trailers, end_stream=True)
            self._sent_all()

    def go_on(self) -> None:
        """Sends more, since the client takes more; tells those that wait for that."""
        self._send_queued()
        self._count_queued()
        while self._ready and not self.is_closed and self._keeps_up():
            self._ready.pop(0)()
        if self._ready and not self.is_closed:
            self._connection.await_window(self)

    def is_stuck(self, now: float, seconds: float) -> bool:
        """Returns whether the client has taken hardly anything for so long of what waits for it;
        asked regularly."""
        if self._looked_at is None or self._taken >= LEAST_TAKEN:
            self._looked_at, self._taken = now, 0
        return self.queued > 0 and now - self._looked_at >= seconds

    def over(self) -> None:
        """The stream has ended, whichever way; tells its handler."""
        self.is_closed = True
        self._queue.clear()
        self.queued = 0
        self._ready.clear()
        if self.is_working:
            self._memory.hold(_RESPONSE, 0)
        else:
            self._memory.release()
        handler, self.handler = self.handler, None
        if handler is not None:
            handler.closed()

    def _count_queued(self) -> None:
        """Has what waits for the client counted."""
        if not self.is_closed:
            try:
                self._memory.hold(_RESPONSE, self.queued)
            except MemoryRefused:
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
