"""A connection of HTTP/2 clients: frames come, streams are opened, served and ended.

What a client does never grows our memory: frames, header blocks and streams are bounded, what all
streams hold is counted in the server's budget, and nothing is read from a client that does not take
what it is sent.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from hyperframe.frame import GoAwayFrame, PingFrame
from twisted.internet.interfaces import IPushProducer, ITCPTransport
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketmq_tw.net.connection import ConnectionObserver
from rocketmq_tw.net.haproxy import Forwarded, ends_of
from rocketmq_tw.net.limits import SHARE, ServerResources
from rocketmq_tw.net.outbox import Outbox
from rocketmq_tw.net.protocol import CLOSE_TIMEOUT
from rocketmq_tw.proxy.http2.engine import Http2Engine
from rocketmq_tw.proxy.http2.errors import Http2Error
from rocketmq_tw.proxy.http2.frames import (
    ACK,
    HEADER_LENGTH,
    FrameSplitter,
    FrameType,
    Http2Frame,
)
from rocketmq_tw.proxy.http2.interfaces import OpenStream
from rocketmq_tw.proxy.http2.limits import FrameAllowance, Http2Limits, frame_cost
from rocketmq_tw.proxy.http2.memory import ConnectionMemory, MemoryRefused
from rocketmq_tw.proxy.http2.streams import Http2Stream
from rocketmq_tw.runtime.scope import Scope

#: Bytes taken from a client that are told to it in one.
_WINDOW_STEP = 64 * 1024
#: The streams that are open go on when a client takes no more of ours; priorities are advice.
_IGNORED = (FrameType.GOAWAY, FrameType.PRIORITY)


@implementer(IPushProducer)
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
        self._turns = resources.turns
        self._outboxes = resources.outboxes
        self._outbox = Outbox(resources.outboxes, None)
        self._group = group
        self._limits = limits
        self._open_stream = open_stream
        self.engine = Http2Engine(limits)
        self.allowance = FrameAllowance(resources.clock.seconds)
        # Blocks are shorter than their lists, or hardly longer.
        self._splitter = FrameSplitter(limits.header_list + 4096)
        self._streams: dict[int, Http2Stream] = {}
        #: Streams that are open, and those whose work goes on.
        self._places = 0
        #: Streams with data or calls that wait until the client takes more of all streams, and of
        #: the stream itself.
        self._waiting: dict[int, Http2Stream] = {}
        self._blocked: dict[int, Http2Stream] = {}
        #: Frames that wait for the connection's turn; nothing is read meanwhile.
        self._later: deque[Http2Frame] = deque()
        self._waits = False
        #: The transport's buffer is full, since when.
        self.is_full = False
        self._full_since = 0.0
        #: Bytes taken of the connection's window and not told to the client.
        self._unacknowledged = 0
        self._closing = False
        self._draining = False
        self._scope = Scope()
        self.last_received = 0.0
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
        self.last_received = self._idle_since = self._clock.seconds()
        if ITCPTransport.providedBy(transport):
            transport.setTcpNoDelay(True)
        self._outbox = Outbox(self._outboxes, transport)
        transport.registerProducer(self, True)
        self._group.add(self)
        self.flush()

    def dataReceived(self, data: bytes) -> None:
        self._outboxes.gather(self._take, data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.connected = False
        self._closing = True
        self._scope.end()
        self._outbox.close()
        self._later.clear()
        self._waiting.clear()
        self._blocked.clear()
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.over()
        self.memory.hold_frames(0)
        self._group.discard(self)

    # IPushProducer: the transport's buffer is full, empty again, gone

    def pauseProducing(self) -> None:
        self.is_full = True
        self._full_since = self._clock.seconds()
        self.transport.pauseProducing()  # type: ignore[union-attr]

    def resumeProducing(self) -> None:
        self.is_full = False
        self._outboxes.gather(self._send_waiting)
        self._read_on()

    def stopProducing(self) -> None:
        """The connection is lost; `connectionLost` does the rest."""

    # The listener's side

    def check(self, now: float) -> None:
        """Closes a connection that is idle, whose client is gone, or does not take what it is
        sent, and streams of which it does not."""
        limits = self._limits
        if self._closing:
            return
        self._cut_stuck(now)
        if self.is_full and now - self._full_since >= self._config.max_unread_seconds:
            self._end(ErrorCodes.ENHANCE_YOUR_CALM, "it does not take what it is sent")
            self.abort()
        elif not self._places and now - self._idle_since >= limits.idle_seconds:
            self._go_away(ErrorCodes.NO_ERROR, b"idle")
            self.lose_connection()
        elif now - self.last_received < limits.keepalive_seconds:
            self._pinged_at = None
        elif self._pinged_at is None:
            self._pinged_at = now
            self._outbox.write(PingFrame(0, b"are you?").serialize())
        elif now - self._pinged_at >= limits.keepalive_timeout:
            self.log.info("{address} is gone: no answer to a ping", address=self.address)
            self.abort()

    def _cut_stuck(self, now: float) -> None:
        waiting = [*self._waiting.values(), *self._blocked.values()]
        for stream in waiting:
            if not stream.is_closed and stream.is_stuck(now, self._config.max_unread_seconds):
                self.log.info(
                    "{address} does not take the {size} bytes of a stream: reset",
                    address=self.address,
                    size=stream.queued,
                )
                stream.reset(ErrorCodes.ENHANCE_YOUR_CALM)

    def drain(self) -> None:
        """Takes no more streams; those that are open end first."""
        if not self._draining and not self._closing:
            self._draining = True
            self._go_away(ErrorCodes.NO_ERROR, b"the server stops")
            for stream in list(self._streams.values()):
                if stream.handler is not None:
                    stream.handler.draining()

    def lose_connection(self) -> None:
        """Closes; what is written still leaves, for `CLOSE_TIMEOUT`."""
        if self.connected and not self._closing:
            transport: Any = self.transport
            self._closing = True
            self._outbox.flush()
            # A transport waits for its producer before it closes.
            transport.unregisterProducer()
            self._scope.later(self._clock, CLOSE_TIMEOUT, self.abort)
            transport.loseConnection()

    def abort(self) -> None:
        """Cuts the connection; what is not sent yet is dropped."""
        self._closing = True
        self._outbox.close()
        if self.connected:
            self.transport.abortConnection()  # type: ignore[union-attr]

    # The streams' side

    def flush(self) -> None:
        """Hands on what the engine has to send."""
        data = self.engine.data_to_send()
        if data and self.connected:
            self._outbox.write(data)

    def refuse_memory(self) -> None:
        """Cuts the connection: what waits for its client is too much."""
        self._end(
            ErrorCodes.ENHANCE_YOUR_CALM,
            f"{self.memory.used} bytes wait for it, which are too many (maxBytesInFlight)",
        )
        self.abort()

    def await_window(self, stream: Http2Stream) -> None:
        """Has `stream` go on when the client takes more."""
        if self.is_full or not self.engine.outbound_flow_control_window:
            self._waiting[stream.stream_id] = stream
        else:
            self._blocked[stream.stream_id] = stream

    def stream_closed(self, stream: Http2Stream) -> None:
        """The stream is over, and the engine knows."""
        self._streams.pop(stream.stream_id, None)
        self._waiting.pop(stream.stream_id, None)
        self._blocked.pop(stream.stream_id, None)
        self.engine.forget(stream.stream_id)
        if not stream.is_working:
            self.place_is_free()
        stream.over()

    def place_is_free(self) -> None:
        """A stream is over, and its work."""
        self._places -= 1
        if not self._places:
            self._idle_since = self._clock.seconds()

    # What comes

    def _take(self, data: bytes) -> None:
        self.last_received = self._clock.seconds()
        self._pinged_at = None
        if self._closing:
            return
        try:
            frames = self._splitter.feed(data)
        except Http2Error as error:
            self._end(error.code, str(error))
            return
        self._later += frames
        if not self._waits:
            self._carry_out()
        self._count_frames()

    def _count_frames(self) -> None:
        """Has the bytes counted that wait for the rest of a frame or for their turn."""
        held = self._splitter.buffered + sum([len(frame.data) for frame in self._later])
        try:
            self.memory.hold_frames(held)
        except MemoryRefused:
            self._end(
                ErrorCodes.ENHANCE_YOUR_CALM, f"{held} bytes of frames are too many in flight"
            )

    def _carry_out(self) -> None:
        """Carries out the frames that came; a few of them where the reactor is late."""
        later = self._later
        share = len(later)
        if share > SHARE and self._turns.is_late():
            share = SHARE
        try:
            while share and not self._closing:
                share -= 1
                self._frame(later.popleft())
        except Http2Error as error:
            self._end(error.code, str(error))
        except ProtocolError as error:
            # The engine has said so already.
            self.flush()
            self._close(f"it broke the rules of HTTP/2: {error}")
        if self._closing:
            later.clear()
        elif later:
            self._waits = True
            self.transport.pauseProducing()  # type: ignore[union-attr]
            self._turns.wait(self)

    def go_on(self) -> None:
        """See `WaitingConnection`."""
        self._waits = False
        self._carry_out()
        self._count_frames()
        self._read_on()

    def _read_on(self) -> None:
        if not (self._closing or self.is_full or self._waits):
            self.transport.resumeProducing()  # type: ignore[union-attr]

    def _frame(self, frame: Http2Frame) -> None:
        kind = frame.type
        cost = frame_cost(frame)
        if cost and not self.allowance.spend(cost):
            raise Http2Error(
                ErrorCodes.ENHANCE_YOUR_CALM, f"too many frames of type {kind} that bring nothing"
            )
        if kind == FrameType.PING:
            self._ping(frame)
        elif kind in _IGNORED or kind > FrameType.CONTINUATION:
            return
        else:
            for event in self.engine.receive_data(frame.data):
                self._event(event)
                if self._closing:
                    return
            self.flush()

    def _ping(self, frame: Http2Frame) -> None:
        if len(frame.data) != HEADER_LENGTH + 8 or frame.stream_id:
            raise Http2Error(ErrorCodes.FRAME_SIZE_ERROR, "a PING that is none")
        if not frame.flags & ACK:
            answer = PingFrame(0, frame.data[HEADER_LENGTH:])
            answer.flags.add("ACK")
            self._outbox.write(answer.serialize())

    def _event(self, event: Event) -> None:
        if isinstance(event, DataReceived):
            self._data(event)
        elif isinstance(event, RequestReceived):
            self._request(event)
        elif isinstance(event, StreamEnded):
            stream = self._streams.get(event.stream_id)
            if stream is not None:
                stream.client_ended = True
                if stream.handler is not None:
                    stream.handler.ended()
        elif isinstance(event, StreamReset):
            stream = self._streams.get(event.stream_id)
            if stream is not None:
                self.stream_closed(stream)
        elif isinstance(event, WindowUpdated):
            self._window_updated(event.stream_id)
        elif isinstance(event, RemoteSettingsChanged):
            self.engine.bound_header_table()
            # All windows may be larger.
            self._waiting.update(self._blocked)
            self._blocked.clear()
            self._send_waiting()

    def _request(self, event: RequestReceived) -> None:
        stream_id = event.stream_id
        if self._draining or self._places >= self._limits.streams:
            self.engine.reset_stream(stream_id, ErrorCodes.REFUSED_STREAM)
            self.engine.forget(stream_id)
            if not self.allowance.spend(1):
                raise Http2Error(ErrorCodes.ENHANCE_YOUR_CALM, "too many streams at once")
            return
        stream = self._streams[stream_id] = Http2Stream(self, stream_id)
        stream.client_ended = event.stream_ended is not None
        self._places += 1
        handler = self._open_stream(stream, event.headers)
        if stream.is_closed:
            handler.closed()
        else:
            stream.handler = handler

    def _data(self, event: DataReceived) -> None:
        size = event.flow_controlled_length or 0
        self._acknowledge(size)
        stream = self._streams.get(event.stream_id)
        if stream is None or stream.handler is None:
            return
        stream.unacknowledged += size
        if event.stream_ended is not None:
            stream.client_ended = True
        elif stream.unacknowledged >= _WINDOW_STEP:
            self.engine.increment_flow_control_window(stream.unacknowledged, stream.stream_id)
            stream.unacknowledged = 0
        if event.data:
            stream.handler.received(event.data)

    def _acknowledge(self, size: int) -> None:
        """Gives the client so many bytes of the connection's window back, some at a time."""
        self._unacknowledged += size
        if self._unacknowledged >= _WINDOW_STEP:
            self.engine.increment_flow_control_window(self._unacknowledged)
            self._unacknowledged = 0

    # What goes

    def _window_updated(self, stream_id: int | None) -> None:
        if not stream_id:
            self._send_waiting()
        else:
            stream = self._blocked.pop(stream_id, None)
            if stream is not None:
                stream.go_on()

    def _send_waiting(self) -> None:
        """Has each stream that waits send what it may, those that waited longest first."""
        for stream_id in list(self._waiting):
            if self.is_full or not self.engine.outbound_flow_control_window:
                break
            stream = self._waiting.pop(stream_id, None)
            if stream is not None:
                stream.go_on()
        self.flush()

    # The end

    def _go_away(self, code: ErrorCodes, why: bytes) -> None:
        # Not by the engine, which ends all streams then.
        last = self.engine.highest_inbound_stream_id
        self._outbox.write(GoAwayFrame(0, last, code, why).serialize())

    def _end(self, code: ErrorCodes, why: str) -> None:
        """Tells the client what it did wrong, and closes."""
        if not self._closing:
            self.flush()
            self._go_away(code, why.encode())
            self._close(why)

    def _close(self, reason: str) -> None:
        if not self._closing:
            self.log.warn("closing {address}: {reason}", address=self.address, reason=reason)
            self.lose_connection()
