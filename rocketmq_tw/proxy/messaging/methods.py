"""How the services of MessagingService declare their methods."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from google.protobuf.message import Message

from rocketmq_tw.proxy.grpc.interfaces import GrpcError, ICall, Unary
from rocketmq_tw.proxy.messaging.statuses import status_of

SERVICE = "apache.rocketmq.v2.MessagingService"

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)


def path(method: str) -> str:
    """Returns the path of a method of the service."""
    return f"/{SERVICE}/{method}"


def unary(
    request: type[Q], response: type[R], handler: Callable[[Q, ICall], Awaitable[R]]
) -> Unary:
    """Returns a method whose errors are told by the status that its response has inside."""

    async def answer(asked: Q, call: ICall) -> R:
        try:
            return await handler(asked, call)
        except GrpcError:
            raise
        except Exception as error:
            failed: Any = response
            answered: R = failed(status=status_of(error))
            return answered

    return Unary(request, answer)
