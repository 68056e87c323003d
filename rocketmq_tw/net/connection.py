"""A connection of a server, with limits, so that no peer costs more than it may.

What one peer does never grows our memory: a frame is bounded, what all connections hold together
is bounded (`Budget`), and a peer that does not take its replies is not read from either. What one
peer holds is no reason to refuse another that holds little.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from sys import getsizeof
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionAborted, ConnectionDone
from twisted.internet.interfaces import IPushProducer
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketmq_tw.interpreter import IS_PYPY
from rocketmq_tw.net.checks import RequestChecks
from rocketmq_tw.net.interfaces import (
    LOST,
    ONEWAY,
    WRITTEN,
    ConnectionEvent,
    ConnectionEvents,
    FrameHandler,
    Handler,
    IFramePeer,
    RequestObserver,
    RequestResult,
)
from rocketmq_tw.net.limits import SHARE, ServerResources
from rocketmq_tw.net.protocol import RemotingProtocol
from rocketmq_tw.net.stalls import STALL_SECONDS, count_codes
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand, code_of
from rocketmq_tw.wire.frame import Frame

#: Answers of a connection that may wait to be taken, in bytes; then no request is carried out.
ENOUGH_UNREAD = 1024 * 1024
#: What a request that waits for its answer costs beside its body, or an answer that waits until
#: others were taken, roughly.
REQUEST_OVERHEAD = 2048
#: A header of so many bytes at most is part of that; the fields of a longer one are counted, with
#: their place in a dictionary.
SMALL_HEADER = 512
FIELD_OVERHEAD = 32
#: What a text takes in memory beside its characters, where these are ASCII.
_EMPTY_TEXT = getsizeof("", 49)
#: Characters of a header's field: many times what any client sends, and the lists in some fields
#: are read in one go. The properties of a message have their own limit, where it is sent.
MAX_HEADER_FIELD = 64 * 1024
_FIELDS_OF_MESSAGES = frozenset({"properties", "i"})
#: Numbers of requests whose opaque is used twice start here, beyond all opaques.
_FIRST_NUMBER = 1 << 64
#: Stands for a request that is not open any more, as its connection was lost.
_OVER: tuple[None, float, int] = (None, 0.0, 0)


class ConnectionObserver(Protocol):
    """Is told when a connection opens and when it is lost."""

    def add(self, connection: Any) -> None:
        """Takes in `connection`, which is open."""

    def discard(self, connection: Any) -> None:
        """Forgets `connection`, which is lost."""


@implementer(IFramePeer, IPushProducer)
class ServerConnection(RemotingProtocol):
    """A connection of a server.

    It registers itself as the producer of what it writes: while the transport says that the
    other end does not keep up, nothing is read from it, so it gets no further replies.
    """

    #: See `OpenConnection`.
    drain_seconds: float | None = None

    def __init__(
        self,
        resources: ServerResources,
        group: ConnectionObserver,
        handlers: Mapping[int, Handler],
        frame_handlers: Mapping[bytes, FrameHandler],
        checks: RequestChecks,
        observer: RequestObserver | None,
        events: ConnectionEvents | None,
    ) -> None:
        super().__init__(
            resources.clock,
            handlers,
            frame_handlers=frame_handlers,
            outboxes=resources.outboxes,
            checks=checks,
            frame_limit=resources.config.frame_max_length,
        )
        self._config = resources.config
        self._group = group
        self._budget = resources.budget
        self._stalls = resources.stalls
        self._scheduler = resources.scheduler
        #: Requests in `_later` wait for their turn, and nothing is read.
        self._waits = False
        #: Bytes of the budget that this connection holds.
        self._charged = 0
        self._held = 0
        self._unread = 0
        #: Bytes of answers that are made and wait until others were taken.
        self._unsent = 0
        #: Requests that are not over: number to code, time of arrival and the bytes that are
        #: charged for it. The number is the request's opaque, or one of ours where a peer uses an
        #: opaque again too early.
        self._open: dict[int, tuple[int, float, int]] = {}
        #: Number of ours -> opaque.
        self._opaques: dict[int, int] = {}
        self._next_number = _FIRST_NUMBER
        self._header_length = 0
        self._observer = observer
        self._events = events
        self._stuck_since: float | None = None
        self._draining = False
        #: When the frame that is not complete yet began.
        self._frame_since: float | None = None

    # Twisted's side

    def connectionMade(self) -> None:
        super().connectionMade()
        self.transport.registerProducer(self, True)  # type: ignore[union-attr]
        self._group.add(self)
        self._tell(ConnectionEvent.CONNECT)

    def dataReceived(self, data: bytes) -> None:
        self._outboxes.gather(super().dataReceived, data)
        grown = self.buffered - self._held
        if not self._decoder.buffered:
            self._frame_since = None
        elif self._frame_since is None or grown < len(data):
            self._frame_since = self.last_received
        if grown:
            self._hold(grown)
            if grown > 0 and self._budget.refuses(self._charged):
                self.close(f"its frame would take more than {self._budget.limit} bytes in flight")

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        held = self._held + self._unread + self._unsent
        self._charge(-(held + sum([each[2] for each in self._open.values()])))
        self._held = self._unread = self._unsent = 0
        open_requests, self._open = self._open, {}
        self._opaques.clear()
        self._stuck_since = None
        super().connectionLost(reason)
        self._group.discard(self)
        if reason.check(ConnectionDone, ConnectionAborted) is None:
            self._tell(ConnectionEvent.EXCEPTION)
        self._tell(ConnectionEvent.CLOSE)
        if self._observer is not None:
            now = self._clock.seconds()
            for code, since, _ in open_requests.values():
                self._observer((code, None, False, LOST), (now - since) * 1000)

    def lose_connection(self) -> None:
        if self.connected and not self._closing:
            # A transport waits for its producer before it closes.
            self.transport.unregisterProducer()  # type: ignore[union-attr]
        super().lose_connection()

    # IPushProducer: the transport's buffer is full, empty again, gone

    def pauseProducing(self) -> None:
        self._stuck_since = self._clock.seconds()
        self.transport.pauseProducing()  # type: ignore[union-attr]

    def resumeProducing(self) -> None:
        self._charge(-self._unread)
        self._unread = 0
        self._stuck_since = None
        self._go_on()
        self._read_on()

    def _read_on(self) -> None:
        if self._closing or self._draining or self._waits or self._check is not None:
            return
        if self._stuck_since is None:
            if self._frame_since is not None:
                # It was us who did not read on.
                self._frame_since = self._clock.seconds()
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
            self._unread + self._unsent > config.max_unread_bytes
            and now - self._stuck_since >= config.max_unread_seconds
        ):
            self.close(f"it leaves {self._unread + self._unsent} bytes unread")
            self.abort()
        elif now - self.last_received >= idle:
            if not self._closing:
                self._tell(ConnectionEvent.IDLE)
            self.lose_connection()
        elif (
            self._stuck_since is None
            and self._frame_since is not None
            and now - self._frame_since >= idle
        ):
            self.close(f"it has not sent the rest of a frame within {idle} s")

    def _tell(self, event: ConnectionEvent) -> None:
        if self._events is not None:
            self._events(event)

    def _write(self, data: bytes) -> None:
        self._outbox.write(data)
        if self._stuck_since is not None:
            self._unread += len(data)
            self._full = self._unread >= ENOUGH_UNREAD
            self._charge(len(data))
            self._refuse_unread()

    def _refuse_unread(self) -> None:
        if self._budget.refuses(self._charged):
            unread = self._unread + self._unsent
            self.close(f"it leaves {unread} bytes unread, which are too many for us")
            self.abort()

    # Requests

    def reply(self, response: RemotingCommand) -> None:
        number = response.opaque
        code, since, charged = self._open.pop(number, _OVER)
        if charged:
            # As `_charge`, without a call for each message.
            self._charged -= charged
            self._budget.used -= charged
        if self._opaques and number in self._opaques:
            response.opaque = self._opaques.pop(number)
        length = self._answer(response)
        if code is not None:
            # Only what was oneway is open and not written.
            self._tell_observer(
                (code, response.code, response.suspended, WRITTEN if length else ONEWAY), since
            )

    def _tell_observer(self, result: RequestResult, since: float) -> None:
        if self._observer is not None:
            try:
                self._observer(result, (self._clock.seconds() - since) * 1000)
            except Exception:
                self.log.failure("an observer of request {code} failed", code=result[0])

    def _carry_out(self, frames: list[Frame], since: float) -> None:
        if self._waits:
            self._later += frames
            return
        rest: Sequence[Frame] = ()
        if len(frames) > SHARE and self._scheduler.is_late():
            frames, rest = frames[:SHARE], frames[SHARE:]
        super()._carry_out(frames, since)
        took = self._clock.seconds() - since
        if took >= STALL_SECONDS:
            served = frames[: len(frames) - len(self._later)]
            codes = count_codes(map(code_of, served))
            self._stalls.report(took, f"requests of {self.address} with code {codes}")
        if rest and not self._closing:
            self._later += rest
            # Where it is full it goes on once its answers are taken, or else behind the check.
            if not (self._full or self._check is not None):
                self._waits = True
                self.transport.pauseProducing()  # type: ignore[union-attr]
                self._scheduler.wait(self)

    # IFramePeer

    def accepts(self, frame: Frame, code: int) -> bool:
        return (
            len(frame.header) <= SMALL_HEADER
            and self._budget.used <= self._budget.limit
            and self._checks.let_all_pass(code)
        )

    def has_open(self, opaque: int) -> bool:
        return opaque in self._open

    def opened(self, code: int, opaque: int, size: int, *, oneway: bool) -> None:
        charged = REQUEST_OVERHEAD + size
        self._open[opaque] = (code, self.last_received, charged)
        self._charged += charged
        self._budget.used += charged
        if not oneway:
            self.unanswered += 1

    def reply_encoded(self, opaque: int, answer: bytes) -> None:
        code, since, charged = self._open.pop(opaque, _OVER)
        self._charged -= charged
        self._budget.used -= charged
        if answer:
            self.unanswered -= 1
            if self.connected:
                self._write(answer)
        if code is not None:
            self._tell_observer((code, 0, False, WRITTEN if answer else ONEWAY), since)

    def go_on(self) -> None:
        """See `WaitingConnection`."""
        self._waits = False
        self._carry_on()
        self._read_on()

    def _wait_for_check(self, command: RemotingCommand) -> None:
        self._replies_later(command)
        if self.connected:
            self.transport.pauseProducing()  # type: ignore[union-attr]

    def _check_over(self, command: RemotingCommand) -> None:
        number = command.opaque
        code, since, charged = self._open.get(number, _OVER)
        if code is not None:
            self._charge(-charged)
            self._open[number] = (code, since, 0)

    def _carry_out_later(self) -> None:
        super()._carry_out_later()
        if self.connected:
            self._hold(self.buffered - self._held)

    def _received(self, command: RemotingCommand, frame: Frame) -> None:
        number = command.opaque
        if number in self._open:
            number = self._renumber(command)
        self._open[number] = (command.code, self.last_received, 0)
        self._header_length = len(frame.header)
        budget = self._budget
        if self._header_length > MAX_HEADER_FIELD and (name := _long_field(command)):
            length = len(command.ext_fields[name])
            remark = (
                f"the field {name:.80} has {length} characters: send at most {MAX_HEADER_FIELD}"
            )
            self._refuse(command, ResponseCode.SYSTEM_ERROR, remark)
        elif budget.used > budget.limit and budget.refuses(
            self._charged + self._memory_of(command)
        ):
            remark = f"{budget.used} bytes are in flight; send again later"
            self._refuse(command, ResponseCode.SYSTEM_BUSY, remark)
        else:
            self._serve(command)

    def _renumber(self, command: RemotingCommand) -> int:
        """Gives a request whose opaque another open one has a number of its own."""
        number = self._next_number
        while number in self._open:
            number += 1
        self._next_number = number + 1
        self._opaques[number] = command.opaque
        command.opaque = number
        return number

    def _refuse(self, command: RemotingCommand, code: int, remark: str) -> None:
        if not command.is_oneway:
            self.unanswered += 1
        self.reply(command.response(code, remark))

    def _replies_later(self, command: RemotingCommand) -> None:
        number = command.opaque
        code, since, _ = self._open.get(number, _OVER)
        if code is not None:
            # As `_memory_of` and `_charge`, without calls for each message.
            charged = REQUEST_OVERHEAD + len(command.body)
            if self._header_length > SMALL_HEADER:
                charged += _memory_of_fields(command)
            self._open[number] = (code, since, charged)
            self._charged += charged
            self._budget.used += charged

    def _wait(self, command: RemotingCommand, result: Deferred[Any]) -> None:
        # Until it fires, even where the connection is lost before: it holds the request.
        charged = self._memory_of(command)
        self._charge(charged)
        result.addBoth(self._give_back, charged)
        super()._wait(command, result)

    def _late_reply(self, response: RemotingCommand | None, command: RemotingCommand) -> None:
        """Answers, or lets the answer wait until others were taken: a body that answers many
        requests is copied for few of them at a time."""
        if response is None or not self._full or not self.connected:
            super()._late_reply(response, command)
            return
        size = REQUEST_OVERHEAD + len(response.body)
        self._unsent += size
        self._charge(size)
        self._ready.append(partial(self._send_late, response, size))
        self._refuse_unread()

    def _send_late(self, response: RemotingCommand, size: int) -> None:
        self._unsent -= size
        self._charge(-size)
        self.reply(response)

    def _give_back(self, result: Any, charged: int) -> Any:
        self._charge(-charged)
        return result

    def _hold(self, size: int) -> None:
        """Counts so many bytes more, or fewer, that wait for the rest of a frame or for their
        turn."""
        self._held += size
        self._charge(size)

    def _charge(self, size: int) -> None:
        """Counts so many bytes more, or fewer, that are held for this connection."""
        self._charged += size
        self._budget.used += size

    def _memory_of(self, command: RemotingCommand) -> int:
        """Returns about how many bytes an open request keeps."""
        size = REQUEST_OVERHEAD + len(command.body)
        if self._header_length > SMALL_HEADER:
            size += _memory_of_fields(command)
        return size


def _long_field(command: RemotingCommand) -> str | None:
    """Returns the name of a field that is longer than any may be; None where there is none."""
    for name, text in command.ext_fields.items():
        if len(text) > MAX_HEADER_FIELD and name not in _FIELDS_OF_MESSAGES:
            return name
    return None


def _memory_of_fields(command: RemotingCommand) -> int:
    """Returns the bytes that the fields of a header take in memory, roughly: short ones take many
    times what they have on the wire."""
    fields = command.ext_fields
    text = "".join([*fields, *fields.values()])
    if text.isascii():
        # As nearly always; to ask each for its size takes six times as long.
        return len(text) + len(fields) * (2 * _EMPTY_TEXT + FIELD_OVERHEAD)
    if IS_PYPY:
        # It does not tell the size of a text: this is the most that one may take.
        return 4 * len(text) + len(fields) * (2 * _EMPTY_TEXT + FIELD_OVERHEAD)
    return sum(map(getsizeof, (*fields, *fields.values()))) + len(fields) * FIELD_OVERHEAD
