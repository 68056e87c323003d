"""The interfaces by which a protocol over HTTP/2 sees a connection: its streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum

from zope.interface import Attribute, Interface

#: Names, in lower case, and values.
HeaderList = Sequence[tuple[bytes, bytes]]
#: Those of a request, as text.
RequestHeaders = Sequence[tuple[str, str]]


class Held(IntEnum):
    """What bytes are held for."""

    #: The stream itself, the request's headers, and what came of its body.
    REQUEST = 0
    #: What its handler has got for it elsewhere.
    HANDLER = 1
    #: What waits until the client takes it.
    RESPONSE = 2


class IStream(Interface):
    """One request of a client and its response."""

    address: str = Attribute("`host:port` of the client.")
    local_address: str = Attribute("`host:port` that the client connected to.")
    queued: int = Attribute("Bytes that wait until the client takes them.")
    is_sent: bool = Attribute("Whether all of the response has left, and the stream is over.")

    def write(
        headers: HeaderList | None = None,
        data: bytes = b"",
        trailers: HeaderList | None = None,
        *,
        ends: bool = False,
    ) -> None:
        """Sends the response's headers, once and first, then `data`, then `trailers`, which end the
        stream; so do headers with `ends`. Data waits until the client takes it. Dropped where the
        stream is over."""

    def reset(code: int) -> None:
        """Ends the stream with an error of HTTP/2; does nothing where it is over."""

    def when_ready(callback: Callable[[], None]) -> None:
        """Calls `callback` once the client keeps up with what is written: at once, or when it has
        taken it; never where the stream ends before."""

    def when_lost(callback: Callable[[], None]) -> None:
        """Calls `callback` where the connection is lost before the client sends anything more: what
        was written may not have come to it."""

    def hold(purpose: Held, size: int) -> None:
        """Counts so many bytes from now on that are held for this stream, until it is over. Raises
        `MemoryRefused` where the server may not hold so many, and then counts no more than
        before."""

    def begin_work() -> None:
        """From now on the stream has its place among those of its connection until `end_work`,
        even where it is over before: what it began goes on."""

    def end_work() -> None:
        """Ends what `begin_work` began. What is held for the request and by its handler counts
        until then."""


class IStreamHandler(Interface):
    """Takes the request of one stream. Not called any more after `closed`."""

    def received(data: bytes) -> Iterator[None]:
        """Takes a part of the request's body, in steps: others may be served between two of
        them, while nothing more comes of the stream."""

    def ended() -> None:
        """The client has sent all."""

    def draining() -> None:
        """The server is about to stop: what may wait for long or without end ends now."""

    def closed() -> None:
        """The stream is over: it ended, the client reset it, or the connection is lost."""


#: Called with each new stream and the request's headers; returns what takes the rest.
OpenStream = Callable[[IStream, RequestHeaders], IStreamHandler]
