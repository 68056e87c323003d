"""Bounds what one HTTP/2 connection may cost."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from rocketmq_tw.proxy.http2.frames import END_STREAM, HEADER_LENGTH, FrameType, Http2Frame


@attrs.frozen
class Http2Limits:
    """Limits of each connection. Sizes are bytes."""

    #: Streams that may be open at once; those beyond are refused, and clients try them again.
    streams: int = 1024
    #: Names and values of one request's headers, with 32 bytes for each.
    header_list: int = 16 * 1024
    #: What a client may send of one stream, and of all together, before we took it.
    stream_window: int = 1024 * 1024
    connection_window: int = 4 * 1024 * 1024
    #: Seconds after which a connection without streams is closed.
    idle_seconds: float = 120.0
    #: Seconds of silence after which a client is asked whether it is there, and for its answer.
    keepalive_seconds: float = 60.0
    keepalive_timeout: float = 20.0
    #: Seconds that open streams get when the server stops; None: as its listener says.
    drain_seconds: float | None = None


#: Data frames with less payload count as costs, unless they end their stream.
_SMALL = 64
#: What frames cost of a connection's allowance; others 1. That is so little for RST_STREAM that a
#: client can end all its calls at once, as where they have one deadline: what a call began keeps
#: its place among the streams until it ends.
_COSTS = {int(FrameType.HEADERS): 0, int(FrameType.SETTINGS): 10}
# Looked up once: each look into an enumeration costs, and this is for each frame.
_DATA = int(FrameType.DATA)


def frame_cost(frame: Http2Frame) -> int:
    """Returns what a frame costs of its connection's allowance."""
    if frame.type != _DATA:
        return _COSTS.get(frame.type, 1)
    small = len(frame.data) < HEADER_LENGTH + _SMALL
    return 1 if small and not frame.flags & END_STREAM else 0


class FrameAllowance:
    """Frames that cost work and bring nothing: pings, settings, resets, empty data, windows.

    A connection may have `BURST` of them at once, `PER_SECOND` for ever, and as many more as its
    calls and the data that it takes explain.
    """

    BURST = 2000
    PER_SECOND = 200

    __slots__ = ("_left", "_now", "_since")

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` returns the clock's seconds."""
        self._now = now
        self._since = now()
        self._left: float = self.BURST

    def earn(self, number: int) -> None:
        """Allows so many more."""
        self._left = min(self.BURST, self._left + number)

    def spend(self, number: int) -> bool:
        """Takes so many; returns whether that was allowed."""
        self._left -= number
        if self._left >= 0:
            return True
        now = self._now()
        self._left = min(self.BURST, self._left + (now - self._since) * self.PER_SECOND)
        self._since = now
        return self._left >= 0
