"""Serves gRPC: finds the method of each call and refuses what is none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import attrs
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from rocketmq_tw.net.connection import ConnectionObserver
from rocketmq_tw.net.limits import ServerResources
from rocketmq_tw.proxy.grpc.calls import Call, CallObserver, too_much_in_flight
from rocketmq_tw.proxy.grpc.framing import ENCODINGS, IDENTITY, MessageReader
from rocketmq_tw.proxy.grpc.headers import (
    GRPC_CONTENT_TYPE,
    RESPONSE_HEADERS,
    read_headers,
    status_trailers,
    timeout_of,
)
from rocketmq_tw.proxy.grpc.interfaces import GrpcError, GrpcStatus, Methods
from rocketmq_tw.proxy.http2.connection import Http2Connection
from rocketmq_tw.proxy.http2.interfaces import (
    HeaderList,
    IStream,
    IStreamHandler,
    RequestHeaders,
)
from rocketmq_tw.proxy.http2.limits import Http2Limits
from rocketmq_tw.proxy.http2.memory import MemoryRefused

#: Not grpc-web, whose framing is another.
_CONTENT_TYPES = re.compile(rf"{GRPC_CONTENT_TYPE.decode()}($|[+;])")


@attrs.frozen
class GrpcConfig:
    """What a gRPC server takes."""

    #: Bytes of a request's message, compressed or not.
    largest_message: int = 130 * 1024 * 1024
    connections: Http2Limits = attrs.field(factory=Http2Limits)


class GrpcServer:
    """The methods of a server. A listener's connections are built by `connection`."""

    def __init__(
        self,
        reactor: IReactorTime,
        config: GrpcConfig,
        methods: Methods,
        observe: CallObserver | None = None,
    ) -> None:
        """`observe` is told of each call that has ended, but of streams both ways."""
        self._observe = observe
        self._clock = reactor
        self._config = config
        self._methods = methods

    def connection(self, resources: ServerResources, group: ConnectionObserver) -> Http2Connection:
        """Builds a connection of a listener."""
        return Http2Connection(resources, group, self._config.connections, self._open)

    def _open(self, stream: IStream, headers: RequestHeaders) -> IStreamHandler:
        metadata = read_headers(headers)
        refusal = _http_refusal(metadata)
        if refusal is not None:
            stream.write(refusal, ends=True)
            return _Refused()
        try:
            timeout = timeout_of(metadata)
            call = self._call(stream, metadata)
        except GrpcError as error:
            trailers = status_trailers(error.status, str(error))
            stream.write([*RESPONSE_HEADERS, *trailers], ends=True)
            return _Refused()
        call.begin(timeout)
        return call

    def _call(self, stream: IStream, metadata: dict[str, str]) -> Call:
        encoding = metadata.get("grpc-encoding", IDENTITY)
        if encoding not in ENCODINGS:
            raise GrpcError(
                GrpcStatus.UNIMPLEMENTED,
                f"grpc-encoding {encoding[:40]!r}: give one of {', '.join(ENCODINGS)}",
            )
        method = self._methods.get(metadata[":path"])
        if method is None:
            # What is not ASCII takes nine times as much in an answer.
            path = metadata[":path"][:200].encode("ascii", "replace").decode()
            raise GrpcError(GrpcStatus.UNIMPLEMENTED, f"there is no method {path}")
        limits = method.limits
        largest = min(self._config.largest_message, limits.largest)
        reader = MessageReader(largest, min(largest, limits.unpacked), encoding)
        try:
            return Call(self._clock, stream, metadata, method, reader, self._observe)
        except MemoryRefused:
            raise too_much_in_flight() from None


def _http_refusal(metadata: dict[str, Any]) -> HeaderList | None:
    """Returns HTTP's answer to what is no gRPC call; None for a call."""
    if metadata.get(":method") != "POST":
        return ((b":status", b"405"), (b"allow", b"POST"))
    if not _CONTENT_TYPES.match(metadata.get("content-type", "")):
        return ((b":status", b"415"), (b"accept", GRPC_CONTENT_TYPE))
    if not metadata.get(":path", "").startswith("/"):
        return ((b":status", b"400"),)
    return None


@implementer(IStreamHandler)
class _Refused:
    """Takes what comes of a stream that was refused."""

    def received(self, data: bytes) -> Iterator[None]:
        """The client had sent it before it heard of that."""
        return iter(())

    def ended(self) -> None:
        """It is answered already."""

    def draining(self) -> None:
        """It is answered already."""

    def closed(self) -> None:
        """Nothing is held."""
