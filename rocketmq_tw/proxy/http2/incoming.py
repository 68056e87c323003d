"""Carries out the frames that come over a connection, in the connection's turns.

Each may be answered, so that none is carried out while the client does not take what it is sent.
What is left at the end of a turn waits, is counted in the server's budget, and nothing more is read
meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from zope.interface import Attribute, Interface

from rocketmq_tw.net.limits import LONG_ROUND, SHARE, ServerResources
from rocketmq_tw.proxy.http2.frames import ErrorCodes, FrameSplitter, Http2Error, Http2Frame
from rocketmq_tw.proxy.http2.memory import ConnectionMemory, MemoryRefused


class IFrameConnection(Interface):
    """The connection of frames, as carrying them out needs it."""

    transport: Any = Attribute("What is read from.")
    memory: ConnectionMemory = Attribute("Counts the frames that wait.")
    is_full: bool = Attribute("Whether the transport takes no more now.")
    is_closing: bool = Attribute("Whether nothing more is carried out.")

    def frame_came(frame: Http2Frame) -> None:
        """Carries out one frame, but for the `steps` that it leaves; raises `Http2Error`."""

    def flush() -> None:
        """Hands on what is to be sent."""

    def end(code: ErrorCodes, why: str) -> None:
        """Tells the client what it did wrong, and closes; does nothing where it is closing."""


class IncomingFrames:
    """The frames of one connection, from the bytes that came to the last step of each."""

    def __init__(
        self, resources: ServerResources, connection: IFrameConnection, block_limit: int
    ) -> None:
        """`block_limit`: bytes that the frames of one header block may have."""
        self._now = resources.clock.seconds
        self._scheduler = resources.scheduler
        self._connection = connection
        self._splitter = FrameSplitter(block_limit)
        #: When bytes came last, in seconds of the clock.
        self.last_received = 0.0
        #: Frames that wait for the connection's turn, or until its client takes what it is sent,
        #: and their bytes; nothing is read meanwhile.
        self._later: deque[Http2Frame] = deque()
        self._later_size = 0
        #: What is left of the data that came last; it is carried out before the next frame.
        self.steps: Iterator[None] | None = None
        #: Whether the connection waits for its turn.
        self._waits = False

    def take(self, data: bytes) -> None:
        """Carries out what came, as far as it may."""
        self.last_received = self._now()
        connection = self._connection
        if connection.is_closing:
            return
        try:
            frames = self._splitter.feed(data)
        except Http2Error as error:
            connection.end(error.code, str(error))
            return
        self._later += frames
        self._later_size += sum([len(frame.data) for frame in frames])
        if self._waits:
            self._count()
        elif self._later and self._scheduler.is_round_over() and not connection.is_full:
            # One frame of each of many connections may take seconds together.
            self._wait_for_turn()
            self._count()
        else:
            self._carry_out()

    def catch_up(self) -> None:
        """Goes on since the client takes more."""
        if not self._waits:
            self._carry_out()

    def go_on(self) -> None:
        """See `WaitingConnection`."""
        self._waits = False
        self._carry_out()
        self.read_on()

    def read_on(self) -> None:
        """Has more be read, unless something that came waits."""
        connection = self._connection
        if not (connection.is_closing or connection.is_full or self._waits):
            connection.transport.resumeProducing()

    def drop(self) -> None:
        """Carries out nothing more, since the connection ends."""
        self._later.clear()
        self._later_size = 0
        self.steps = None
        self._connection.memory.hold_frames(0)

    def _carry_out(self) -> None:
        """Carries out frames as long as the connection's time lasts; a few of them where the
        reactor is late."""
        connection, later = self._connection, self._later
        share, seconds = len(later), LONG_ROUND
        if self._scheduler.is_late():
            share, seconds = min(share, SHARE), LONG_ROUND / SHARE
        until = self._now() + seconds
        try:
            while not connection.is_closing and not connection.is_full:
                if not self._go_through(until) or not share:
                    break
                share -= 1
                frame = later.popleft()
                self._later_size -= len(frame.data)
                connection.frame_came(frame)
        except Http2Error as error:
            connection.end(error.code, str(error))
        if connection.is_closing:
            self.drop()
            return
        if (later or self.steps is not None) and not connection.is_full:
            self._wait_for_turn()
        self._count()

    def _wait_for_turn(self) -> None:
        self._waits = True
        self._connection.transport.pauseProducing()
        self._scheduler.wait(self)

    def _go_through(self, until: float) -> bool:
        """Carries out what data brought, one message of many after the other; returns whether all
        of it is done before the clock shows `until`."""
        steps, now = self.steps, self._now
        if steps is not None:
            for _ in steps:
                if self._connection.is_closing or now() >= until:
                    break
            else:
                self.steps = None
            self._connection.flush()
        return now() < until

    def _count(self) -> None:
        """Has the bytes counted that wait for the rest of a frame or for their turn."""
        held = self._splitter.buffered + self._later_size
        try:
            self._connection.memory.hold_frames(held)
        except MemoryRefused:
            self._connection.end(
                ErrorCodes.ENHANCE_YOUR_CALM, f"{held} bytes of frames are too many in flight"
            )
