"""The configurations that several servers work with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from rocketmq_tw.admin.brokers import ask_each, on_each
from rocketmq_tw.admin.output import Column, Listing, Report
from rocketmq_tw.admin.tool import Servers

_VALUE = Column("Value", "value")
#: What servers of stock may leave in an answer that is no failure.
_SAYS_NOTHING = ("", "not set any response code")


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

    done = await on_each(addresses, change_one)
    value_of: dict[str, Any] = {"key": key, "value": value, kind: done}
    remarks = {address: said[address] for address in done if said[address] not in _SAYS_NOTHING}
    if remarks:
        value_of["remarks"] = remarks
    lines = [f"{key}={value} on {address}" for address in done]
    return Report(
        value_of,
        lines=lines + [f"{address}: {remark}" for address, remark in remarks.items()],
    )
