"""The interface by which a gRPC service sees one call, and the ways to declare its methods.

Statuses, metadata and deadlines: the gRPC project's "gRPC over HTTP2".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

import attrs
from google.protobuf.message import Message
from zope.interface import Attribute, Interface


class GrpcStatus(IntEnum):
    """Status codes of gRPC, which end each call."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class GrpcError(Exception):
    """Ends a call with a status other than OK; the message is for the caller."""

    def __init__(self, status: GrpcStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class ICall(Interface):
    """One call of a client."""

    method: str = Attribute("The path: `/package.Service/Method`.")
    metadata: Mapping[str, str] = Attribute("Headers of the caller, by lower-case name.")
    authority: str = Attribute("The host and port that the caller asked for; may be empty.")
    address: str = Attribute("`host:port` of the caller.")
    local_address: str = Attribute("`host:port` that the caller connected to.")
    deadline: float | None = Attribute("When the caller gives up, in the reactor's seconds.")
    is_over: bool = Attribute("Whether the call has ended, or the caller is gone.")

    def send(message: Message) -> None:
        """Sends a message of the response; dropped where the call is over."""

    def when_ready(callback: Callable[[], None]) -> None:
        """Calls `callback` once the caller keeps up with what was sent: at once, or when it has
        taken it; never where the call ends before."""

    def on_end(callback: Callable[[], None]) -> None:
        """Calls `callback` once the call is over for whatever reason; at once if it is already."""

    def hold(size: int) -> None:
        """Counts so many bytes from now on that the handler holds for the caller. Raises
        `GrpcError` (RESOURCE_EXHAUSTED) where the server may not hold so many, and then counts no
        more than before."""

    def on_cut(callback: Callable[[], None]) -> None:
        """Calls `callback` where the call ends before all that was sent has left, or with an error;
        at once if it has already. Callers throw such an answer away. So it does where the
        connection is lost behind the call, and nothing came from the caller meanwhile."""

    def finish(error: GrpcError | None = None) -> None:
        """Ends the call of a stream; does nothing where it is over."""


#: Bytes that a compressed message may have when it is unpacked, whatever its method takes.
LARGEST_UNPACKED = 16 * 1024 * 1024


@attrs.frozen
class RequestLimits:
    """What one message of a client's may have; beyond that it is refused before it is parsed.

    Objects take up to a hundred times the bytes of a message that has many small ones, so that
    `largest` is what the method needs, and no more.
    """

    #: Bytes; never more than the server takes at all.
    largest: int = 1 << 32
    #: Bytes of one that comes compressed, which the reactor waits for.
    unpacked: int = LARGEST_UNPACKED
    #: Fields at the top level.
    fields: int = 1100
    #: The text or bytes that may be long: the number of the field at the top level that has it, and
    #: its number in there.
    bulk: tuple[int, int] = (0, 0)
    #: Bytes of all else.
    beside: int = 1 << 32


#: Of methods whose requests have names, and little else.
SMALL_REQUEST = RequestLimits(largest=64 * 1024)


@attrs.frozen
class Unary:
    """One request, one response.

    Handlers are not cancelled where their call is over: they end by themselves, soon, and what they
    return then is dropped. Until then they have a place among the calls of their connection.
    """

    request: type[Message]
    #: Returns the response, a Deferred or a coroutine of it, or fails with `GrpcError`.
    handler: Callable[[Any, ICall], Any]
    limits: RequestLimits = RequestLimits()


@attrs.frozen
class ServerStream:
    """One request, a stream of responses."""

    request: type[Message]
    #: Sends by `ICall.send`; the call ends when what it returns, None, a Deferred or a coroutine,
    #: has fired.
    handler: Callable[[Any, ICall], Any]
    limits: RequestLimits = RequestLimits()


@attrs.frozen
class BothStreams:
    """A stream in each direction, which ends with either side's `finish`."""

    request: type[Message]
    #: Called when a client opens the call; returns what takes each message of the client.
    open: Callable[[ICall], Callable[[Any], None]]
    limits: RequestLimits = RequestLimits()


Method = Unary | ServerStream | BothStreams

#: Path of a method -> the method.
Methods = Mapping[str, Method]
