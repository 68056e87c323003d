"""One port for remoting, HTTP/2, TLS with either inside, and load balancers in front."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.wrappers_pb2 import StringValue
from twisted.internet.protocol import Factory
from twisted.internet.ssl import CertificateOptions
from twisted.protocols.tls import TLSMemoryBIOFactory

from rocketmq_tw.config.net import TlsConfig
from rocketmq_tw.net.tls import ServerTls
from rocketmq_tw.proxy.grpc.interfaces import ICall, Unary
from rocketmq_tw.wire.command import RemotingCommand, encode_command
from tests.support.http2 import ADDRESS, GrpcInMemory, Http2Client
from tests.support.memory_server import RawClient
from tests.support.network import MemoryTransport


def tell_ends(request: StringValue, call: ICall) -> StringValue:
    return StringValue(value=f"{call.address} {call.local_address}")


METHODS = {"/t/Ends": Unary(StringValue, tell_ends)}


def served(mode: str, **limits: Any) -> GrpcInMemory:
    return GrpcInMemory(METHODS, tls=ServerTls(TlsConfig(server_mode=mode)), **limits)


def secured(server: GrpcInMemory, make: Any, offered: list[bytes]) -> tuple[Any, Any]:
    """A client within TLS, and the protocol of TLS."""
    options = CertificateOptions(acceptableProtocols=offered or None)
    wrapped = TLSMemoryBIOFactory(options, True, Factory.forProtocol(make), server.clock)
    made: list[Any] = []
    server.network.connect("10.0.0.9", ADDRESS, wrapped).addBoth(made.append)
    server.settle()
    return made[0].wrappedProtocol, made[0]


def grpc_answer(server: GrpcInMemory, client: Http2Client) -> str:
    response = client.call("/t/Ends")
    server.settle()
    return StringValue.FromString(response.messages[0]).value if response.messages else ""


def remoting_answer(server: GrpcInMemory, client: RawClient) -> list[bytes]:
    client.send(1, b"body")
    server.settle()
    return [response.body for response in client.responses]


@pytest.mark.parametrize("mode", ["disabled", "permissive"])
def test_plain_clients_of_both_protocols_share_a_port(mode: str) -> None:
    server = served(mode)
    assert grpc_answer(server, server.connect()).startswith("10.0.0.9:")
    assert remoting_answer(server, server.connect(RawClient)) == [b"body"]


@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
def test_tls_takes_both_protocols(mode: str) -> None:
    server = served(mode)
    client, tls = secured(server, Http2Client, [b"h2"])
    assert tls.negotiatedProtocol == b"h2"
    assert grpc_answer(server, client).startswith("10.0.0.9:")
    client, tls = secured(server, RawClient, [])
    assert tls.negotiatedProtocol is None
    assert remoting_answer(server, client) == [b"body"]
    _, tls = secured(server, Http2Client, [b"http/1.1"])
    assert tls.negotiatedProtocol is None


def test_enforcing_refuses_what_is_plain() -> None:
    server = served("enforcing")
    for make in (Http2Client, RawClient):
        client = server.connect(make)
        if make is RawClient:
            client.send(1)
        server.settle()
        assert client.lost
    assert len(server.listener.connections) == 0


def test_remoting_alone_closes_on_http2() -> None:
    server = served("disabled")
    listener = server.remoting.listener()
    server.network.listen(ADDRESS, listener.factory)
    client = server.connect()
    server.settle()
    assert client.lost


HEADER = b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 8081\r\n"


class Behind(Http2Client):
    """A client behind a load balancer."""

    def connectionMade(self) -> None:
        self.transport.write(HEADER)  # type: ignore[union-attr]
        super().connectionMade()


class RawBehind(RawClient):
    """A classic client behind a load balancer."""

    def connectionMade(self) -> None:
        self.transport.write(HEADER)  # type: ignore[union-attr]


def test_a_trusted_load_balancer_tells_the_ends() -> None:
    server = served("permissive", ha_proxy_addresses="10.0.0.0/24")
    peers: list[tuple[str, str]] = []
    server.listener.register(
        1,
        lambda request, peer: (
            peers.append((peer.address, peer.local_address)) or request.response(body=request.body)
        ),
    )
    ends = "192.0.2.7:4711 198.51.100.1:8081"
    assert grpc_answer(server, server.connect(Behind)) == ends
    assert remoting_answer(server, server.connect(RawBehind)) == [b"body"]
    assert peers == [("192.0.2.7:4711", "198.51.100.1:8081")]
    # A health check of its own, without a header.
    assert grpc_answer(server, server.connect()).startswith("10.0.0.9:")


def test_a_stranger_does_not_choose_its_address() -> None:
    server = served("permissive", ha_proxy_addresses="10.7.0.0/24")
    client = server.connect(Behind)
    server.settle()
    assert client.lost
    assert len(server.listener.connections) == 0


def test_tls_comes_behind_the_header() -> None:
    server = served("enforcing", ha_proxy_addresses="10.0.0.9")

    options = CertificateOptions(acceptableProtocols=[b"h2"])
    factory = TLSMemoryBIOFactory(options, True, Factory.forProtocol(Http2Client), server.clock)
    inner = factory.buildProtocol(None)
    begin = inner.makeConnection

    def after_header(transport: MemoryTransport) -> None:
        transport.write(HEADER)
        begin(transport)

    inner.makeConnection = after_header
    factory.buildProtocol = lambda _: inner
    server.network.connect("10.0.0.9", ADDRESS, factory)
    server.settle()
    assert grpc_answer(server, inner.wrappedProtocol) == "192.0.2.7:4711 198.51.100.1:8081"


@pytest.mark.parametrize("sent", [b"", b"P", b"PRI", b"PROXY TCP4 1", b"\x16\x03\x01\x02\x00\x01"])
def test_a_connection_that_does_not_say_what_it_is_is_cut(sent: bytes) -> None:
    server = served("permissive", ha_proxy_addresses="10.0.0.0/24")
    client = server.connect(RawClient)
    client.transport.write(sent)
    server.settle()
    assert len(server.listener.connections) == 1
    server.advance(130)
    server.settle()
    assert client.lost
    assert len(server.listener.connections) == 0
    assert server.used == 0


def test_first_bytes_may_come_one_by_one() -> None:
    server = served("permissive", ha_proxy_addresses="10.0.0.0/24")
    frame = encode_command(RemotingCommand(1, body=b"slow", opaque=1))
    client = server.connect(RawClient)
    for byte in HEADER + frame:
        server.receive(bytes([byte]))
    server.settle()
    assert [response.body for response in client.responses] == [b"slow"]
