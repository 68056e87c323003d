"""The walk through a server's tables finds what grows, wherever it is."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from rocketmq_tw.runtime.listeners import Listeners
from rocketmq_tw.runtime.waiters import Waiters
from rocketmq_tw.structs import msgspec
from tests.support.tables import Stays, grown, tables_of


def _kind(name: str, **namespace: Any) -> type:
    """A class that is not of the tests."""
    return type(name, (), {"__module__": "server", **namespace})


Plain = _kind("Plain")
Slotted = _kind("Slotted", __slots__=("_table",))
Struct = msgspec.defstruct("Struct", [("_table", Any, None)], module="server")
Attrs = attrs.make_class("Attrs", {"table": attrs.field(default=None)})
Attrs.__module__ = "server"


def _with(kind: type, name: str, value: object) -> Any:
    made = kind()
    setattr(made, name, value)
    return made


def _hidden(table: dict[int, object]) -> Callable[[], int]:
    return lambda: len(table)


def _generator(table: dict[int, object]) -> Any:
    steps = iter(lambda: len(table), None)
    next(steps)
    return steps


TABLE: dict[int, object] = {}
PLACES = {
    "attribute": _with(Plain, "_table", TABLE),
    "slot": _with(Slotted, "_table", TABLE),
    "struct": _with(Struct, "_table", TABLE),
    "attrs": _with(Attrs, "table", TABLE),
    "nested": _with(Plain, "_all", {"a": [deque([TABLE])]}),
    "closure": _with(Plain, "_call", _hidden(TABLE)),
    "partial": _with(Plain, "_call", partial(len, TABLE)),
    "method": _with(Plain, "_call", TABLE.get),
    "iterator": _with(Plain, "_steps", _generator(TABLE)),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_table_is_found_where_it_is(place: str) -> None:
    TABLE.clear()
    before = tables_of(PLACES[place])
    TABLE.update(enumerate("abc"))
    (found,) = grown(before, tables_of(PLACES[place])).values()
    assert found == (0, 3)


@pytest.mark.parametrize(
    "table", [[1, 2], {1, 2}, deque([1, 2]), Counter("ab"), OrderedDict(a=1, b=2), bytearray(2)]
)
def test_all_kinds_of_tables_count(table: object) -> None:
    assert tables_of(_with(Plain, "_table", table))["Plain._table"] == 2


def test_what_waits_and_what_is_due_counts() -> None:
    waiters, listeners, clock = Waiters[None](), Listeners[int]("it"), Clock()
    table: defaultdict[str, list[object]] = defaultdict(list)
    roots = waiters, listeners, clock, _with(Plain, "_table", table)
    before = tables_of(*roots)
    waiters.wait()
    listeners.add(print)
    clock.callLater(5, Deferred().callback, None)
    table["a"] = ["b"]
    found = grown(before, tables_of(*roots))
    for label in ("Waiters._waiting", "Listeners._by_key", "Clock.calls", "Plain._table"):
        assert found[label] == (0, 1)
    assert found["DelayedCall"] == (0, 1) and found["Plain._table[]"] == (0, 1)


def test_what_may_stay_has_a_limit() -> None:
    before, after = Counter({"A.a": 1, "B.b": 1}), Counter({"A.a": 5, "B.b": 2})
    assert grown(before, after) == {"A.a": (1, 5), "B.b": (1, 2)}
    stay = {"A.a": Stays("few", 4), "B.b": Stays("as many as there are")}
    assert grown(before, after, stay) == {"A.a": (1, 5)}
