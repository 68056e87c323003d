"""How long all tables of a server are: whatever can be reached from its objects.

before = tables_of(broker.broker)
...
assert not grown(before, tables_of(broker.broker))
"""

from __future__ import annotations

import gc
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import partial
from types import (
    BuiltinMethodType,
    CellType,
    CodeType,
    FrameType,
    FunctionType,
    MappingProxyType,
    MethodType,
    ModuleType,
)
from typing import Any, NamedTuple
from weakref import ProxyTypes

#: What holds nothing.
_ATOMS = (str, bytes, int, float, complex, type(None), memoryview, type, ModuleType, CodeType)
_NUMBERS = (bytearray, array)
_CONTAINERS = (list, tuple, set, frozenset, deque)
_MAPPINGS = (dict, MappingProxyType)
#: What has nothing but its entries.
_COUNTED = {*_CONTAINERS, *_MAPPINGS, *_NUMBERS, Counter, OrderedDict, defaultdict}


class Stays(NamedTuple):
    """Why a table need not get back to where it was, and how many entries it has at most; None: as
    many as there are of what it is about."""

    why: str
    most: int | None = None


def tables_of(
    *roots: object, outside: tuple[type, ...] = (), but: Container[str] = ()
) -> Counter[str]:
    """How many entries all containers have that can be reached from `roots`, by the attribute that
    has them: `HeldRequests._queues`, and `HeldRequests._queues[]` for what is in its entries; and
    how many objects there are of each class.

    Nothing is said of classes, of modules, and of what belongs to tests, nor of objects of the
    classes in `outside` and what only they have, nor of the entries of the tables in `but`.
    """
    walk = _Walk(outside, but)
    for root in roots:
        walk.to(root, type(root).__qualname__, None)
    walk.go()
    return walk.found()


class _Walk:
    """Goes through objects. What is reached in several ways has the first of its labels by the
    alphabet, whichever way came first."""

    def __init__(self, outside: tuple[type, ...], but: Container[str]) -> None:
        self._outside = outside
        self._but = but
        self._objects: Counter[str] = Counter()
        self._seen: set[int] = set()
        #: So that no id is given out again.
        self._kept: list[object] = []
        self._waiting: list[tuple[object, str]] = []
        #: Containers: their lengths, the attributes that have them, the containers that do.
        self._sizes: dict[int, int] = {}
        self._labels: dict[int, set[str]] = {}
        self._within: dict[int, set[int]] = {}

    def to(self, each: object, label: str, within: object) -> None:
        """Has an object looked at that `within` has, a container, or else an attribute."""
        # Proxies hold nothing, and ask what they stand for of what class it is, which may be gone:
        # protobuf in Python has some.
        if type(each) in ProxyTypes or isinstance(each, (*_ATOMS, *self._outside)):
            return
        if type(each).__module__.startswith(("tests.", "h2.", "hpack.")):
            return
        if type(each) in _COUNTED:
            if within is None:
                self._labels.setdefault(id(each), set()).add(label)
            else:
                self._within.setdefault(id(each), set()).add(id(within))
        if id(each) not in self._seen:
            self._seen.add(id(each))
            self._kept.append(each)
            self._waiting.append((each, label))

    def go(self) -> None:
        """Goes through all that can be reached."""
        while self._waiting:
            each, label = self._waiting.pop()
            if type(each) in _COUNTED:
                self._enter(each, label)
            else:
                for part, part_label in _parts(each, label, self._objects):
                    self.to(part, part_label, None)

    def _enter(self, each: Any, label: str) -> None:
        self._sizes[id(each)] = len(each)
        if label in self._but or isinstance(each, _NUMBERS):
            return
        for item in each:
            self.to(item, f"{label}[]", each)
        if isinstance(each, _MAPPINGS):
            for item in each.values():
                self.to(item, f"{label}[]", each)

    def found(self) -> Counter[str]:
        """Returns what there is, by label."""
        found = Counter(self._objects)
        for each, size in self._sizes.items():
            found[self._label_of(each, ())] += size
        return found

    def _label_of(self, each: int, inner: tuple[int, ...]) -> str:
        labels = self._labels.get(each)
        if labels:
            return min(labels)
        outer = self._within[each].difference(inner, (each,))
        return min((self._label_of(one, (*inner, each)) + "[]" for one in outer), default="~[]")


def grown(
    before: Mapping[str, int], after: Mapping[str, int], stay: Mapping[str, Stays] = {}
) -> dict[str, tuple[int, int]]:
    """What has more entries `after` than `before`, with both numbers; of what is in `stay`, what
    has more than it may have."""
    found = {}
    for label, number in sorted(after.items()):
        limit = before.get(label, 0)
        if label in stay:
            most = stay[label].most
            limit = number if most is None else max(most, limit)
        if number > limit:
            found[label] = before.get(label, 0), number
    return found


def _parts(each: Any, label: str, found: Counter[str]) -> Iterator[tuple[object, str]]:
    """Yields what an object that is no container has, with a label of each."""
    if isinstance(each, FunctionType):
        # Behind those of attributes by the alphabet: what has one is known by that.
        name = f"~{each.__qualname__}"
        # The functions of PyPy itself are of this type too, and their code names no variables.
        variables = getattr(each.__code__, "co_freevars", ())
        for variable, cell in zip(variables, each.__closure__ or (), strict=True):
            yield cell, f"{name}:{variable}"
        yield each.__defaults__, f"{name}:defaults"
    elif isinstance(each, BuiltinMethodType) or (
        # PyPy has no such type.
        isinstance(each, MethodType) and type(each.__self__) in _COUNTED
    ):
        yield each.__self__, f"~{label}"
    elif isinstance(each, MethodType):
        yield each.__self__, type(each.__self__).__qualname__
        yield each.__func__, label
    elif isinstance(each, CellType):
        try:
            yield each.cell_contents, label
        except ValueError:
            return
    elif isinstance(each, partial):
        yield each.func, label
        yield each.args, f"~{label}:arguments"
        yield each.keywords, f"~{label}:arguments"
    elif isinstance(each, FrameType):
        return
    else:
        kind = type(each)
        name = kind.__qualname__
        found[name] += 1
        named = set()
        for attribute, value in _attributes(each):
            named.add(id(value))
            yield value, f"{name}.{attribute}"
        if issubclass(kind, list | set | frozenset | tuple | deque):
            found[label] += len(each)
        for value in gc.get_referents(each):
            if id(value) not in named and not (isinstance(value, dict) and value is vars_of(each)):
                yield value, f"~{name}"


def vars_of(each: object) -> object:
    """Returns the dictionary of an object's attributes; None where it has none."""
    return getattr(each, "__dict__", None)


def _attributes(each: object) -> Iterable[tuple[str, object]]:
    own = vars_of(each)
    if isinstance(own, dict):
        yield from own.items()
    for kind in type(each).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if slot not in ("__dict__", "__weakref__"):
                private = slot.startswith("__") and not slot.endswith("__")
                attribute = f"_{kind.__name__.lstrip('_')}{slot}" if private else slot
                value = getattr(each, attribute, None)
                if value is not None:
                    yield attribute, value
