"""Each class of structs twice: of msgspec, and of what stands in for it where that cannot be."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import rocketmq_tw
from rocketmq_tw.structs import msgspec, plain

_ROOT = Path(rocketmq_tw.__path__[0])
_HELPERS = ("tests.support.raft_kv", "tests.support.raft_history", "tests.support.raft_cluster")


class Twins(NamedTuple):
    """Classes of msgspec with their twins, and the modules that the twins are of."""

    classes: dict[Any, Any]
    modules: dict[str, Any]

    def carried(self, value: Any) -> Any:
        """Returns `value`, which may hold structs of msgspec, with their twins in place of them."""
        of = type(value)
        if isinstance(value, msgspec.Struct):
            twin = object.__new__(self.classes[of])
            for name in of.__struct_fields__:
                object.__setattr__(twin, name, self.carried(getattr(value, name)))
            return twin
        if of is msgspec.Raw:
            return plain.Raw(bytes(value))
        if value is msgspec.UNSET:
            return plain.UNSET
        if isinstance(value, Enum):
            return getattr(self.modules[of.__module__], of.__name__)[value.name]
        if of is dict:
            return {self.carried(key): self.carried(item) for key, item in value.items()}
        if of in (list, tuple):
            return of(self.carried(item) for item in value)
        return value


@cache
def twins() -> Twins:
    """Returns all classes of the package: its modules are loaded a second time, with the stand-in
    in place of msgspec. Where that is in place already, each class is its own twin."""
    names = [_name(path) for path in sorted(_ROOT.rglob("*.py")) if _has_structs(path)]
    for name in (*names, *_HELPERS):
        importlib.import_module(name)
    if not TYPE_CHECKING and msgspec is plain:
        return Twins(
            {each: each for each in _classes(plain.Struct) if _is_doubled(each.__module__)}, {}
        )
    with _other_modules() as others:
        switch = importlib.import_module("rocketmq_tw.structs")
        vars(switch)["msgspec"] = plain
        for name in ("Meta", "field", "structs"):
            vars(switch)[name] = getattr(plain, name)
        for name in ("astuple", "fields", "force_setattr", "replace"):
            vars(switch)[name] = getattr(plain.structs, name)
        for name in (*names, *_HELPERS):
            importlib.import_module(name)
        others |= {name: module for name, module in sys.modules.items() if _is_doubled(name)}
        by_name = {(each.__module__, each.__qualname__): each for each in _classes(plain.Struct)}
        for each in by_name.values():
            # Names in annotations are looked up in the modules that are loaded now.
            plain.structs.fields(each)
    return Twins(
        {
            each: by_name[each.__module__, each.__qualname__]
            for each in _classes(msgspec.Struct)
            if each.__module__ in others
        },
        others,
    )


def _has_structs(path: Path) -> bool:
    return "from rocketmq_tw.structs import" in path.read_text()


def _name(path: Path) -> str:
    parts = path.relative_to(_ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _is_doubled(name: str) -> bool:
    if name.startswith(("rocketmq_tw.structs.plain", "rocketmq_tw.proxy.proto")):
        return False
    return name in _HELPERS or name == "rocketmq_tw" or name.startswith("rocketmq_tw.")


@contextmanager
def _other_modules() -> Iterator[dict[str, Any]]:
    """While it lasts, modules are loaded once more; then they are gone again."""
    first = {name: module for name, module in sys.modules.items() if _is_doubled(name)}
    for name in first:
        del sys.modules[name]
    try:
        yield {}
    finally:
        for name in [name for name in sys.modules if _is_doubled(name)]:
            del sys.modules[name]
        sys.modules.update(first)


def _classes(base: Any) -> Iterator[Any]:
    """Yields the classes below `base` that their module has under their own name: others may be
    made while a server runs, by what ran before this."""
    for each in type.__subclasses__(base):
        if getattr(sys.modules.get(each.__module__), each.__qualname__, None) is each:
            yield each
        yield from _classes(each)


@cache
def readable() -> dict[Any, Any]:
    """Returns the classes that JSON can become, with their twins."""
    found = {}
    for struct_type, twin in twins().classes.items():
        with suppress(TypeError):
            msgspec.json.Decoder(struct_type)
            with suppress(plain.DecodeError):
                plain.json.Decoder(twin).decode(b"")
            found[struct_type] = twin
    return found
