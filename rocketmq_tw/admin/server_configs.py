"""The configurations that several servers work with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from rocketmq_tw.admin.each_server import ask_each, on_each, remarks_of
from rocketmq_tw.admin.output import Column, Listing, Report
from rocketmq_tw.admin.tool import Servers

_VALUE = Column("Value", "value")


async def configs_report(
    servers: Servers,
    kind: str,
    addresses: Iterable[str],
    ask: Callable[[str], Awaitable[Mapping[str, str]]],
) -> Report:
    """Returns the report of the servers at some addresses, under the name of their kind; asks as
    `ask_each` does."""
    found: list[dict[str, Any]] = [
        {
            "address": answer.address,
            "config": dict(sorted((answer.value or {}).items())),
            "error": answer.error,
        }
        for answer in await ask_each(servers, addresses, ask)
    ]
    listings = [
        Listing(
            (Column(f"Key at {one['address']}", "key"), _VALUE),
            [{"key": key, "value": value} for key, value in one["config"].items()],
        )
        for one in found
        if one["error"] is None
    ]
    return Report({kind: found}, listings)


async def changed_configs_report(
    kind: str,
    addresses: Iterable[str],
    key: str,
    value: str,
    change: Callable[[str, dict[str, str]], Awaitable[str]],
) -> Report:
    """Gives a key a new value at each server, and returns the report of that, under the name of
    their kind, with what they have to say of it: that no start will know of it, for one. Ends the
    command as `on_each` does."""
    said: dict[str, str] = {}

    async def change_one(address: str) -> None:
        said[address] = await change(address, {key: value})

    done = await on_each(addresses, change_one, said)
    lines = [f"{key}={value} on {address}" for address in done]
    return report_with_remarks({"key": key, "value": value, kind: done}, lines, said)


def report_with_remarks(
    data: dict[str, Any], lines: Sequence[str], said: Mapping[str, str]
) -> Report:
    """Returns a report with what servers, by address, have to say of what they did."""
    remarks = remarks_of(said)
    if not remarks:
        return Report(data, lines=lines)
    told = [f"{address}: {remark}" for address, remark in remarks.items()]
    return Report(data | {"remarks": remarks}, lines=[*lines, *told])
