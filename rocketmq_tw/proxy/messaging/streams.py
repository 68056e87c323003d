"""Methods of MessagingService whose response is a stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from google.protobuf.message import Message
from twisted.internet.defer import Deferred

from rocketmq_tw.proxy.grpc.interfaces import GrpcError, ICall, RequestLimits, ServerStream
from rocketmq_tw.proxy.messaging.statuses import status_of

#: An expression may have 64 Ki characters.
_LIMITS = RequestLimits(largest=512 * 1024)

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)


def server_stream(
    request: type[Q], response: type[R], handler: Callable[[Q, ICall], Awaitable[None]]
) -> ServerStream:
    """Returns a method whose errors are told by a response with a status, the last one."""

    async def answer(asked: Q, call: ICall) -> None:
        try:
            await handler(asked, call)
        except GrpcError:
            raise
        except Exception as error:
            failed: Any = response
            call.send(failed(status=status_of(error)))

    return ServerStream(request, answer, _LIMITS)


def when_ready(call: ICall) -> Deferred[None]:
    """Fires once the caller keeps up with what was sent, or its call is over."""
    ready: Deferred[None] = Deferred()

    def fire() -> None:
        if not ready.called:
            ready.callback(None)

    call.when_ready(fire)
    if not ready.called:
        call.on_end(fire)
    return ready
