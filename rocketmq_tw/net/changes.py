"""Words for what administrators change, as logs tell it: who did it, the new value, and what was
before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rocketmq_tw.net.interfaces import ANONYMOUS, IIdentified, IPeer
from rocketmq_tw.structs import msgspec

T = TypeVar("T")

#: Entries of one change that the log tells of.
NAMED = 100
#: Characters of one value that the log tells.
MAX_TOLD = 1_000


def who(peer: IIdentified) -> str:
    """Returns the address of a peer, behind it its name where a check has identified it, and where
    it is served: several brokers, or a broker and its name server, may have one log."""
    name = "" if peer.identity == ANONYMOUS else f" ({peer.identity.name})"
    served = f" at {peer.local_address}" if IPeer.providedBy(peer) else ""
    return f"{peer.address}{name}{served}"


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
    return _bounded(_entry(value) if isinstance(value, msgspec.Struct) else _value(value))


def _entry(entry: msgspec.Struct) -> Iterator[str]:
    yield f"{_name_of(entry)} with "
    fields = msgspec.structs.fields(entry)[1:]
    values = [(each, getattr(entry, each.name)) for each in fields]
    told = [(each.encode_name, value) for each, value in values if value != _default(each)]
    if not told:
        yield "all as by default"
    for number, (name, value) in enumerate(told):
        yield f"{', ' if number else ''}{name}="
        yield from _value(value)


def _differences(now: msgspec.Struct, before: msgspec.Struct) -> Iterator[str]:
    separator = ""
    for each in msgspec.structs.fields(now)[1:]:
        new, old = getattr(now, each.name), getattr(before, each.name)
        if new != old:
            yield f"{separator}{each.encode_name}="
            yield from _value(new)
            yield " (was "
            yield from _value(old)
            yield ")"
            separator = ", "


def _name_of(entry: msgspec.Struct) -> str:
    return _bounded([str(getattr(entry, msgspec.structs.fields(entry)[0].name))])


def _default(field: msgspec.structs.FieldInfo) -> Any:
    made = field.default_factory
    return field.default if made is msgspec.NODEFAULT else made()


def _value(value: Any) -> Iterator[str]:
    """Yields the pieces of a value's text, as the wire has it, and not as a program would make
    it."""
    if isinstance(value, msgspec.Struct | list | tuple | dict):
        yield from _pieces(value)
    else:
        yield str(value)


def _pieces(value: Any) -> Iterator[str]:
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        value = {name: getattr(value, attribute) for name, attribute in names}
    if isinstance(value, dict):
        yield "{"
        for number, (key, item) in enumerate(value.items()):
            yield ", " if number else ""
            yield f"{_quoted(str(key))}: "
            yield from _pieces(item)
        yield "}"
    elif isinstance(value, list | tuple):
        yield "["
        for number, item in enumerate(value):
            yield ", " if number else ""
            yield from _pieces(item)
        yield "]"
    else:
        yield _quoted(value) if isinstance(value, str) else repr(msgspec.to_builtins(value))


def _quoted(text: str) -> str:
    return repr(text[:MAX_TOLD])


def _bounded(pieces: Iterable[str]) -> str:
    """Returns the text of pieces; of a longer one the start, and then no further piece is made: a
    peer may send a megabyte of lists."""
    text = ""
    for piece in pieces:
        text += piece[: MAX_TOLD + 1]
        if len(text) > MAX_TOLD:
            return f"{text[:MAX_TOLD]}..."
    return text
