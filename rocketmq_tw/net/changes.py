"""How the log tells what administrators change: who did it, the new value, and what was before."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, TypeVar

import msgspec
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rocketmq_tw.net.interfaces import ANONYMOUS, IIdentified

T = TypeVar("T")

#: Entries of one change that the log tells of.
NAMED = 100
#: Characters of one value that the log tells.
MAX_TOLD = 1_000


def who(peer: IIdentified) -> str:
    """Returns the address of a peer, and behind it its name where a check has identified it."""
    if peer.identity == ANONYMOUS:
        return peer.address
    return f"{peer.address} ({peer.identity.name})"


def changed(now: Any, before: Any) -> str:
    """Returns `now`, with what it was `before`; None is what is not there. Of an entry of a table,
    a struct whose first field is its name, the fields that changed, by their names on the wire; of
    one that is new or goes, those that are not as by default."""
    if isinstance(now, msgspec.Struct) and type(now) is type(before):
        return f"{_name_of(now)} with {_bounded(_differences(now, before)) or 'no change'}"
    return f"{_shown(now)} (was {_shown(before)})"


def said_once_made(made: Deferred[T], log: Logger, text: str, /, **told: Any) -> Deferred[T]:
    """Logs `text` with what it tells once a change is `made`: one that is refused, or that no file
    keeps, is none. What was there before is to be told by a text from before the change."""

    def say(result: T) -> T:
        log.info(text, **told)
        return result

    return made.addCallback(say)


def listed(entries: Iterable[str], number: int | None = None) -> str:
    """Returns the first of so many `entries`, and how many more there are; where to count them
    costs too much, whether there are more."""
    found = iter(entries)
    told = ", ".join(islice(found, NAMED)) or "nothing"
    if number is None:
        return told if next(found, None) is None else f"{told} and more"
    return told if number <= NAMED else f"{told} and {number - NAMED} more"


def _shown(value: Any) -> str:
    if value is None:
        return "not there"
    return _bounded(_entry(value) if isinstance(value, msgspec.Struct) else str(value))


def _entry(entry: msgspec.Struct) -> str:
    fields = msgspec.structs.fields(entry)[1:]
    values = [(each, getattr(entry, each.name)) for each in fields]
    told = [
        f"{each.encode_name}={_plain(value)}" for each, value in values if value != _default(each)
    ]
    return f"{_name_of(entry)} with {', '.join(told) or 'all as by default'}"


def _differences(now: msgspec.Struct, before: msgspec.Struct) -> str:
    pairs = [
        (each.encode_name, getattr(now, each.name), getattr(before, each.name))
        for each in msgspec.structs.fields(now)[1:]
    ]
    return ", ".join(
        f"{name}={_plain(new)} (was {_plain(old)})" for name, new, old in pairs if new != old
    )


def _name_of(entry: msgspec.Struct) -> str:
    return str(getattr(entry, msgspec.structs.fields(entry)[0].name))


def _default(field: msgspec.structs.FieldInfo) -> Any:
    made = field.default_factory
    return field.default if made is msgspec.NODEFAULT else made()


def _plain(value: Any) -> Any:
    """Returns a value as the wire has it, and not as a program would make it."""
    if isinstance(value, msgspec.Struct | list | tuple | dict):
        return msgspec.to_builtins(value, str_keys=True)
    return value


def _bounded(text: str) -> str:
    return text if len(text) <= MAX_TOLD else f"{text[:MAX_TOLD]}..."
