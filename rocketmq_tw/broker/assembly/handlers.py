"""Handlers: one table out of several, refusals, and requests that are answered later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from twisted.internet.defer import ensureDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError

log = Logger()

#: `Handler` or `FrameHandler`.
H = TypeVar("H")


def merge_handlers(tables: Iterable[Mapping[int, H]]) -> dict[int, H]:
    """Returns all handlers; raises `ValueError` where two tables have the same code."""
    merged: dict[int, H] = {}
    for table in tables:
        for code, handler in table.items():
            if code in merged:
                raise ValueError(f"{merged[code]} and {handler} both answer request {code}")
            merged[code] = handler
    return merged


def refusing(codes: Iterable[int], code: ResponseCode, remark: str) -> dict[int, Handler]:
    """Handlers that answer each of `codes` with a refusal."""

    def refuse(request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        raise RequestError(code, remark)

    return dict.fromkeys(codes, refuse)


def refusal(failure: Failure, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
    """Returns the answer to a request that was held and failed; what is no refusal is logged."""
    error = failure.value
    if isinstance(error, RequestError):
        return request.response(error.code, error.remark)
    log.failure(
        "request {code} of {peer}, which was held, failed",
        failure=failure,
        code=request.code,
        peer=peer.address,
    )
    return request.response(ResponseCode.SYSTEM_ERROR, "the request failed; see the broker's log")


def answer_later(
    handler: Callable[[RemotingCommand, IPeer], Any], request: RemotingCommand, peer: IPeer
) -> None:
    """Handles a request that was held again, and replies unless it is held once more."""

    def reply(response: RemotingCommand | None) -> None:
        if response is not None:
            peer.reply(response)

    def refuse(failure: Failure) -> RemotingCommand:
        return refusal(failure, request, peer)

    try:
        response = handler(request, peer)
    except Exception:
        response = refuse(Failure())
    # First what most answers are: isinstance of Deferred costs some microseconds.
    if response is None or isinstance(response, RemotingCommand):
        reply(response)
    else:
        ensureDeferred(response).addErrback(refuse).addCallback(reply)
