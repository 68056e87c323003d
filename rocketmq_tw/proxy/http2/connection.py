"""A connection of HTTP/2 clients: streams are opened, served and ended.

What a client does never grows our memory: frames, header blocks and streams are bounded, what all
streams hold is counted in the server's budget, and nothing is read from a client that does not take
what it is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from twisted.internet.interfaces import IPushProducer, ITCPTransport
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketmq_tw.net.connection import ConnectionObserver
from rocketmq_tw.net.haproxy import Forwarded, ends_of
from rocketmq_tw.net.limits import ServerResources
from rocketmq_tw.net.outbox import Outbox
from rocketmq_tw.net.protocol import CLOSE_TIMEOUT
from rocketmq_tw.proxy.http2.engine import Http2Engine
from rocketmq_tw.proxy.http2.frames import (
    ACK,
    HEADER_LENGTH,
    ErrorCodes,
    FrameType,
    Http2Error,
    Http2Frame,
    go_away,
    make_frame,
)
from rocketmq_tw.proxy.http2.incoming import IFrameConnection, IncomingFrames
from rocketmq_tw.proxy.http2.interfaces import OpenStream, RequestHeaders
from rocketmq_tw.proxy.http2.limits import FrameAllowance, Http2Limits, frame_cost
from rocketmq_tw.proxy.http2.memory import ConnectionMemory
from rocketmq_tw.proxy.http2.streams import Http2Stream, IStreamConnection
from rocketmq_tw.runtime.alarm import Alarm
from rocketmq_tw.runtime.scope import Scope

#: Bytes taken from a client that are told to it in one.
_WINDOW_STEP = 64 * 1024
#: Seconds that the answer to a ping waits for something to leave with: clients in Java ping for
#: nearly everything that comes, and a packet of its own costs as much as a dozen answers in one.
_PING_LINGER = 0.004
#: Data of a stream that is over counts as a frame that brings nothing where it is shorter.
_SMALL = 512
#: The streams that are open go on when a client takes no more of ours; priorities are advice.
_IGNORED = (FrameType.GOAWAY, FrameType.PRIORITY)
# Looked up once: each look into an enumeration costs, and these are for each frame.
_PING, _LAST_KIND = int(FrameType.PING), int(FrameType.CONTINUATION)


@implementer(IPushProducer, IFrameConnection, IStreamConnection)
class Http2Connection(Protocol):
    """One connection of a server."""

    log = Logger()
    connected = False
    address = "not connected"
    local_address = "not connected"
    #: The ends that a load balancer told.
    forwarded: Forwarded | None = None

    def __init__(
        self,
        resources: ServerResources,
        group: ConnectionObserver,
        limits: Http2Limits,
        open_stream: OpenStream,
    ) -> None:
        self._clock = resources.clock
        self._config = resources.config
        self.memory = ConnectionMemory(resources.budget)
        self._outboxes = resources.outboxes
        self._outbox = Outbox(resources.outboxes, None)
        self._group = group
        self._limits = limits
        self._open_stream = open_stream
        self.engine = Http2Engine(limits, self)
        self.allowance = FrameAllowance(resources.clock.seconds)
        # Blocks are shorter than their lists, or hardly longer.
        self._incoming = IncomingFrames(resources, self, limits.header_list + 4096)
        self._streams: dict[int, Http2Stream] = {}
        #: Streams that are open, and those whose work goes on.
        self._places = 0
        #: Streams with data or calls that wait until the client takes more of all streams, and of
        #: the stream itself.
        self._waiting: dict[int, Http2Stream] = {}
        self._blocked: dict[int, Http2Stream] = {}
        #: The transport's buffer is full, since when.
        self.is_full = False
        self._full_since = 0.0
        #: Bytes taken of the connection's window and not told to the client.
        self._unacknowledged = 0
        self.is_closing = False
        self._draining = False
        #: The last stream that the client was told is served, when it was told to go.
        self._last_served = 2**31 - 1
        #: Told where the connection is lost before anything more comes. They are no more than the
        #: streams that what came by now has opened.
        self._unproven: list[Callable[[], None]] = []
        #: Answers to pings that wait for something to leave with.
        self._pongs: list[bytes] = []
        self._pong_alarm = Alarm(resources.clock, self._send_pongs)
        self._scope = Scope()
        self._scope.on_end(self._pong_alarm.cancel)
        self._idle_since = 0.0
        self._pinged_at: float | None = None

    @property
    def unanswered(self) -> int:
        """Streams that are not over."""
        return len(self._streams)

    @property
    def drain_seconds(self) -> float | None:
        """See `OpenConnection`."""
        return self._limits.drain_seconds

    # Twisted's side

    def connectionMade(self) -> None:
        transport: Any = self.transport
        self.connected = True
        self.address, self.local_address = ends_of(transport, self.forwarded)
        self._incoming.last_received = self._idle_since = self._clock.seconds()
        if ITCPTransport.providedBy(transport):
            transport.setTcpNoDelay(True)
        self._outbox = Outbox(self._outboxes, transport)
        transport.registerProducer(self, True)
        self._group.add(self)
        self.flush()

    def dataReceived(self, data: bytes) -> None:
        self._pinged_at = None
        if self._unproven:
            self._unproven = []
        self._outboxes.gather(self._incoming.take, data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.connected = False
        self.is_closing = True
        self._scope.end()
        self._outbox.close()
        self._incoming.drop()
        self._waiting.clear()
        self._blocked.clear()
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.over()
        unproven, self._unproven = self._unproven, []
        for callback in unproven:
            callback()
        self._group.discard(self)

    # IPushProducer: the transport's buffer is full, empty again, gone

    def pauseProducing(self) -> None:
        self.is_full = True
        self._full_since = self._clock.seconds()
        self.transport.pauseProducing()  # type: ignore[union-attr]

    def resumeProducing(self) -> None:
        self.is_full = False
        self._outboxes.gather(self._catch_up)
        self._incoming.read_on()

    def stopProducing(self) -> None:
        """The connection is lost; `connectionLost` does the rest."""

    # The listener's side

    def check(self, now: float) -> None:
        """Closes a connection that is idle, whose client is gone, or does not take what it is
        sent, and streams of which it does not."""
        limits = self._limits
        if self.is_closing:
            return
        self._cut_stuck(now)
        if self.is_full and now - self._full_since >= self._config.max_unread_seconds:
            self.end(ErrorCodes.ENHANCE_YOUR_CALM, "it does not take what it is sent")
            self.abort()
        elif not self._places and now - self._idle_since >= limits.idle_seconds:
            self._go_away(ErrorCodes.NO_ERROR, b"idle")
            self.lose_connection()
        elif now - self._incoming.last_received < limits.keepalive_seconds:
            self._pinged_at = None
        elif self._pinged_at is None:
            self._pinged_at = now
            self._outbox.write(make_frame(FrameType.PING, 0, 0, b"are you?"))
        elif now - self._pinged_at >= limits.keepalive_timeout:
            self.log.info("closing {address}: it does not answer a ping", address=self.address)
            self.abort()

    def _cut_stuck(self, now: float) -> None:
        waiting = [*self._waiting.values(), *self._blocked.values()]
        for stream in waiting:
            if not stream.is_closed and stream.is_stuck(now, self._config.max_unread_seconds):
                self.log.info(
                    "a stream of {address} is reset: its client does not take {size} bytes of it",
                    address=self.address,
                    size=stream.queued,
                )
                stream.reset(ErrorCodes.ENHANCE_YOUR_CALM)

    def drain(self) -> None:
        """Takes no more streams; those that are open end first."""
        if not self._draining and not self.is_closing:
            self._draining = True
            self._go_away(ErrorCodes.NO_ERROR, b"the server stops")
            for stream in list(self._streams.values()):
                if stream.handler is not None:
                    stream.handler.draining()

    def lose_connection(self) -> None:
        """Closes the connection; what is written still leaves, for `CLOSE_TIMEOUT`."""
        if self.connected and not self.is_closing:
            transport: Any = self.transport
            self.is_closing = True
            self._outbox.flush()
            # A transport waits for its producer before it closes.
            transport.unregisterProducer()
            self._scope.later(self._clock, CLOSE_TIMEOUT, self.abort)
            transport.loseConnection()

    def abort(self) -> None:
        """Cuts the connection; what is not sent yet is dropped."""
        self.is_closing = True
        self._outbox.close()
        if self.connected:
            self.transport.abortConnection()  # type: ignore[union-attr]

    # IStreamConnection

    def flush(self) -> None:
        data = self.engine.data_to_send()
        if data and self.connected:
            if self._pongs:
                self._send_pongs()
            self._outbox.write(data)

    def refuse_memory(self) -> None:
        self.end(
            ErrorCodes.ENHANCE_YOUR_CALM,
            f"{self.memory.used} bytes wait for it, which are too many (maxBytesInFlight)",
        )
        self.abort()

    def await_window(self, stream: Http2Stream) -> None:
        if self.is_full or not self.engine.outbound_flow_control_window:
            self._waiting[stream.stream_id] = stream
        else:
            self._blocked[stream.stream_id] = stream

    def when_lost(self, callback: Callable[[], None]) -> None:
        self._unproven.append(callback)

    def stream_closed(self, stream: Http2Stream) -> None:
        self._streams.pop(stream.stream_id, None)
        self._waiting.pop(stream.stream_id, None)
        self._blocked.pop(stream.stream_id, None)
        self.engine.forget(stream.stream_id)
        if not stream.is_working:
            self.place_is_free()
        stream.over()

    def place_is_free(self) -> None:
        self._places -= 1
        if not self._places:
            self._idle_since = self._clock.seconds()

    # IFrameConnection

    def frame_came(self, frame: Http2Frame) -> None:
        kind = frame.type
        cost = frame_cost(frame)
        if cost and not self.allowance.spend(cost):
            raise Http2Error(
                ErrorCodes.ENHANCE_YOUR_CALM, f"too many frames of type {kind} that bring nothing"
            )
        if kind == _PING:
            self._ping(frame)
        elif kind not in _IGNORED and kind <= _LAST_KIND:
            self.engine.receive(frame)
            self.flush()

    def end(self, code: ErrorCodes, why: str) -> None:
        if not self.is_closing:
            self.flush()
            self._send_pongs()
            self._go_away(code, why.encode())
            self.log.warn("closing {address}: {reason}", address=self.address, reason=why)
            self.lose_connection()

    def _ping(self, frame: Http2Frame) -> None:
        if len(frame.data) != HEADER_LENGTH + 8 or frame.stream_id:
            raise Http2Error(ErrorCodes.FRAME_SIZE_ERROR, "a PING that is none")
        if not frame.flags & ACK:
            self._pongs.append(make_frame(FrameType.PING, ACK, 0, frame.data[HEADER_LENGTH:]))
            self._pong_alarm.set_if_unset(_PING_LINGER)

    # IEngineEvents

    def request_came(self, stream_id: int, headers: RequestHeaders, *, ended: bool) -> None:
        if self._draining or self._places >= self._limits.streams:
            self.engine.reset_stream(stream_id, ErrorCodes.REFUSED_STREAM)
            self.engine.forget(stream_id)
            if not self.allowance.spend(1):
                raise Http2Error(ErrorCodes.ENHANCE_YOUR_CALM, "too many streams at once")
            return
        stream = self._streams[stream_id] = Http2Stream(self, stream_id)
        stream.client_ended = ended
        self._places += 1
        handler = self._open_stream(stream, headers)
        if stream.is_closed:
            handler.closed()
            return
        stream.handler = handler
        if ended:
            handler.ended()

    def data_came(self, stream_id: int, data: bytes, size: int, *, ended: bool) -> None:
        self._acknowledge(size)
        stream = self._streams.get(stream_id)
        if stream is None:
            if size < _SMALL:
                self._came_late()
            return
        stream.unacknowledged += size
        if ended:
            stream.client_ended = True
        elif stream.unacknowledged >= _WINDOW_STEP:
            self.engine.increment_flow_control_window(stream.unacknowledged, stream_id)
            stream.unacknowledged = 0
        self._incoming.steps = _steps_of(stream, data, ended=ended)

    def request_ended(self, stream_id: int) -> None:
        stream = self._streams.get(stream_id)
        if stream is None:
            self._came_late()
            return
        stream.client_ended = True
        if stream.handler is not None:
            stream.handler.ended()

    def stream_was_reset(self, stream_id: int) -> None:
        stream = self._streams.get(stream_id)
        if stream is not None:
            self.stream_closed(stream)

    def window_grew(self, stream_id: int) -> None:
        if not stream_id:
            self._send_waiting()
        else:
            stream = self._blocked.pop(stream_id, None)
            if stream is not None:
                stream.go_on()

    def all_windows_grew(self) -> None:
        self._waiting.update(self._blocked)
        self._blocked.clear()
        self._send_waiting()

    def _came_late(self) -> None:
        """Counts a frame of a stream that is over, as its client may not have heard yet."""
        if not self.allowance.spend(1):
            raise Http2Error(
                ErrorCodes.ENHANCE_YOUR_CALM, "too many frames of streams that are over"
            )

    def _acknowledge(self, size: int) -> None:
        """Gives the client so many bytes of the connection's window back, some at a time."""
        self._unacknowledged += size
        if self._unacknowledged >= _WINDOW_STEP:
            self.engine.increment_flow_control_window(self._unacknowledged)
            self._unacknowledged = 0

    # What goes

    def _send_pongs(self) -> None:
        pongs, self._pongs = self._pongs, []
        if pongs:
            self._outbox.write(b"".join(pongs))

    def _catch_up(self) -> None:
        """Goes on with what waited until the client takes more."""
        self._send_waiting()
        self._incoming.catch_up()

    def _send_waiting(self) -> None:
        """Has each stream that waits send what it may, those that waited longest first."""
        for stream_id in list(self._waiting):
            if self.is_full or not self.engine.outbound_flow_control_window:
                break
            stream = self._waiting.pop(stream_id, None)
            if stream is not None:
                stream.go_on()
                # What many send together may fill the transport, which says so then.
                self.flush()
        self.flush()

    def _go_away(self, code: ErrorCodes, why: bytes) -> None:
        # Never higher than before (RFC 9113, section 6.8): streams that came since were refused.
        self._last_served = min(self._last_served, self.engine.highest_inbound_stream_id)
        self._outbox.write(go_away(self._last_served, code, why))


def _steps_of(stream: Http2Stream, data: bytes, *, ended: bool) -> Iterator[None]:
    """Hands data of a stream on to its handler, whose steps these are."""
    if data and stream.handler is not None:
        yield from stream.handler.received(data)
    # The handler may have ended the stream.
    if ended and stream.handler is not None:
        stream.handler.ended()
