"""Attributes of topics and groups, changed by `+key: value` and `-key` as stock's clients ask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rocketmq_tw.broker.writing.queue_kinds import UNSUPPORTED
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError


class Attribute(NamedTuple):
    """One attribute that may be set; `changeable` says whether after creation too. The value
    `unsupported` is stock's, and refused."""

    values: frozenset[str]
    changeable: bool
    unsupported: str = ""


def _fixed(value: str, unsupported: str) -> Attribute:
    return Attribute(frozenset({value}), changeable=False, unsupported=unsupported)


TOPIC_ATTRIBUTES: Mapping[str, Attribute] = {
    "queue.type": _fixed("SimpleCQ", UNSUPPORTED["queue.type"]),
    "cleanup.policy": _fixed("DELETE", UNSUPPORTED["cleanup.policy"]),
    "message.type": Attribute(
        frozenset({"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"}),
        changeable=True,
    ),
}
GROUP_ATTRIBUTES: Mapping[str, Attribute] = {}


def parse_attributes(text: str | None) -> dict[str, str]:
    """Returns `+key=value,-key` as a mapping whose keys keep their signs; raises `RequestError`."""
    attributes = {}
    for part in (text or "").split(","):
        key, equals, value = part.strip().partition("=")
        if not key:
            continue
        if key[0] not in "+-" or (key[0] == "+" and not equals):
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"the attribute {part!r}: write +name=value to set it or -name to remove it",
            )
        if key in attributes:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER, f"the attribute {key!r} is given twice"
            )
        attributes[key] = value
    return attributes


def alter_attributes(
    known: Mapping[str, Attribute],
    current: Mapping[str, str] | None,
    changes: Mapping[str, str],
) -> dict[str, str]:
    """Returns `current` with `changes` made; `current` is None for what is being created.

    Raises `RequestError` that names the key which cannot be changed so.
    """
    result = dict(current or {})
    seen = set()
    for signed, value in changes.items():
        sign, key = signed[:1], signed[1:]
        if sign not in ("+", "-") or not key or "+" in key or "-" in key:
            raise _refusal(signed, "write it as +name to set it or -name to remove it")
        if key in seen:
            raise _refusal(key, "it is changed twice: give it once")
        seen.add(key)
        attribute = known.get(key)
        if attribute is None:
            raise _refusal(key, f"it is none of {', '.join(sorted(known)) or 'none'}")
        if current is not None and not attribute.changeable:
            raise _refusal(key, "it can only be set when the topic is created")
        if sign == "-":
            if key not in result:
                raise _refusal(key, "it is not set, so it cannot be removed")
            del result[key]
        elif value == attribute.unsupported:
            raise _refusal(key, f"this broker has no queues for {value}: leave it out")
        elif value not in attribute.values:
            raise _refusal(key, f"{value!r} is none of {', '.join(sorted(attribute.values))}")
        else:
            result[key] = value
    return result


def _refusal(key: str, why: str) -> RequestError:
    return RequestError(ResponseCode.SYSTEM_ERROR, f"the attribute {key!r}: {why}")
