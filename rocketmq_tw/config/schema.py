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

from rocketmq_tw.config.base import Config
from rocketmq_tw.config.values import (
    INT,
    LONG,
    Parse,
    addresses,
    any_text,
    choice,
    integer,
    parse_bool,
)

#: Stock's slave reads frames through a buffer of 4 MiB, with 12 bytes of header.
MAX_HA_BATCH = 4 * 1024 * 1024 - 12

#: What stock's types alone do not say.
_SPECIAL: dict[str, Parse] = {
    "listenPort": integer(0, 65535),
    "haListenPort": integer(0, 65535),
    "metricsPromExporterPort": integer(0, 65535),
    "namesrvAddr": addresses,
    "controllerAddr": addresses,
    "haMasterAddress": addresses,
    "brokerId": integer(0, LONG[1]),
    "brokerPermission": integer(0, 7),
    "defaultTopicQueueNums": integer(1, 65536),
    "brokerRole": choice("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
    "flushDiskType": choice("ASYNC_FLUSH", "SYNC_FLUSH"),
    "mappedFileSizeCommitLog": integer(4096, INT[1]),
    "mappedFileSizeConsumeQueue": integer(20, INT[1]),
    "maxMessageSize": integer(1, INT[1]),
    "haTransferBatchSize": integer(1, MAX_HA_BATCH),
    "haSendHeartbeatInterval": integer(1, INT[1]),
    "haHousekeepingInterval": integer(1, INT[1]),
    "maxHaTransferByteInSecond": integer(1, LONG[1]),
    "inSyncReplicas": integer(1, INT[1]),
    "minInSyncReplicas": integer(1, INT[1]),
    "scanNotActiveBrokerInterval": integer(10, INT[1]),
    "waitSecondsForService": integer(0, INT[1]),
    "diskMaxUsedSpaceRatio": integer(10, 95),
    "registerNameServerPeriod": integer(1000, INT[1]),
    "tls.server.mode": choice("disabled", "permissive", "enforcing"),
    "tls.server.need.client.auth": choice("none", "optional", "require"),
    "frameMaxLength": integer(1024, INT[1]),
    "maxConnections": integer(1, INT[1]),
}

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
        parse = _SPECIAL.get(field.encode_name) or _parse_of(field.encode_name, field.type)
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
        return integer(*(LONG if stock_type == "long" else INT))
    return any_text
