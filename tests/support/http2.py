"""HTTP/2 and gRPC in memory: h2 as the client of our server, byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from struct import pack
from typing import Any

import attrs
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    DataReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from hyperframe.frame import GoAwayFrame
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock

from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.net.server import RemotingServer
from rocketmq_tw.net.tls import ServerTls
from rocketmq_tw.proxy.grpc.calls import CallObserver
from rocketmq_tw.proxy.grpc.interfaces import Methods
from rocketmq_tw.proxy.grpc.server import GrpcConfig, GrpcServer
from rocketmq_tw.proxy.http2.connection import Http2Connection
from tests.support.network import MemoryNetwork

ADDRESS = "10.0.0.1:8081"


@attrs.define
class Response:
    """What came of one stream."""

    headers: dict[str, str] = attrs.Factory(dict)
    data: bytearray = attrs.Factory(bytearray)
    ended: bool = False
    #: The code of the reset that ended it.
    reset: int | None = None

    @property
    def status(self) -> int:
        """gRPC's status, -1 where there is none yet."""
        return int(self.headers.get("grpc-status", -1))

    @property
    def messages(self) -> list[bytes]:
        """The messages of gRPC that are complete."""
        result, start = [], 0
        while len(self.data) >= start + 5:
            end = start + 5 + int.from_bytes(self.data[start + 1 : start + 5])
            if end <= len(self.data):
                result.append(bytes(self.data[start + 5 : end]))
            start = end
        return result


def framed(message: bytes, *, compressed: bool = False) -> bytes:
    """A message of gRPC with its prefix."""
    return pack(">BL", compressed, len(message)) + message


class Http2Client(Protocol):
    """A client whose bytes the test may take, cut and send itself: with `corked` they stay in
    `h2`."""

    def __init__(self, settings: Mapping[Any, int] | None = None) -> None:
        self.h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        # Takes whatever is sent, as long as the test does not say otherwise.
        self.takes = True
        self.corked = False
        self.responses: dict[int, Response] = {}
        self.lost = False
        #: The code and text of a GOAWAY.
        self.goaway: tuple[int, bytes] | None = None
        #: The last stream that each GOAWAY named.
        self.last_streams: list[int] = []
        self._held = b""
        self.h2.initiate_connection()
        if settings:
            self.h2.update_settings(dict(settings))

    def connectionMade(self) -> None:
        self.flush()

    def flush(self) -> None:
        """Sends what h2 has."""
        if not self.corked and not self.lost:
            self.transport.write(self.h2.data_to_send())  # type: ignore[union-attr]

    def dataReceived(self, data: bytes) -> None:
        for event in self.h2.receive_data(self._without_goaway(data)):
            response = self.responses.get(getattr(event, "stream_id", 0) or 0)
            if response is None:
                continue
            if isinstance(event, ResponseReceived | TrailersReceived):
                headers = [(str(name), str(value)) for name, value in event.headers or ()]
                response.headers.update(headers)
            elif isinstance(event, DataReceived):
                response.data += event.data or b""
                if self.takes:
                    size = event.flow_controlled_length or 0
                    self.h2.acknowledge_received_data(size, event.stream_id or 0)
            elif isinstance(event, StreamEnded):
                response.ended = True
            elif isinstance(event, StreamReset):
                response.reset = int(event.error_code or 0)
        self.flush()

    def _without_goaway(self, data: bytes) -> bytes:
        """Takes the frames that say goodbye out of whole frames: h2 would end all streams."""
        self._held += data
        taken, start = [], 0
        while len(self._held) >= start + 9:
            end = start + 9 + int.from_bytes(self._held[start : start + 3])
            if end > len(self._held):
                break
            if self._held[start + 3] == GoAwayFrame.type:
                payload = self._held[start + 9 : end]
                self.goaway = (int.from_bytes(payload[4:8]), payload[8:])
                self.last_streams.append(int.from_bytes(payload[:4]))
            else:
                taken.append(self._held[start:end])
            start = end
        self._held = self._held[start:]
        return b"".join(taken)

    def connectionLost(self, reason: Any = None) -> None:
        self.lost = True

    def open(
        self, path: str, headers: Mapping[str, str] | None = None, *, end: bool = False
    ) -> tuple[int, Response]:
        """Begins a call."""
        stream_id = self.h2.get_next_available_stream_id()
        response = self.responses[stream_id] = Response()
        sent = {
            ":method": "POST",
            ":scheme": "http",
            ":path": path,
            ":authority": "proxy:8081",
            "content-type": "application/grpc",
            "te": "trailers",
        }
        sent.update(headers or {})
        self.h2.send_headers(stream_id, list(sent.items()), end_stream=end)
        self.flush()
        return stream_id, response

    def send(self, stream_id: int, data: bytes, *, end: bool = False) -> None:
        """Sends data, as far as the server's window and frames have room."""
        largest = self.h2.max_outbound_frame_size
        for start in range(0, len(data), largest) or [0]:
            part = data[start : start + largest]
            self.h2.send_data(stream_id, part, end_stream=end and start + largest >= len(data))
        self.flush()

    def call(self, path: str, message: bytes = b"", **headers: str) -> Response:
        """Sends a call with one message; what comes of it stands in the response later.
        `grpc_timeout="1S"` is the header `grpc-timeout`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        stream_id, response = self.open(path, named)
        self.send(stream_id, framed(message), end=True)
        return response


class GrpcInMemory:
    """A `GrpcServer` with some methods at `ADDRESS`, on a clock; request 1 of remoting is answered
    with its body at the same port."""

    def __init__(
        self,
        methods: Methods,
        config: GrpcConfig | None = None,
        *,
        tls: ServerTls | None = None,
        buffer_size: int = 65536,
        clock: Clock | None = None,
        observe: CallObserver | None = None,
        **limits: Any,
    ) -> None:
        self.clock = clock or Clock()
        self.network = MemoryNetwork(self.clock, buffer_size=buffer_size)
        self.server = GrpcServer(self.clock, config or GrpcConfig(), methods, observe)
        self.remoting = RemotingServer(self.clock, NettyServerConfig(**limits), tls=tls)
        self.listener = self.remoting.listener(http2=self._build)
        self.listener.register(1, lambda request, peer: request.response(body=request.body))
        self.network.listen(ADDRESS, self.listener.factory)
        self.made: list[Http2Connection] = []

    def _build(self, resources: Any, group: Any) -> Http2Connection:
        self.made.append(self.server.connection(resources, group))
        return self.made[-1]

    @property
    def used(self) -> int:
        """Bytes that all connections hold."""
        return self.remoting.bytes_in_flight

    def receive(self, data: bytes) -> None:
        """Has the server read these bytes, in one piece, over its newest connection."""
        self.network.ends("10.0.0.1")[-1].protocol.dataReceived(data)

    def connect(self, make: Callable[[], Protocol] = Http2Client) -> Any:
        """A client that is connected, by default an `Http2Client`."""
        made: list[Any] = []
        connecting = self.network.connect("10.0.0.9", ADDRESS, Factory.forProtocol(make))
        connecting.addBoth(made.append)
        self.settle()
        return made[0]

    def settle(self, turns: int = 20) -> None:
        """Delivers all that is on its way, without time going on."""
        for _ in range(turns):
            self.clock.advance(0)

    def advance(self, seconds: float) -> None:
        """Lets time pass."""
        self.clock.pump([1.0] * int(seconds) + [seconds % 1])


def pieces(data: bytes, cuts: Iterable[int]) -> Sequence[bytes]:
    """Returns `data` cut at these places."""
    places = [0, *sorted(cuts), len(data)]
    return [data[start:end] for start, end in pairwise(places)]
