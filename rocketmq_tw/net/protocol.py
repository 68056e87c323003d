"""The remoting protocol on one connection, the same at both ends.

Frames become commands (docs/formats/remoting.md). A request goes to the handler of its code, a
response to the request that it answers. The protocol itself is the `IPeer` that handlers get.
"""

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.internet.interfaces import IReactorTime, ITCPTransport
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketmq_tw.net.checks import RequestChecks
from rocketmq_tw.net.errors import ConnectionLost
from rocketmq_tw.net.haproxy import Forwarded, ends_of
from rocketmq_tw.net.interfaces import ANONYMOUS, Handler, IPeer, RequestCheck
from rocketmq_tw.net.outbox import Outbox, Outboxes
from rocketmq_tw.net.requests import RequestTable
from rocketmq_tw.runtime.listeners import Listeners
from rocketmq_tw.runtime.scope import Scope
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import (
    JSON_START,
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    RemotingCommand,
    decode_command,
    encode_command,
)
from rocketmq_tw.wire.errors import RequestError, WireError
from rocketmq_tw.wire.frame import DEFAULT_FRAME_LIMIT, Frame, FrameDecoder

#: Seconds until a connection whose other end does not let go is cut.
CLOSE_TIMEOUT = 5.0


@implementer(IPeer)
class RemotingProtocol(Protocol):
    """One connection that speaks remoting commands.

    What is written leaves through an `Outbox` of `outboxes`.
    """

    log = Logger()
    connected = False
    address = "not connected"
    local_address = "not connected"
    identity = ANONYMOUS
    #: The ends that a load balancer told.
    forwarded: Forwarded | None = None

    def __init__(
        self,
        clock: IReactorTime,
        handlers: Mapping[int, Handler],
        *,
        frame_handlers: Mapping[bytes, Callable[[Frame, Any], bool]] = MappingProxyType({}),
        outboxes: Outboxes | None = None,
        checks: RequestChecks | None = None,
        frame_limit: int = DEFAULT_FRAME_LIMIT,
    ) -> None:
        """`frame_handlers`: `json_start` of a code to its `FrameHandler`; a protocol that has some
        is an `IFramePeer`."""
        self._clock = clock
        self._outboxes = outboxes or Outboxes(clock)
        self._outbox = Outbox(self._outboxes, None)
        self._handlers = handlers
        self._frame_handlers = frame_handlers
        self._checks = checks or RequestChecks()
        self._frame_limit = frame_limit
        self._decoder = FrameDecoder(frame_limit)
        self._lost: Listeners[IPeer] = Listeners("a connection was lost")
        #: Ends when the connection is lost.
        self._scope = Scope()
        self._requests = RequestTable(clock, self.address)
        self._closing = False
        #: So much is written and not taken by the other end that no request is carried out; the
        #: frames and calls that wait until it is taken.
        self._full = False
        self._later: list[Frame] = []
        self._ready: deque[Callable[[], None]] = deque()
        #: Fires when a check of a request is over; no other request is carried out meanwhile.
        self._check: Deferred[Any] | None = None
        self.last_received = 0.0
        #: Requests that came in and are not answered yet.
        self.unanswered = 0

    @property
    def waiting(self) -> int:
        """Our own requests that are not answered yet."""
        return len(self._requests)

    @property
    def buffered(self) -> int:
        """Bytes held of a frame that is not complete yet, and of those that wait."""
        held = self._decoder.buffered
        if self._later:
            held += sum([len(frame.header) + len(frame.body) for frame in self._later])
        return held

    # Twisted's side

    def connectionMade(self) -> None:
        assert self.transport is not None
        self.connected = True
        self._outbox = Outbox(self._outboxes, self.transport)
        self.address, self.local_address = ends_of(self.transport, self.forwarded)
        self._requests = RequestTable(self._clock, self.address)
        self._lost = Listeners(f"the connection to {self.address} was lost")
        self.last_received = self._clock.seconds()
        if ITCPTransport.providedBy(self.transport):
            self.transport.setTcpNoDelay(True)

    def dataReceived(self, data: bytes) -> None:
        now = self.last_received = self._clock.seconds()
        try:
            self._carry_out(self._decoder.feed(data), now)
        except WireError as error:
            self.close(f"it sent what is no remoting command: {error}")

    def _carry_out(self, frames: list[Frame], since: float) -> None:
        """Answers and serves what came; `since` is the clock's time when that began."""
        frame_handlers = self._frame_handlers
        rest = iter(frames)
        for frame in rest:
            if self._full or self._check is not None:
                self._later += [frame, *rest]
                return
            take = frame_handlers.get(frame.header[:JSON_START])
            if take is None or not take(frame, self):
                command = decode_command(frame)
                if command.flag & RESPONSE_FLAG:
                    self._requests.answer(command)
                else:
                    self._received(command, frame)
            if self._closing:
                return

    def _go_on(self) -> None:
        """Carries out what came while the connection was full, as long as it is not again."""
        self._full = False
        while self._ready and not self._full and not self._closing:
            self._ready.popleft()()
        self._carry_on()

    def _carry_on(self) -> None:
        """Carries out what came meanwhile, where nothing holds that up any more."""
        if self._later and not (self._full or self._closing or self._check is not None):
            self._carry_out_later()

    def _carry_out_later(self) -> None:
        later, self._later = self._later, []
        try:
            self._carry_out(later, self._clock.seconds())
        except WireError as error:
            self.close(f"it sent what is no remoting command: {error}")

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.connected = False
        self._closing = True
        self._scope.end()
        self._outbox.close()
        self._outbox = Outbox(self._outboxes, None)
        self._requests.fail_all(reason.getErrorMessage())
        if self._check is not None:
            self._check.cancel()
        self._ready.clear()
        self._lost.tell(self)
        # They may refer to the connection.
        self._lost.clear()
        # Requests that wait for their answers keep the connection: not what it had still to read
        # and to write, which nobody counts any more.
        self._later = []
        self._decoder = FrameDecoder(self._frame_limit)
        self.transport = None

    # IPeer

    def request(self, command: RemotingCommand, timeout: float) -> Deferred[RemotingCommand]:
        if not self.connected or self._closing:
            return fail(ConnectionLost(self.address, "the connection is closed"))
        data = encode_command(command)
        answer = self._requests.add(command, timeout)
        self._write(data)
        return answer

    def send_oneway(self, command: RemotingCommand) -> None:
        command.flag |= ONEWAY_FLAG
        if self.connected:
            self._write(encode_command(command))

    def reply(self, response: RemotingCommand) -> None:
        self._answer(response)

    def when_lost(self, callback: Callable[[IPeer], None]) -> None:
        if self.connected:
            self._lost.add(callback)
        else:
            callback(self)

    def when_ready(self, callback: Callable[[], None]) -> None:
        if self._full:
            self._ready.append(callback)
        else:
            callback()

    def close(self, reason: str) -> None:
        if self.connected and not self._closing:
            self.log.warn("closing {address}: {reason}", address=self.address, reason=reason)
            self.lose_connection()

    def lose_connection(self) -> None:
        """Closes without a word in the log: what is written still leaves, for `CLOSE_TIMEOUT`."""
        if self.connected and not self._closing:
            assert self.transport is not None
            self._closing = True
            self._outbox.flush()
            self._scope.later(self._clock, CLOSE_TIMEOUT, self.abort)
            self.transport.loseConnection()

    def abort(self) -> None:
        """Cuts the connection; what is not sent yet is dropped."""
        self._closing = True
        self._outbox.close()
        if self.connected:
            self.transport.abortConnection()  # type: ignore[union-attr]

    # Requests of the other end

    def _write(self, data: bytes) -> None:
        self._outbox.write(data)

    def _received(self, command: RemotingCommand, frame: Frame) -> None:
        """Takes a request; `frame` is what it came in."""
        self._serve(command)

    def _serve(self, command: RemotingCommand, passed: list[RequestCheck] | None = None) -> None:
        """Checks a request and has its handler answer it. `passed`: the checks that are done, where
        one of them took its time."""
        if passed is None and not command.flag & ONEWAY_FLAG:
            self.unanswered += 1
        try:
            checks = self._checks.of(command.code)
            for check in checks:
                if passed is not None and check in passed:
                    continue
                pending = check(command, self)
                if pending is not None:
                    passed = [*(passed or ()), *checks[: checks.index(check) + 1]]
                    self._await_check(command, passed, as_deferred(pending))
                    return
            result = self._handlers.get(command.code, _refuse_unknown)(command, self)
        except Exception:
            self.reply(self._refusal(command, Failure()))
            return
        if type(result) is RemotingCommand:
            self.reply(result)
        elif result is None:
            self._replies_later(command)
        else:
            self._wait(command, as_deferred(result))

    def _await_check(
        self, command: RemotingCommand, passed: list[RequestCheck], pending: Deferred[Any]
    ) -> None:
        """Goes on with `command` once the last check of `passed` has fired."""
        has_waited = False

        def fired(outcome: Any) -> None:
            # Where the other end does not take its answers, this request waits as others do.
            self.when_ready(partial(go_on, outcome))

        def go_on(outcome: Any) -> None:
            self._check = None
            if self._closing:
                return
            if has_waited:
                self._check_over(command)
            if isinstance(outcome, Failure):
                self.reply(self._refusal(command, outcome))
            else:
                self._serve(command, passed)
            if has_waited:
                self._carry_on()
                self._read_on()

        self._check = pending
        pending.addBoth(fired)
        if self._check is not None:
            has_waited = True
            self._wait_for_check(command)

    def _wait_for_check(self, command: RemotingCommand) -> None:
        """Notes that a check of `command` takes its time: nothing need be read until it is over."""

    def _check_over(self, command: RemotingCommand) -> None:
        """Notes that the check of `command`, which took its time, is over."""

    def _read_on(self) -> None:
        """Reads again, unless something else forbids it."""

    def _replies_later(self, command: RemotingCommand) -> None:
        """Notes that the handler will reply by itself, if it has not yet."""

    def _wait(self, command: RemotingCommand, result: Deferred[Any]) -> None:
        """Replies with what `result`, the handler's, fires with."""
        result.addErrback(lambda failure: self._refusal(command, failure))
        result.addCallback(self._late_reply, command)

    def _late_reply(self, response: RemotingCommand | None, command: RemotingCommand) -> None:
        if response is None and command.flag & ONEWAY_FLAG:
            response = command.response()
        if response is not None:
            self.reply(response)

    def _answer(self, response: RemotingCommand) -> int:
        """Writes a response; returns its length, 0 where nothing is sent. What fits no frame gives
        way to an error in `response` itself."""
        # The response to a oneway request carries its flag, so that it is known here.
        if response.flag & ONEWAY_FLAG:
            return 0
        self.unanswered -= 1
        if not self.connected:
            return 0
        try:
            data = encode_command(response)
        except WireError as error:
            data = _unsendable(response, str(error))
        if len(data) > self._frame_limit:
            # The other end would cut the connection, and with it all that others wait for.
            data = _unsendable(
                response,
                f"{len(data)} bytes, and frames may have {self._frame_limit}"
                " (frameMaxLength): ask for less at once",
            )
        self._write(data)
        return len(data)

    def _refusal(self, command: RemotingCommand, failure: Failure) -> RemotingCommand:
        error = failure.value
        if isinstance(error, RequestError):
            return command.response(error.code, error.remark)
        if isinstance(error, WireError):
            return command.response(ResponseCode.SYSTEM_ERROR, f"the request's body: {error}")
        if not (failure.check(CancelledError) and not self.connected):
            self.log.failure(
                "request {code} of {address} failed",
                failure=failure,
                code=command.code,
                address=self.address,
            )
        return command.response(
            ResponseCode.SYSTEM_ERROR,
            f"request {command.code} failed with {type(error).__name__}; see the server's log",
        )


def _unsendable(response: RemotingCommand, why: str) -> bytes:
    """Makes of an answer that fits no frame one that says so."""
    response.code = ResponseCode.SYSTEM_ERROR
    response.remark = f"the answer cannot be sent: {why}"
    response.ext_fields, response.body = {}, b""
    return encode_command(response)


def as_deferred(result: Any) -> Deferred[Any]:
    """Returns the Deferred that a handler or a check returned, or one for its coroutine."""
    return result if isinstance(result, Deferred) else Deferred.fromCoroutine(result)


def _refuse_unknown(command: RemotingCommand, peer: IPeer) -> RemotingCommand:
    raise RequestError(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        f"request code {command.code} is not supported",
    )
