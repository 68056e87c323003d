"""The gRPC port of a whole proxy on real sockets: over TLS, whose files are replaced while it
serves, and at addresses of each kind."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_twisted
from OpenSSL import crypto
from twisted.internet.threads import deferToThread
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.net.address import join_address
from rocketmq_tw.net.server import RemotingServer
from rocketmq_tw.net.tls_contexts import self_signed
from rocketmq_tw.proxy.proto.health_pb2 import HealthCheckRequest, HealthCheckResponse
from rocketmq_tw.proxy.proto.messages import AddressScheme, MessageQueue
from rocketmq_tw.services.proxy import Options, ProxyServer
from tests.support.bare_grpc import BareClient
from tests.support.name_server import NameServerInMemory

#: Seconds that a call may take: a limit, not a time that anything waits.
LIMIT = 60
STAY = "the former ones stay in use"


@asynccontextmanager
async def served(
    keys: Mapping[str, object], name_server: str = "127.0.0.1:1"
) -> AsyncIterator[int]:
    """A proxy of these keys; the number of its gRPC port."""
    from twisted.internet import reactor

    given = {"grpcServerPort": 0, "remotingListenPort": 0, "heartbeatSyncerTopicName": "", **keys}
    words = [word for key, value in given.items() for word in ("-o", f"{key}={value}")]
    options = Options({})
    options.parseOptions(["-n", name_server, *words])
    server = ProxyServer(reactor, options.loaded)
    server.start()
    try:
        yield server.config.grpc_server_port
    finally:
        await server.stop()


class Files:
    """The key and the certificate of a server."""

    def __init__(self, home: Path) -> None:
        self.key, self.certificate = home / "key.pem", home / "certificate.pem"

    def renew(self) -> bytes:
        """Replaces both; the new certificate."""
        key, (certificate,) = self_signed()
        pem = crypto.dump_certificate(crypto.FILETYPE_PEM, certificate)
        _replace(self.certificate, pem)
        _replace(self.key, crypto.dump_privatekey(crypto.FILETYPE_PEM, key))
        return pem

    def spoil(self) -> None:
        """Replaces the certificate by half of it."""
        pem = self.certificate.read_bytes()
        _replace(self.certificate, pem[: len(pem) // 2])


def _replace(path: Path, data: bytes) -> None:
    new = path.with_suffix(".new")
    new.write_bytes(data)
    new.chmod(0o600)
    os.replace(new, path)


class Caller:
    """A client with a connection of its own, which trusts one certificate."""

    def __init__(self, port: int, trusted: bytes) -> None:
        options = [
            ("grpc.ssl_target_name_override", "localhost"),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        credentials = grpc.ssl_channel_credentials(trusted)
        self._channel = grpc.secure_channel(f"127.0.0.1:{port}", credentials, options)
        self._check: Any = self._channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            HealthCheckRequest.SerializeToString,
            HealthCheckResponse.FromString,
        )

    def serves(self) -> bool:
        """Whether the proxy answers: that it is not ready, since it knows no broker. False where
        the connection comes to nothing. Blocks."""
        try:
            answer = self._check(HealthCheckRequest(), timeout=LIMIT)
        except grpc.RpcError as error:
            assert error.code() is grpc.StatusCode.UNAVAILABLE, error
            return False
        return bool(answer.status == HealthCheckResponse.NOT_SERVING)

    def close(self) -> None:
        self._channel.close()


@pytest_twisted.ensureDeferred
async def test_new_connections_get_the_new_certificate_and_old_ones_go_on(tmp_path: Path) -> None:
    files = Files(tmp_path)
    first = files.renew()
    callers: list[Caller] = []
    keys = {
        "bindAddress": "127.0.0.1",
        "tls.server.mode": "enforcing",
        "tlsKeyPath": files.key,
        "tlsCertPath": files.certificate,
    }

    async def serves(trusted: bytes) -> bool:
        callers.append(Caller(port, trusted))
        return bool(await deferToThread(callers[-1].serves))

    async with served(keys) as port:
        try:
            assert await serves(first)
            with capturedLogs() as logs:
                second = files.renew()
                assert await serves(second)
                assert not await serves(first)
                files.spoil()
                assert await serves(second)
                assert await serves(second)
            lines = [formatEvent(event) for event in logs]
            (line,) = [line for line in lines if STAY in line]
            assert str(files.certificate) in line
            for old in callers[:2]:
                assert await deferToThread(old.serves)
        finally:
            for caller in callers:
                caller.close()


def _queues(address: str) -> list[MessageQueue]:
    with BareClient(address, "client") as client:
        return client.queues("T")


@pytest.mark.parametrize(
    ("host", "scheme"),
    [
        ("127.0.0.1", AddressScheme.IPv4),
        ("::1", AddressScheme.IPv6),
        ("localhost", AddressScheme.DOMAIN_NAME),
    ],
)
@pytest_twisted.ensureDeferred
async def test_a_route_leads_where_the_client_asked(host: str, scheme: int) -> None:
    from twisted.internet import reactor

    names = NameServerInMemory(reactor)
    names.register("127.0.0.1:1", "broker-a", "T", 1)
    server = RemotingServer(reactor, NettyServerConfig(bind_address="127.0.0.1"))
    listener = server.listener()
    listener.serve(names.handlers)
    name_server = f"127.0.0.1:{listener.listen()}"
    async with served({"bindAddress": "::"}, name_server) as port:
        (queue,) = await deferToThread(_queues, join_address(host, port))
        endpoints = queue.broker.endpoints
        assert endpoints.scheme == scheme
        assert [(each.host, each.port) for each in endpoints.addresses] == [(host, port)]
    await server.stop()
