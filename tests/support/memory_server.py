"""A server in memory with a few handlers, and clients that speak frames to it."""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock

from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.net.interfaces import NO_CHECKS, AccessChecks, IPeer
from rocketmq_tw.net.server import Listener, RemotingServer
from rocketmq_tw.wire.command import RemotingCommand, decode_command, encode_command
from rocketmq_tw.wire.frame import FrameDecoder
from tests.support.network import MemoryNetwork

ADDRESS = "10.0.0.1:10911"
ECHO, BIG, HELD, LATER = 1, 2, 3, 4


class RawClient(Protocol):
    """Sends what it is told and keeps what it gets."""

    def __init__(self) -> None:
        self.decoder = FrameDecoder()
        self.responses: list[RemotingCommand] = []
        self.lost = False

    def dataReceived(self, data: bytes) -> None:
        self.responses += map(decode_command, self.decoder.feed(data))

    def connectionLost(self, reason: Any = None) -> None:
        self.lost = True

    def send(self, code: int, body: bytes = b"", opaque: int = 1, flag: int = 0) -> None:
        command = RemotingCommand(code, body=body, opaque=opaque, flag=flag)
        self.transport.write(encode_command(command))  # type: ignore[union-attr]


class MemoryServer:
    """A server whose one listener serves `ADDRESS`: ECHO answers with the body, BIG with 100,000
    bytes, HELD when the test fires what stands in `held`; for LATER the test replies through the
    peer in `later`."""

    def __init__(
        self, clock: Clock | None = None, *, access: AccessChecks = NO_CHECKS, **config: Any
    ) -> None:
        self.clock = clock or Clock()
        self.network = MemoryNetwork(self.clock)
        self.held: list[tuple[RemotingCommand, Deferred[RemotingCommand]]] = []
        self.later: list[tuple[RemotingCommand, IPeer]] = []
        self.served = 0
        self.server = RemotingServer(self.clock, NettyServerConfig(**config), access=access)
        self.listener = self.server.listener()
        self.serve(self.listener, ADDRESS)

    def serve(self, listener: Listener, address: str) -> None:
        """Gives `listener` the handlers and `address`."""
        listener.register(ECHO, self.echo)
        listener.register(BIG, self.big)
        listener.register(HELD, self.hold)
        listener.register(LATER, lambda request, peer: self.later.append((request, peer)))
        self.network.listen(address, listener.factory)

    @property
    def used(self) -> int:
        """Bytes that the connections hold now."""
        return self.server.bytes_in_flight

    def echo(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        self.served += 1
        return request.response(body=request.body)

    def big(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        return request.response(body=bytes(100_000))

    def hold(self, request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        answer: Deferred[RemotingCommand] = Deferred()
        self.held.append((request, answer))
        return answer

    def connect(self, address: str = ADDRESS) -> Any:
        """A `RawClient`, or the failure that refused it."""
        made: list[Any] = []
        connecting = self.network.connect("10.0.0.9", address, Factory.forProtocol(RawClient))
        connecting.addBoth(made.append)
        return made[0]
