"""Which keys there are, and what their values may be.

The typed classes have the keys with an effect here; `stock_keys.json` has every key of stock
4.9.7 and 5.3.3, so that a file written for stock is taken as it is.
"""

from __future__ import annotations

import difflib
import json
import re
from functools import cache
from importlib import resources
from typing import Any

import attrs
import msgspec

from rocketmq_tw.config.accepted import number_parser, text_parser
from rocketmq_tw.config.base import Config
from rocketmq_tw.config.values import Parse, any_text, parse_bool

#: Keys that stock takes from system properties, or that only start scripts know.
_OTHER_KEYS = frozenset({"tls.enable", "tls.config.file", "rocketmqHome", "aclEnable"})

_HIDDEN = re.compile(r"path|home|password|secret|token|credential|accesskey|header", re.I)


@attrs.frozen
class Key:
    """A key with an effect: the attribute that holds it, and how its text is read."""

    name: str
    attribute: str
    type: type
    parse: Parse


@cache
def keys_of(config_type: type[Config]) -> dict[str, Key]:
    """The keys of a typed class by their names in files."""
    keys = {}
    for field in msgspec.structs.fields(config_type):
        parse = _parse_of(field.encode_name, field.type)
        keys[field.encode_name] = Key(field.encode_name, field.name, field.type, parse)
    return keys


@cache
def stock_keys() -> dict[str, dict[str, dict[str, Any]]]:
    """Stock's class, then its keys: `type`, `default` and the versions that have it (`in`)."""
    text = resources.files("rocketmq_tw.config").joinpath("stock_keys.json").read_text()
    keys: dict[str, dict[str, dict[str, Any]]] = json.loads(text)
    return keys


@cache
def all_stock_names() -> frozenset[str]:
    """Every key of stock, whichever class has it."""
    return _OTHER_KEYS.union(*stock_keys().values())


def nearest(name: str, known: frozenset[str]) -> str | None:
    """The known key that an unknown one was probably meant to be."""
    by_lower = {key.lower(): key for key in sorted(known)}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def may_be_told(name: str) -> bool:
    """Whether a key's value may leave over the wire: no secrets, nothing of the host's files."""
    return not _HIDDEN.search(name)


def _parse_of(name: str, value_type: Any) -> Parse:
    if value_type is bool:
        return parse_bool
    if value_type is int:
        stock_type = next(
            (keys[name]["type"] for keys in stock_keys().values() if name in keys), "long"
        )
        return number_parser(name, is_int=stock_type != "long")
    return text_parser(name) or any_text
