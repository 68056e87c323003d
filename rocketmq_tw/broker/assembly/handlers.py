"""One table, request code to handler, out of several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError


def merge_handlers(tables: Iterable[Mapping[int, Handler]]) -> dict[int, Handler]:
    """All handlers; raises `ValueError` where two tables have the same code."""
    merged: dict[int, Handler] = {}
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
