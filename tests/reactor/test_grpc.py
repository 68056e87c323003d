"""grpcio as the client of our gRPC server, on real sockets; it runs in threads of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from queue import SimpleQueue
from typing import Any

import grpc
import pytest_twisted
from google.protobuf.wrappers_pb2 import StringValue
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread

from rocketmq_tw.config.net import NettyServerConfig, TlsConfig
from rocketmq_tw.net.server import RemotingServer
from rocketmq_tw.net.tls import ServerTls
from rocketmq_tw.proxy.grpc.interfaces import (
    BothStreams,
    GrpcError,
    GrpcStatus,
    ICall,
    ServerStream,
    Unary,
)
from rocketmq_tw.proxy.grpc.server import GrpcConfig, GrpcServer

#: Seconds that a call may take: a limit, not a time that anything waits.
LIMIT = 60


def echo(request: StringValue, call: ICall) -> StringValue:
    return request


def never(request: StringValue, call: ICall) -> Deferred[StringValue]:
    return Deferred()


def refuse(request: StringValue, call: ICall) -> StringValue:
    raise GrpcError(GrpcStatus.FAILED_PRECONDITION, "größer als 100 %")


async def count(request: StringValue, call: ICall) -> None:
    from twisted.internet import reactor

    for number in range(int(request.value)):
        call.send(StringValue(value=f"{number}" * 1000))
        await deferLater(reactor, 0)


def chat(call: ICall) -> Callable[[StringValue], None]:
    return lambda message: call.send(StringValue(value=message.value.upper()))


METHODS = {
    "/t/Echo": Unary(StringValue, echo),
    "/t/Never": Unary(StringValue, never),
    "/t/Refuse": Unary(StringValue, refuse),
    "/t/Count": ServerStream(StringValue, count),
    "/t/Chat": BothStreams(StringValue, chat),
}


@asynccontextmanager
async def served(tls: ServerTls | None = None) -> AsyncIterator[str]:
    """Where the methods are served."""
    from twisted.internet import reactor

    server = RemotingServer(reactor, NettyServerConfig(bind_address="127.0.0.1"), tls=tls)
    grpc_server = GrpcServer(reactor, GrpcConfig(), METHODS)  # type: ignore[arg-type]
    listener = server.listener(http2=grpc_server.connection)
    try:
        yield f"127.0.0.1:{listener.listen()}"
    finally:
        await server.stop()


def in_thread(work: Callable[[Any], Any], address: str, options: Any = ()) -> Deferred[Any]:
    """Calls `work` with a channel to `address`, in a thread."""

    def run() -> Any:
        with grpc.insecure_channel(address, options=options) as channel:
            return work(channel)

    return deferToThread(run)


def stub(channel: Any, kind: str, path: str) -> Any:
    """A bare stub of a method."""
    call = getattr(channel, kind)(path, StringValue.SerializeToString, StringValue.FromString)
    return partial(call, timeout=LIMIT)


def unary(channel: Any, path: str) -> Any:
    return stub(channel, "unary_unary", path)


@pytest_twisted.ensureDeferred
async def test_all_kinds_of_calls() -> None:
    def work(channel: Any) -> None:
        call = unary(channel, "/t/Echo")
        for size in (0, 1, 20_000, 3_000_000):
            assert call(StringValue(value="x" * size)).value == "x" * size
        zipped = call(StringValue(value="x" * 50_000), compression=grpc.Compression.Gzip)
        assert len(zipped.value) == 50_000
        counted = stub(channel, "unary_stream", "/t/Count")(StringValue(value="50"))
        assert [each.value for each in counted] == [f"{number}" * 1000 for number in range(50)]

    async with served() as address:
        await in_thread(work, address)


@pytest_twisted.ensureDeferred
async def test_both_sides_talk() -> None:
    def work(channel: Any) -> None:
        said: SimpleQueue[StringValue | None] = SimpleQueue()
        answers = stub(channel, "stream_stream", "/t/Chat")(iter(said.get, None))
        for word in ("a", "b"):
            said.put(StringValue(value=word))
            assert next(answers).value == word.upper()
        said.put(None)
        assert list(answers) == []

    async with served() as address:
        await in_thread(work, address)


@pytest_twisted.ensureDeferred
async def test_errors_reach_the_caller() -> None:
    def status_of(channel: Any, path: str, timeout: float = LIMIT) -> Any:
        try:
            unary(channel, path)(StringValue(value="x"), timeout=timeout)
        except grpc.RpcError as error:
            return error.code(), error.details()
        return None

    def work(channel: Any) -> None:
        refused = status_of(channel, "/t/Refuse")
        assert refused == (grpc.StatusCode.FAILED_PRECONDITION, "größer als 100 %")
        assert status_of(channel, "/t/None")[0] is grpc.StatusCode.UNIMPLEMENTED
        late = status_of(channel, "/t/Never", timeout=0.2)
        assert late[0] is grpc.StatusCode.DEADLINE_EXCEEDED
        assert status_of(channel, "/t/Echo") is None

    async with served() as address:
        await in_thread(work, address)


@pytest_twisted.ensureDeferred
async def test_many_calls_at_once_on_one_channel() -> None:
    def work(channel: Any) -> None:
        call = unary(channel, "/t/Echo")
        answers = [call.func.future(StringValue(value=f"{i}"), timeout=LIMIT) for i in range(500)]
        assert [each.result().value for each in answers] == [f"{i}" for i in range(500)]

    async with served() as address:
        await in_thread(work, address)


@pytest_twisted.ensureDeferred
async def test_grpcio_speaks_tls() -> None:
    tls = ServerTls(TlsConfig(server_mode="enforcing"))

    def work(address: str, certificate: bytes) -> str:
        credentials = grpc.ssl_channel_credentials(certificate)
        options = [("grpc.ssl_target_name_override", "localhost")]
        with grpc.secure_channel(address, credentials, options) as channel:
            return unary(channel, "/t/Echo")(StringValue(value="secret")).value

    async with served(tls) as address:
        certificate = await deferToThread(_certificate_of, address)
        assert await deferToThread(work, address, certificate) == "secret"


def _certificate_of(address: str) -> bytes:
    """The certificate that a server shows."""
    import ssl

    host, port = address.split(":")
    return ssl.get_server_certificate((host, int(port)), timeout=LIMIT).encode()
