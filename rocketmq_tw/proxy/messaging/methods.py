"""Declares the methods of MessagingService for its services."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from google.protobuf.message import Message
from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from rocketmq_tw.net.protocol import as_deferred
from rocketmq_tw.proxy.grpc.interfaces import SMALL_REQUEST, GrpcError, ICall, RequestLimits, Unary
from rocketmq_tw.proxy.messaging.statuses import StatusError, status_of
from rocketmq_tw.proxy.proto.messages import Code

SERVICE = "apache.rocketmq.v2.MessagingService"
#: Left of a call's time for the way of the response: half of it where that is less.
_RESERVE_SECONDS = 0.05

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)
T = TypeVar("T")


def path(method: str) -> str:
    """Returns the path of a method of the service."""
    return f"/{SERVICE}/{method}"


def unary(
    request: type[Q],
    response: type[R],
    handler: Callable[[Q, ICall], Awaitable[R]],
    limits: RequestLimits = SMALL_REQUEST,
) -> Unary:
    """Returns a method whose errors are told by the status that its response has inside."""

    def refused(error: Exception) -> R:
        made: Any = response
        answered: R = made(status=status_of(error))
        return answered

    def failed(failure: Failure) -> Any:
        error = failure.value
        if isinstance(error, GrpcError) or not isinstance(error, Exception):
            return failure
        return refused(error)

    def answer(asked: Q, call: ICall) -> R | Deferred[R]:
        try:
            return as_deferred(handler(asked, call)).addErrback(failed)
        except GrpcError:
            raise
        except Exception as error:
            return refused(error)

    return Unary(request, answer, limits)


def seconds_left(call: ICall, clock: IReactorTime, most: float) -> float:
    """Returns how long a broker may take for a call: until shortly before its deadline, and `most`
    seconds where it has none or a later one. Raises `StatusError` where no time is left."""
    if call.deadline is None:
        return most
    left = call.deadline - clock.seconds()
    if left <= 0:
        raise StatusError(Code.REQUEST_TIMEOUT, "no time is left before the call's deadline")
    return min(left - min(_RESERVE_SECONDS, left / 2), most)


async def in_time(
    answered: Deferred[T], seconds: float, clock: IReactorTime, missing: str, advice: str
) -> T:
    """Returns what a broker answers; raises `StatusError` (PROXY_TIMEOUT) where that is not there
    after `seconds`. `missing` says what the broker has not done by then, `advice` what to do."""
    try:
        return await answered.addTimeout(seconds, clock)
    except TimeoutError:
        raise StatusError(
            Code.PROXY_TIMEOUT, f"{missing} within {seconds:.1f} s: {advice}"
        ) from None
