"""Changes of a configuration while its server runs: of the keys marked `Live`, all or none.

Code that keeps something made from an attribute (a timer, a pool) follows it with `on_change`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MethodType
from typing import Any, NamedTuple
from weakref import WeakMethod

from rocketmq_tw.config.base import Config, OnChange
from rocketmq_tw.config.properties import ConfigError
from rocketmq_tw.config.schema import Key, all_stock_names, keys_of, nearest, stock_default
from rocketmq_tw.config.values import format_value
from rocketmq_tw.interpreter import IS_PYPY
from rocketmq_tw.structs import msgspec

#: Characters of a key or value that is refused, as the refusal quotes it.
_QUOTED = 100


class NotChangeable(ConfigError):
    """A key that may not change while the server runs; the text names it."""


class Change(NamedTuple):
    """A value that a key of a configuration is to have."""

    config: Config
    key: Key
    value: Any

    @property
    def text(self) -> str:
        """The value as a .properties file has it."""
        return format_value(self.value)

    @property
    def is_new(self) -> bool:
        """Whether the configuration has another value now."""
        return bool(getattr(self.config, self.key.attribute) != self.value)

    @property
    def text_before(self) -> str:
        """The value that the configuration has now."""
        return format_value(getattr(self.config, self.key.attribute))


def change(config: Config, wanted: Mapping[str, str]) -> list[str]:
    """Gives keys of `config` new values, all or none, and tells its subscribers; returns the names
    of the keys whose value is another now. Raises `ConfigError`; see `plan_changes`."""
    changes = [each for each in plan_changes([config], wanted) if each.is_new]
    apply_changes(changes)
    return [each.key.name for each in changes]


def plan_changes(
    configs: Sequence[Config], wanted: Mapping[str, str], blocked: Collection[str] = ()
) -> list[Change]:
    """Returns what `configs` are to have so that the keys have the texts of `wanted`.

    A key that may not change accepts what it says already, which is left out; none that is
    `blocked` or secret does. Raises `NotChangeable`, or a `ConfigError` that says which values
    the key accepts.
    """
    return [
        each
        for name, text in wanted.items()
        for each in _plan(configs, name, text, name in blocked)
    ]


def apply_changes(changes: Iterable[Change]) -> None:
    """Makes the changes that are any, then tells the subscribers of each configuration which of its
    keys have another value. A subscriber that fails keeps no other from being told; then its error
    is raised."""
    changed: list[tuple[Config, set[str]]] = []
    for each in changes:
        config, key, value = each
        if not each.is_new:
            continue
        msgspec.structs.force_setattr(config, key.attribute, value)
        names = next((names for known, names in changed if known is config), None)
        if names is None:
            names = set()
            changed.append((config, names))
        names.add(key.name)
    errors = []
    for config, names in changed:
        for subscriber in tuple(config._subscribers.values()):
            callback = subscriber()
            try:
                if callback is not None:
                    callback(frozenset(names))
            except Exception as error:
                errors.append(error)
    if errors:
        raise errors[0]


def on_change(config: Config, callback: OnChange) -> Callable[[], None]:
    """Calls `callback` with the names of the keys after each change of `config`; returns what ends
    that. A method is called for as long as its object lives."""
    subscription = object()
    # Each role of a broker subscribes anew.
    for known, subscriber in tuple(config._subscribers.items()):
        if subscriber() is None:
            del config._subscribers[known]
    config._subscribers[subscription] = _not_kept_alive(callback)

    def unsubscribe() -> None:
        config._subscribers.pop(subscription, None)

    return unsubscribe


def _not_kept_alive(callback: OnChange) -> Callable[[], OnChange | None]:
    """Returns what gives `callback`; None where it is a method of an object that is gone.

    What a struct has beside its fields is not seen by CPython's garbage collector: an object that
    holds the configuration would never be freed.
    """
    if isinstance(callback, MethodType):
        try:
            return WeakMethod(callback)
        except TypeError:
            # PyPy's methods of built-in objects, which CPython gives another type.
            if not IS_PYPY:
                raise
    return lambda: callback


def _plan(configs: Sequence[Config], name: str, text: str, is_blocked: bool) -> list[Change]:
    holders = [(config, key) for config in configs if (key := keys_of(type(config)).get(name))]
    if is_blocked or any(key.is_secret for _, key in holders):
        raise NotChangeable(f"{name} cannot be changed over the wire")
    if not holders:
        _check_without_effect([type(config) for config in configs], name, text)
        return []
    try:
        changes = [Change(config, key, key.parse(text)) for config, key in holders]
    except ValueError as error:
        if not holders[0][1].is_live:
            raise _needs_restart(name) from error
        raise ConfigError(f"{name}={_quoted(text)}: {error}") from error
    if any(each.is_new and not each.key.is_live for each in changes):
        raise _needs_restart(name)
    return [each for each in changes if each.key.is_live]


def _quoted(text: str) -> str:
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}…"


def _needs_restart(name: str) -> NotChangeable:
    return NotChangeable(
        f"{name} cannot be changed while the server runs: change its file and restart it"
    )


def _check_without_effect(types: Sequence[type[Config]], name: str, text: str) -> None:
    """Raises `NotChangeable` unless `name` is a key of stock's without an effect here, and `text`
    its default."""
    default = stock_default([config_type.__name__ for config_type in types], name)
    if default is not None:
        parse, value = default
        try:
            if parse(text) == value:
                return
        except ValueError:
            pass
        raise NotChangeable(
            f"{name} has no effect here: it is taken as {format_value(value)} and cannot be changed"
        )
    if name in all_stock_names():
        raise NotChangeable(f"{name} has no effect here and cannot be changed")
    if not name:
        raise NotChangeable("a value has no key in front of it: give key=value")
    similar = nearest(name, all_stock_names().union(*map(keys_of, types)))
    hint = f": did you mean {similar}?" if similar else ""
    raise NotChangeable(f"{_quoted(name)} is no known key{hint}")
