"""A connection of a server, with limits, so that no peer costs more than it may.

What one peer does never grows our memory: a frame is bounded, what all connections hold together
is bounded (`Budget`), and a peer that does not take its replies is not read from either.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketmq_tw.net.interfaces import Handler, RequestCheck
from rocketmq_tw.net.outbox import Outbox
from rocketmq_tw.net.protocol import RemotingProtocol
from rocketmq_tw.net.shared import Shared
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand

#: Answers of a connection that may wait to be taken, in bytes; then no request is carried out.
ENOUGH_UNREAD = 1024 * 1024
#: What a request that waits for its answer costs beside its body, roughly.
REQUEST_OVERHEAD = 2048


class ConnectionGroup(Protocol):
    """Whom a connection tells that it is there and that it is gone."""

    def add(self, connection: Any) -> None:
        """`connection` is open."""

    def discard(self, connection: Any) -> None:
        """`connection` is lost."""


@implementer(IPushProducer)
class ServerConnection(RemotingProtocol):
    """A connection of a server.

    It registers itself as the producer of what it writes: while the transport says that the
    other end does not keep up, nothing is read from it, so it gets no further replies.
    """

    def __init__(
        self,
        shared: Shared,
        group: ConnectionGroup,
        handlers: Mapping[int, Handler],
        before_request: Sequence[RequestCheck],
    ) -> None:
        super().__init__(
            shared.clock,
            handlers,
            before_request=before_request,
            frame_limit=shared.config.frame_max_length,
        )
        self._config = shared.config
        self._group = group
        self._budget = shared.budget
        self._outboxes = shared.outboxes
        self._outbox = Outbox(shared.outboxes, None)
        self._held = 0
        self._unread = 0
        #: Opaque -> bytes of a request that is being carried out or held.
        self._open: dict[int, int] = {}
        self._stuck_since: float | None = None
        self._draining = False
        #: When the frame that is not complete yet began.
        self._frame_since: float | None = None

    # Twisted's side

    def connectionMade(self) -> None:
        self._outbox = Outbox(self._outboxes, self.transport)
        super().connectionMade()
        self.transport.registerProducer(self, True)  # type: ignore[union-attr]
        self._group.add(self)

    def dataReceived(self, data: bytes) -> None:
        self._outboxes.gather(super().dataReceived, data)
        grown = self.buffered - self._held
        if not self._decoder.buffered:
            self._frame_since = None
        elif self._frame_since is None or grown < len(data):
            self._frame_since = self.last_received
        if grown:
            self._held += grown
            self._budget.used += grown
            if grown > 0 and self._budget.exhausted:
                self.close(f"its frame would take more than {self._budget.limit} bytes in flight")

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._budget.used -= self._held + self._unread + sum(self._open.values())
        self._held = self._unread = 0
        self._open.clear()
        self._stuck_since = None
        self._outbox.close()
        super().connectionLost(reason)
        self._group.discard(self)

    def lose_connection(self) -> None:
        if self.connected and not self._closing:
            self._outbox.flush()
            # A transport waits for its producer before it closes.
            self.transport.unregisterProducer()  # type: ignore[union-attr]
        super().lose_connection()

    def abort(self) -> None:
        self._outbox.close()
        super().abort()

    # IPushProducer: the transport's buffer is full, empty again, gone

    def pauseProducing(self) -> None:
        self._stuck_since = self._clock.seconds()
        self.transport.pauseProducing()  # type: ignore[union-attr]

    def resumeProducing(self) -> None:
        self._budget.used -= self._unread
        self._unread = 0
        self._stuck_since = None
        if self._frame_since is not None:
            # It was us who did not read on.
            self._frame_since = self._clock.seconds()
        self._go_on()
        if not self._closing and not self._draining and self._stuck_since is None:
            self.transport.resumeProducing()  # type: ignore[union-attr]

    def stopProducing(self) -> None:
        """The connection is lost; `connectionLost` does the rest."""

    # Limits

    def drain(self) -> None:
        """Reads nothing any more; replies still leave."""
        self._draining = True
        self._later.clear()
        self.transport.pauseProducing()  # type: ignore[union-attr]

    def check(self, now: float) -> None:
        """Closes a connection that is idle, that does not get on with a frame, or that leaves too
        much unread for too long."""
        config = self._config
        idle = config.server_channel_max_idle_time_seconds
        if self._stuck_since is not None and (
            self._unread > config.max_unread_bytes
            and now - self._stuck_since >= config.max_unread_seconds
        ):
            self.close(f"it leaves {self._unread} bytes unread")
            self.abort()
        elif now - self.last_received >= idle:
            self.lose_connection()
        elif (
            self._stuck_since is None
            and self._frame_since is not None
            and now - self._frame_since >= idle
        ):
            self.close(f"it has not sent the rest of a frame within {idle} s")

    def _write(self, data: bytes) -> None:
        self._outbox.write(data)
        if self._stuck_since is not None:
            self._unread += len(data)
            self._full = self._unread >= ENOUGH_UNREAD
            self._budget.used += len(data)
            if self._budget.exhausted:
                self.close(f"it leaves {self._unread} bytes unread, which are too many for us")
                self.abort()

    def reply(self, response: RemotingCommand) -> None:
        if self._open:
            self._budget.used -= self._open.pop(response.opaque, 0)
        super().reply(response)

    def _serve(self, command: RemotingCommand) -> None:
        budget = self._budget
        if budget.used > budget.limit:
            self._refuse_busy(command)
            return
        before = self.unanswered
        super()._serve(command)
        if self.unanswered > before and self.connected:
            size = REQUEST_OVERHEAD + len(command.body)
            waiting, opaque = self._open, command.opaque
            waiting[opaque] = waiting[opaque] + size if opaque in waiting else size
            budget.used += size

    def _refuse_busy(self, command: RemotingCommand) -> None:
        if not command.is_oneway:
            self.unanswered += 1
            remark = f"{self._budget.used} bytes are in flight; send again later"
            self.reply(command.response(ResponseCode.SYSTEM_BUSY, remark))

    def _wait(self, command: RemotingCommand, result: Deferred[Any]) -> None:
        super()._wait(command, result)
        if command.is_oneway:
            # No reply will say when it is over.
            size = REQUEST_OVERHEAD + len(command.body)
            self._budget.used += size
            result.addBoth(self._give_back, size)

    def _give_back(self, result: Any, size: int) -> Any:
        self._budget.used -= size
        return result
