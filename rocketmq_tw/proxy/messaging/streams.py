"""Methods of MessagingService whose response is a stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from google.protobuf.message import Message
from twisted.internet.defer import Deferred

from rocketmq_tw.proxy.grpc.interfaces import GrpcError, ICall, RequestLimits, ServerStream
from rocketmq_tw.proxy.messaging.statuses import status_of
from rocketmq_tw.proxy.proto.messages import FilterExpression

#: Bytes of a request, whose expression may have 64 Ki characters, and of all else in it, which
#: stays in memory as long as its client waits for messages.
_LARGEST = 512 * 1024
_MOST_BESIDE = 64 * 1024

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)


def server_stream(
    request: type[Q], response: type[R], handler: Callable[[Q, ICall], Awaitable[None]]
) -> ServerStream:
    """Returns a method whose errors are told by a response with a status, the last one; its request
    has an expression as its field `filter_expression`."""
    of_request: Any = request
    limits = RequestLimits(
        largest=_LARGEST,
        bulk=(
            of_request.FILTER_EXPRESSION_FIELD_NUMBER,
            FilterExpression.EXPRESSION_FIELD_NUMBER,
        ),
        beside=_MOST_BESIDE,
    )

    async def answer(asked: Q, call: ICall) -> None:
        try:
            await handler(asked, call)
        except GrpcError:
            raise
        except Exception as error:
            failed: Any = response
            call.send(failed(status=status_of(error)))

    return ServerStream(request, answer, limits)


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
