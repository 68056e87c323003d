"""The base of all typed configurations.

One `Config` for each of stock's configuration classes, in a module named after it (`store.py` for
MessageStoreConfig). A field is a stock key that has an effect here, in snake_case, with stock
5.3.3's default; `rename="camel"` gives the key's name in a .properties file.

A field says itself which values it accepts (`Range`, `Format`), whether it may change while the
server runs (`Live`) and then for administrators only (`AdminLive`), and whether its value may leave
over the wire (`Secret`, `LocalPath`)::

    file_reserved_time: AdminLive[Annotated[int, Range(1, 878_400)]] = 72

The keys: docs/configuration.md.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import cached_property
from typing import Annotated, TypeVar

import attrs

from rocketmq_tw.config.values import INT, LONG, Parse, addresses, host, networks, or_nothing
from rocketmq_tw.structs import msgspec

T = TypeVar("T")


@attrs.frozen
class Range:
    """The lowest and the highest number that a field accepts."""

    lowest: int
    highest: int


@attrs.frozen
class Format:
    """How the text of a field is read; raises `ValueError` that says what is accepted."""

    parse: Parse


class Mark(enum.Enum):
    """What else is said of a field."""

    LIVE = "may be changed while the server runs"
    ADMIN = "is changed for administrators only"
    SECRET = "is never told over the wire"
    LOCAL_PATH = "names a place on the server's own disk"


#: A key that may change while the server runs: looked at on each use, or followed with `on_change`.
#: It names no path, no address, no command and no identity.
Live = Annotated[T, Mark.LIVE]
#: A live key with a value that removes data, takes back a promise about messages or ends a service:
#: only administrators may change it over the wire.
AdminLive = Annotated[T, Mark.LIVE, Mark.ADMIN]
Secret = Annotated[str, Mark.SECRET]
LocalPath = Annotated[str, Mark.LOCAL_PATH]

#: Numbers of stock's types int and long. Intervals, time-outs and sizes of steps are positive: 0
#: would be at once, never or nothing at all.
NonNegative = Annotated[int, Range(0, INT[1])]
NonNegativeLong = Annotated[int, Range(0, LONG[1])]
Positive = Annotated[int, Range(1, INT[1])]
PositiveLong = Annotated[int, Range(1, LONG[1])]
Port = Annotated[int, Range(0, 65535)]
Percent = Annotated[int, Range(0, 100)]

#: `host:port`, several with `;` between them, or nothing.
AddressList = Annotated[str, Format(addresses)]
#: Networks such as `10.0.0.0/8`, several with `;` between them, or nothing.
NetworkList = Annotated[str, Format(networks)]
HostName = Annotated[str, Format(host)]
OptionalHost = Annotated[str, Format(or_nothing(host))]


#: Is told the names of the keys that changed, as files write them.
OnChange = Callable[[frozenset[str]], None]


class Config(msgspec.Struct, rename="camel", kw_only=True, frozen=True, dict=True):
    """Typed keys. Attributes cannot be assigned: another configuration is made with
    `msgspec.structs.replace`, and what may change while the server runs goes through
    `rocketmq_tw.config.change.change`."""

    @cached_property
    def _subscribers(self) -> dict[object, Callable[[], OnChange | None]]:
        # Beside the fields, so that a copy or a comparison takes no notice of them.
        return {}
