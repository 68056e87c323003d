"""Knows which keys there are, and what their values may be.

The typed classes have the keys with an effect here; `stock_keys.json` has every key of stock
4.9.7 and 5.3.3, so that a file written for stock is taken as it is.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Sequence
from functools import cache
from importlib import resources
from typing import Annotated, Any, get_args, get_origin

import attrs

from rocketmq_tw.config.base import Config, Format, Mark, Range
from rocketmq_tw.config.values import INT, LONG, Parse, any_text, integer, parse_bool
from rocketmq_tw.structs import msgspec

#: Keys that stock takes from system properties, that only start scripts know, or that only early
#: versions of controller mode had.
_OTHER_KEYS = frozenset(
    {
        "tls.enable",
        "tls.config.file",
        "rocketmqHome",
        "aclEnable",
        "controllerDeployedStandAlone",
    }
)

#: Switches of stock that promise what is not there: to go on without it would leave a broker open
#: to everyone.
UNSUPPORTED_SWITCHES = {
    "aclEnable": "access control",
    "authenticationEnabled": "access control",
    "authorizationEnabled": "access control",
}


@attrs.frozen
class Key:
    """A key with an effect: the attribute that holds it, how its text is read, whether it may
    change while the server runs and for whom, and whether its value may be told over the wire."""

    name: str
    attribute: str
    type: type
    parse: Parse
    marks: frozenset[Mark] = frozenset()

    @property
    def is_live(self) -> bool:
        return Mark.LIVE in self.marks

    @property
    def is_for_administrators(self) -> bool:
        return Mark.ADMIN in self.marks

    @property
    def is_secret(self) -> bool:
        return Mark.SECRET in self.marks

    @property
    def is_local_path(self) -> bool:
        return Mark.LOCAL_PATH in self.marks


@cache
def keys_of(config_type: type[Config]) -> dict[str, Key]:
    """Returns the keys of a typed class by their names in files."""
    return {
        field.encode_name: _key(field.encode_name, field.name, field.type)
        for field in msgspec.structs.fields(config_type)
    }


@cache
def stock_keys() -> dict[str, dict[str, dict[str, Any]]]:
    """Stock's class, then its keys: `type`, `default` and the versions that have it (`in`)."""
    text = resources.files("rocketmq_tw.config").joinpath("stock_keys.json").read_text()
    keys: dict[str, dict[str, dict[str, Any]]] = json.loads(text)
    return keys


@cache
def all_stock_names() -> frozenset[str]:
    """Returns every key of stock, whichever class has it."""
    return _OTHER_KEYS.union(*stock_keys().values())


def nearest(name: str, known: frozenset[str]) -> str | None:
    """Returns the known key that an unknown one was probably meant to be."""
    by_lower = {key.lower(): key for key in sorted(known)}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def stock_default(class_names: Collection[str], name: str) -> tuple[Parse, Any] | None:
    """Returns how a key of stock is read and the value that it has where no file names it; None
    where the classes have no such key or its default depends on the host."""
    for class_name in class_names:
        key = stock_keys().get(class_name, {}).get(name)
        if key is not None and key["default"] not in (None, "(host)"):
            parse = _STOCK_TYPES.get(key["type"], str.strip)
            return parse, parse(key["default"])
    return None


@cache
def without_effect(config_types: frozenset[type[Config]], version: str) -> dict[str, str]:
    """Returns stock's defaults for the keys of a version that its classes of these names have and
    these classes do not, without those that depend on the host."""
    known = frozenset[str]().union(*map(keys_of, config_types))
    return {
        name: key["default"]
        for config_type in config_types
        for name, key in stock_keys().get(config_type.__name__, {}).items()
        if version in key["in"] and name not in known and key["default"] not in (None, "(host)")
    }


_STOCK_TYPES: dict[str, Parse] = {
    "boolean": parse_bool,
    "int": integer(*INT),
    "long": integer(*LONG),
}


def _key(name: str, attribute: str, annotation: Any) -> Key:
    base, *rules = get_args(annotation) if get_origin(annotation) is Annotated else [annotation]
    marks = frozenset(rule for rule in rules if isinstance(rule, Mark))
    return Key(name, attribute, base, _parse_of(base, rules), marks)


def _parse_of(value_type: type, rules: Sequence[Any]) -> Parse:
    if value_type is bool:
        return parse_bool
    if value_type is int:
        (limits,) = (rule for rule in rules if isinstance(rule, Range))
        return integer(limits.lowest, limits.highest)
    return next((rule.parse for rule in rules if isinstance(rule, Format)), any_text)
