"""One call of a client: its messages come, go to the handler, and its responses go back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from google.protobuf.message import DecodeError, Message
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketmq_tw.net.protocol import as_deferred
from rocketmq_tw.proxy.grpc.fields import SMALL_MESSAGE, check_fields
from rocketmq_tw.proxy.grpc.framing import MessageReader, encode_message
from rocketmq_tw.proxy.grpc.headers import OK_TRAILERS, RESPONSE_HEADERS, status_trailers
from rocketmq_tw.proxy.grpc.interfaces import (
    BothStreams,
    GrpcError,
    GrpcStatus,
    ICall,
    Method,
    ServerStream,
    Unary,
)
from rocketmq_tw.proxy.grpc.latency import CallResult
from rocketmq_tw.proxy.http2.interfaces import HeaderList, Held, IStream, IStreamHandler
from rocketmq_tw.proxy.http2.memory import MemoryRefused
from rocketmq_tw.runtime.scope import Scope

#: Bytes of answers that may wait while the client goes on to ask.
MOST_QUEUED = 1024 * 1024
#: What a call costs beside its message, roughly.
CALL_OVERHEAD = 4096
#: What each header of a call costs beside its texts, roughly.
_HEADER_OVERHEAD = 160
#: Seconds within which a request is complete.
REQUEST_SECONDS = 60.0

#: What comes of parsing what is no message. protobuf in Python, which reads health and reflection
#: on PyPy, lets the error of a text that is no UTF-8 through, and before 4.25.8 that of nesting
#: without end.
_NO_MESSAGE = (DecodeError, UnicodeDecodeError, RecursionError)

# Looked up once: each look into an enumeration costs, and these are for each call.
_OK = GrpcStatus.OK
_REQUEST = Held.REQUEST

#: Told what a call ended with, and how many milliseconds it took.
CallObserver = Callable[[CallResult, float], None]


@implementer(ICall, IStreamHandler)
class Call:
    """A call of a method that there is."""

    log = Logger()

    __slots__ = (
        "_awaits_request",
        "_began",
        "_clock",
        "_cut",
        "_expiry",
        "_is_cut",
        "_message",
        "_method",
        "_observe",
        "_on_message",
        "_opened",
        "_reader",
        "_scope",
        "_since",
        "_stream",
        "address",
        "authority",
        "deadline",
        "local_address",
        "metadata",
        "method",
        "status",
    )

    def __init__(
        self,
        clock: IReactorTime,
        stream: IStream,
        metadata: Mapping[str, str],
        method: Method,
        reader: MessageReader,
        observe: CallObserver | None,
    ) -> None:
        """Raises `MemoryRefused` where the server has no room for it."""
        #: Bytes that the call holds beside its messages.
        self._opened = CALL_OVERHEAD + _size_of(metadata)
        stream.hold(_REQUEST, self._opened)
        self._clock = clock
        self._observe = observe
        self._since = clock.seconds()
        self._stream = stream
        self._method = method
        self._reader = reader
        self.method = metadata[":path"]
        self.metadata = metadata
        self.authority = metadata.get(":authority", "")
        self.address = stream.address
        self.local_address = stream.local_address
        self.deadline: float | None = None
        #: What the call ended with; None while it goes on.
        self.status: GrpcStatus | None = None
        #: Headers of the response are sent.
        self._began = False
        self._message: bytes | None = None
        self._on_message: Callable[[Any], None] | None = None
        self._expiry: IDelayedCall | None = None
        #: It is the time of the request that expires, which is shorter than the call's.
        self._awaits_request = False
        self._scope = Scope()
        #: Whether the answer does not leave whole, and its end where it does not.
        self._cut: Scope | None = None
        self._is_cut = False

    def begin(self, timeout: float | None) -> None:
        """Opens the call, which may take so many seconds."""
        if timeout is not None:
            self.deadline = self._clock.seconds() + timeout
            if timeout <= 0:
                self._expired()
                return
        if isinstance(self._method, BothStreams):
            self._guarded(self._open_both, self._method)
        elif timeout is None or timeout > REQUEST_SECONDS:
            self._awaits_request = True
            timeout = REQUEST_SECONDS
        if timeout is not None and not self.is_over:
            self._expiry = self._clock.callLater(timeout, self._expired)

    # ICall

    @property
    def is_over(self) -> bool:
        return self._scope.is_over

    def send(self, message: Message) -> None:
        if self._scope.is_over:
            return
        headers = None if self._began else RESPONSE_HEADERS
        self._began = True
        self._stream.write(headers, encode_message(message.SerializeToString()))

    def when_ready(self, callback: Callable[[], None]) -> None:
        if not self._scope.is_over:
            self._stream.when_ready(callback)

    def on_end(self, callback: Callable[[], None]) -> None:
        self._scope.on_end(callback)

    def hold(self, size: int) -> None:
        try:
            self._stream.hold(Held.HANDLER, size)
        except MemoryRefused:
            raise too_much_in_flight() from None

    def on_cut(self, callback: Callable[[], None]) -> None:
        if self._is_cut:
            callback()
        elif not self._stream.is_sent:
            if self._cut is None:
                self._cut = Scope()
            self._cut.on_end(callback)

    def finish(self, error: GrpcError | None = None) -> None:
        if self._scope.is_over:
            return
        if error is None:
            self._end(GrpcStatus.OK, b"", OK_TRAILERS)
        else:
            self._end(error.status, b"", status_trailers(error.status, str(error)))

    # IStreamHandler

    def received(self, data: bytes) -> Iterator[None]:
        if self._scope.is_over:
            return
        try:
            for message in self._reader.feed(data):
                self._received_message(message)
                yield
                if self._scope.is_over:
                    return
            held = self._reader.buffered + len(self._message or b"")
            self._stream.hold(_REQUEST, self._opened + held)
        except GrpcError as error:
            self.finish(error)
        except MemoryRefused:
            self.finish(too_much_in_flight())

    def ended(self) -> None:
        if self._scope.is_over:
            return
        if self._reader.buffered:
            self.finish(GrpcError(GrpcStatus.INVALID_ARGUMENT, "the last message is not complete"))
        elif isinstance(self._method, BothStreams):
            self.finish()
        elif self._message is None:
            self.finish(GrpcError(GrpcStatus.INVALID_ARGUMENT, "the call has no request"))
        else:
            message, self._message = self._message, None
            if self._awaits_request:
                self._request_came()
            self._guarded(self._answer, message)

    def draining(self) -> None:
        # A stream of responses without one may wait for long until it has something to say.
        waits = isinstance(self._method, ServerStream) and not self._began
        if waits or isinstance(self._method, BothStreams):
            self.finish(GrpcError(GrpcStatus.UNAVAILABLE, "the server stops: ask another one"))

    def closed(self) -> None:
        if not self._scope.is_over:
            self._over(GrpcStatus.CANCELLED)
        if not self._stream.is_sent:
            self._tell_cut()
        elif self._cut is not None:
            self._stream.when_lost(self._tell_cut)

    # The handler

    def _received_message(self, message: bytes) -> None:
        if self._on_message is not None:
            if self._stream.queued >= MOST_QUEUED:
                raise GrpcError(
                    GrpcStatus.RESOURCE_EXHAUSTED,
                    f"{self._stream.queued} bytes of answers wait: take them before you send more",
                )
            self._guarded(self._on_message, self._parsed(message))
        elif self._message is not None:
            raise GrpcError(GrpcStatus.INVALID_ARGUMENT, "a second request; the call takes one")
        else:
            self._message = message

    def _parsed(self, data: bytes) -> Message:
        kind = self._method.request
        if len(data) > SMALL_MESSAGE:
            check_fields(data, self._method.limits)
        try:
            return kind.FromString(data)
        except _NO_MESSAGE as error:
            raise GrpcError(
                GrpcStatus.INVALID_ARGUMENT, f"the request is no {kind.DESCRIPTOR.full_name}"
            ) from error

    def _open_both(self, method: BothStreams) -> None:
        self._on_message = method.open(self)

    def _answer(self, message: bytes) -> None:
        """Has the handler answer the one request."""
        method = self._method
        assert not isinstance(method, BothStreams)
        result = method.handler(self._parsed(message), self)
        if isinstance(result, Message) or result is None:
            self._answered(result)
            return
        self._stream.begin_work()
        as_deferred(result).addBoth(self._work_ended)

    def _answered(self, response: Message | None) -> None:
        if self._scope.is_over:
            return
        if not isinstance(self._method, Unary):
            self.finish()
        elif response is None:
            raise TypeError("the handler has no response")
        else:
            data = encode_message(response.SerializeToString())
            self._end(GrpcStatus.OK, data, OK_TRAILERS)

    def _guarded(self, call: Callable[[Any], None], argument: Any) -> None:
        try:
            call(argument)
        except Exception:
            self._failed(Failure())

    def _failed(self, failure: Failure) -> None:
        error = failure.value
        if not isinstance(error, GrpcError):
            self.log.failure(
                "{method} of {address} failed",
                failure=failure,
                method=self.method,
                address=self.address,
            )
            error = GrpcError(
                GrpcStatus.INTERNAL,
                f"{self.method} failed with {type(error).__name__}; see the server's log",
            )
        self.finish(error)

    def _work_ended(self, outcome: Any) -> None:
        try:
            if isinstance(outcome, Failure):
                self._failed(outcome)
            else:
                self._guarded(self._answered, outcome)
        finally:
            self._stream.end_work()

    # The end

    def _request_came(self) -> None:
        """Leaves the call its own time, once it is not the request that it waits for."""
        self._awaits_request = False
        expiry, deadline = self._expiry, self.deadline
        if expiry is not None and deadline is not None:
            expiry.reset(max(deadline - self._clock.seconds(), 0))
        elif expiry is not None:
            expiry.cancel()
            self._expiry = None

    def _expired(self) -> None:
        self._expiry = None
        if self._awaits_request:
            reason = f"the request was not complete within {REQUEST_SECONDS:.0f} s"
        else:
            reason = "the call took longer than grpc-timeout"
        self.finish(GrpcError(GrpcStatus.DEADLINE_EXCEEDED, reason))

    def _end(self, status: GrpcStatus, data: bytes, trailers: HeaderList) -> None:
        began, self._began = self._began, True
        self._over(status)
        if began:
            self._stream.write(None, data, trailers)
        elif data:
            self._stream.write(RESPONSE_HEADERS, data, trailers)
        else:
            self._stream.write([*RESPONSE_HEADERS, *trailers], ends=True)

    def _over(self, status: GrpcStatus) -> None:
        self.status = status
        expiry, self._expiry = self._expiry, None
        if expiry is not None:
            expiry.cancel()
        self._scope.end()
        if self._observe is not None and not isinstance(self._method, BothStreams):
            took = (self._clock.seconds() - self._since) * 1000
            self._observe(CallResult(self.method, status), took)
        if status is not _OK:
            self._tell_cut()

    def _tell_cut(self) -> None:
        self._is_cut = True
        if self._cut is not None:
            self._cut.end()


def _size_of(metadata: Mapping[str, str]) -> int:
    # A plain loop: PyPy does not compile what `map` runs.
    size = 0
    for name, value in metadata.items():
        size += len(name) + len(value) + _HEADER_OVERHEAD
    return size


def too_much_in_flight() -> GrpcError:
    """Returns the error of a call that the server has no room for."""
    return GrpcError(
        GrpcStatus.RESOURCE_EXHAUSTED, "too many bytes are in flight: send it again later"
    )
