"""Requests to a server of this process: its handlers are called, without a connection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.defer import (
    CancelledError,
    Deferred,
    TimeoutError,
    fail,
    maybeDeferred,
    succeed,
)
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketmq_tw.net.errors import RequestTimeout
from rocketmq_tw.net.interfaces import ANONYMOUS, Handler, IPeer, PeerIdentity
from rocketmq_tw.net.protocol import as_deferred
from rocketmq_tw.runtime.listeners import Listeners
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError, WireError

log = Logger()

#: Takes a request of the server to the peer, with the seconds that it has for its answer.
Ask = Callable[[RemotingCommand, float], Deferred[RemotingCommand]]


@implementer(IPeer)
class InProcessPeer:
    """The other end of requests that come from this process, until it leaves. `ask` takes what the
    server asks of it; without it the peer only asks itself."""

    identity: PeerIdentity = ANONYMOUS

    def __init__(self, address: str, local_address: str, ask: Ask | None = None) -> None:
        self.address = address
        self.local_address = local_address
        self.connected = True
        self._ask = ask
        self._waiting: dict[int, Deferred[RemotingCommand]] = {}
        self._lost = Listeners[IPeer]("a peer of this process had left")

    def call(self, handler: Handler, request: RemotingCommand) -> Any:
        """Returns what the handler of a request of this peer does: the answer, or a Deferred of
        it."""

        def forget(_: object) -> None:
            self._waiting.pop(request.opaque, None)

        replied: Deferred[RemotingCommand] = Deferred(forget)
        self._waiting[request.opaque] = replied
        try:
            result = handler(request, self)
        except BaseException:
            del self._waiting[request.opaque]
            raise
        if result is None:
            return replied
        self._waiting.pop(request.opaque, None)
        return result if isinstance(result, RemotingCommand) else as_deferred(result)

    def leave(self) -> None:
        """Ends the peer as the loss of a connection ends one."""
        if self.connected:
            self.connected = False
            self._lost.tell(self)
            self._lost.clear()

    def request(self, command: RemotingCommand, timeout: float) -> Deferred[RemotingCommand]:
        if self._ask is None:
            reason = "this peer asks only"
            return fail(RequestError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, reason))
        # As over a connection, a refusal is an answer.
        return self._ask(command, timeout).addErrback(_as_response, command)

    def send_oneway(self, command: RemotingCommand) -> None:
        if self._ask is not None and self.connected:
            self._ask(command, 0.0).addErrback(lambda _: None)

    def reply(self, response: RemotingCommand) -> None:
        waiting = self._waiting.pop(response.opaque, None)
        if waiting is not None:
            waiting.callback(response)

    def when_lost(self, callback: Callable[[IPeer], None]) -> None:
        if self.connected:
            self._lost.add(callback)
        else:
            callback(self)

    def when_ready(self, callback: Callable[[], None]) -> None:
        callback()

    def close(self, reason: str) -> None:
        self.leave()


def call_handler(
    handlers: Mapping[int, Handler],
    request: RemotingCommand,
    peer: InProcessPeer,
    timeout: float,
    clock: IReactorTime,
) -> Deferred[RemotingCommand]:
    """Fires with the answer of the handler for a request, as it would come over a connection: a
    refusal is a response too. Fails with `RequestTimeout`."""
    handler = handlers.get(request.code)
    if handler is None:
        reason = f"request code {request.code} is not supported"
        return succeed(request.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, reason))
    answer: Deferred[Any] = maybeDeferred(peer.call, handler, request)
    if answer.called:
        return answer.addErrback(_as_response, request)
    answer.addTimeout(timeout, clock)

    def ended(failure: Failure) -> RemotingCommand:
        if failure.check(TimeoutError, CancelledError):
            raise RequestTimeout(peer.local_address, request.code, timeout)
        return _as_response(failure, request)

    return answer.addErrback(ended)


def _as_response(failure: Failure, request: RemotingCommand) -> RemotingCommand:
    if isinstance(failure.value, RequestError):
        return request.response(failure.value.code, failure.value.remark)
    if not failure.check(WireError):
        log.failure("a request of this process failed", failure=failure)
    return request.response(ResponseCode.SYSTEM_ERROR, failure.getErrorMessage())
