"""Puts a broker's parts together: each is made with what its constructor asks for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, TypeVar, cast, get_type_hints

from rocketmq_tw.broker.assembly.part import Part

P = TypeVar("P", bound=Part)


class AssemblyError(TypeError):
    """Parts that cannot be put together; the text names the part and what it lacks."""


@cache
def _wanted(kind: type[Part]) -> tuple[tuple[str, Any], ...]:
    """Returns the arguments of the constructor and their annotations."""
    hints = get_type_hints(kind.__init__)
    hints.pop("return", None)
    return tuple(hints.items())


class Assembly:
    """The parts of one broker, each behind those that it uses.

    `kinds` are the classes of the parts, in any order. An argument of a constructor is filled by
    its annotation: with a part of that class, with the object of `given` that has that class, or
    with the assembly itself. Raises `AssemblyError` where nothing fits, or where parts use each
    other in a circle.
    """

    def __init__(self, kinds: Iterable[type[Part]], given: Sequence[object]) -> None:
        self._kinds = tuple(kinds)
        self._given: dict[type, Any] = {type(each): each for each in (*given, self)}
        self._parts: dict[type[Part], Part] = {}
        self._being_made: list[type[Part]] = []
        for kind in self._kinds:
            self._make(kind)

    def __iter__(self) -> Iterator[Part]:
        """Iterates over the parts, each behind the parts that it uses."""
        return iter(self._parts.values())

    def __reversed__(self) -> Iterator[Part]:
        """Iterates over the parts, each before the parts that it uses."""
        return iter(tuple(self._parts.values())[::-1])

    def __getitem__(self, kind: type[P]) -> P:
        """Returns the part of a class; raises `KeyError` where the broker has none."""
        part = self._parts[kind]
        assert isinstance(part, kind)
        return part

    def __contains__(self, kind: type[Part]) -> bool:
        return kind in self._parts

    def _make(self, kind: type[Part]) -> Part:
        made = self._parts.get(kind)
        if made is not None:
            return made
        if kind in self._being_made:
            circle = [*self._being_made[self._being_made.index(kind) :], kind]
            raise AssemblyError(" uses ".join(each.__name__ for each in circle))
        self._being_made.append(kind)
        try:
            # mypy takes no class for hashable.
            wanted = _wanted(cast(Any, kind))
            arguments = {name: self._find(kind, name, want) for name, want in wanted}
        finally:
            self._being_made.pop()
        part = self._parts[kind] = kind(**arguments)
        return part

    def _find(self, kind: type[Part], name: str, wanted: Any) -> Any:
        if wanted in self._given:
            return self._given[wanted]
        if wanted in self._kinds:
            return self._make(wanted)
        raise AssemblyError(
            f"{kind.__name__} wants {getattr(wanted, '__name__', wanted)} as {name!r}, which is"
            " neither given nor among the parts"
        )
