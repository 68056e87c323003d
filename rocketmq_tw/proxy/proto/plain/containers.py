"""Lists and maps for fields with several values. A message that is in no other one yet gets into
it when something is put into one of its own."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rocketmq_tw.proxy.proto.plain.checks import checked_text


class RepeatedValues(Sequence[Any]):
    """The values of a repeated field; `take` checks one, or copies a message."""

    __slots__ = ("_take", "items_", "owner_")

    def __init__(self, owner: Any, take: Callable[[Any], Any]) -> None:
        self.owner_ = owner
        self.items_: list[Any] = []
        self._take = take

    def __len__(self) -> int:
        return len(self.items_)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items_)

    def __getitem__(self, index: Any) -> Any:
        return self.items_[index]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, RepeatedValues):
            return self.items_ == other.items_
        return self.items_ == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self.items_)

    def append(self, value: Any) -> None:
        """Adds a value."""
        self.items_.append(self._take(value))
        self._changed()

    def extend(self, values: Iterable[Any]) -> None:
        """Adds values, all of them or none."""
        self.items_ += [self._take(value) for value in values]
        self._changed()

    def _changed(self) -> None:
        if self.owner_.owner_ is not None:
            self.owner_.enter_()


class RepeatedMessages(RepeatedValues):
    """The messages of a repeated field, of the type `kind`."""

    __slots__ = ("_kind",)

    def __init__(self, owner: Any, kind: Any) -> None:
        super().__init__(owner, kind.copied_)
        self._kind = kind

    def add(self, **fields: Any) -> Any:
        """Adds a new message and returns it."""
        added = self._kind(**fields)
        self.items_.append(added)
        self._changed()
        return added


class TextMap(Mapping[str, str]):
    """The entries of a map from texts to texts."""

    __slots__ = ("_name", "items_", "owner_")

    def __init__(self, owner: Any, name: str) -> None:
        self.owner_ = owner
        self._name = name
        self.items_: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self.items_)

    def __iter__(self) -> Iterator[str]:
        return iter(self.items_)

    def __getitem__(self, key: str) -> str:
        return self.items_[key]

    def __contains__(self, key: object) -> bool:
        return key in self.items_

    def items(self) -> ItemsView[str, str]:
        return self.items_.items()

    def __setitem__(self, key: str, value: str) -> None:
        if type(key) is not str or not key.isascii():
            key = checked_text(key, self._name)
        if type(value) is not str or not value.isascii():
            value = checked_text(value, self._name)
        self.items_[key] = value
        if self.owner_.owner_ is not None:
            self.owner_.enter_()

    def __eq__(self, other: object) -> bool:
        return self.items_ == (other.items_ if isinstance(other, TextMap) else other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self.items_)

    def update(self, other: Mapping[str, str]) -> None:
        """Takes over all entries of another map."""
        for key, value in other.items():
            self[key] = value
