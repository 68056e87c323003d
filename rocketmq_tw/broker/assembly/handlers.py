"""One table, code → handler, out of the families'."""

from __future__ import annotations

from typing import Protocol

from rocketmq_tw.net.interfaces import Handler


class RequestFamily(Protocol):
    """A module's worth of handlers."""

    def handlers(self) -> dict[int, Handler]:
        """Code → handler."""
        ...


def merge_handlers(*families: RequestFamily) -> dict[int, Handler]:
    """All handlers; raises `ValueError` where two families answer the same code."""
    table: dict[int, Handler] = {}
    for family in families:
        for code, handler in family.handlers().items():
            if code in table:
                raise ValueError(f"{family} and {table[code]} both answer request {code}")
            table[code] = handler
    return table
