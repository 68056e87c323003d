"""Every type of message in the proxy's .proto files, filled, written and read again.

`python -m tests.support.proto_round_trips` prints the versions it has and what each was written as.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Any

import google.protobuf
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.internal import api_implementation
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tools.proto import FOLDER

_TEXTS = {FieldDescriptor.TYPE_STRING: "text é", FieldDescriptor.TYPE_BYTES: b"\x00\xff"}
_MOST = {
    FieldDescriptor.TYPE_BOOL: True,
    FieldDescriptor.TYPE_FLOAT: 0.5,
    FieldDescriptor.TYPE_DOUBLE: 0.5,
    FieldDescriptor.TYPE_INT32: (1 << 31) - 1,
    FieldDescriptor.TYPE_INT64: (1 << 63) - 1,
    FieldDescriptor.TYPE_UINT32: (1 << 32) - 1,
    FieldDescriptor.TYPE_UINT64: (1 << 64) - 1,
}


def round_trips() -> dict[str, list[str]]:
    """Returns what messages of each type are written as, in hex: one with all fields, and one with
    each field that excludes others. Raises `ValueError` for what is read as something else."""
    written: dict[str, list[str]] = {}
    for path in sorted(FOLDER.glob("*_pb2.py")):
        module = import_module(f"rocketmq_tw.proxy.proto.{path.stem}")
        for kind in module.DESCRIPTOR.message_types_by_name.values():
            for each in _with_nested(kind):
                written[each.full_name] = [_round_trip(message) for message in _filled(each)]
    return written


def _with_nested(kind: Descriptor) -> Iterator[Descriptor]:
    if not kind.GetOptions().map_entry:
        yield kind
        for nested in kind.nested_types:
            yield from _with_nested(nested)


def _round_trip(message: Message) -> str:
    data = message.SerializeToString(deterministic=True)
    read = type(message).FromString(data)
    if read != message or read.SerializeToString(deterministic=True) != data or not data:
        raise ValueError(f"{message.DESCRIPTOR.full_name} is read as something else")
    return data.hex()


def _filled(kind: Descriptor) -> Iterator[Message]:
    make = GetMessageClass(kind)
    if not kind.fields:
        return
    message = make()
    for field in kind.fields:
        _fill(message, field)
    yield message
    for group in kind.oneofs:
        for field in group.fields:
            message = make()
            _fill(message, field)
            yield message


def _fill(message: Message, field: Any) -> None:
    value = getattr(message, field.name)
    if isinstance(value, MutableMapping):
        value["key"] = "value"
    elif hasattr(value, "add"):
        for _ in range(2):
            _fill_all(value.add())
    elif hasattr(value, "append"):
        value.append(_scalar(field))
    elif field.message_type is not None:
        value.SetInParent()
        _fill_all(value)
    else:
        setattr(message, field.name, _scalar(field))


def _fill_all(message: Message) -> None:
    for field in message.DESCRIPTOR.fields:
        _fill(message, field)


def _scalar(field: FieldDescriptor) -> Any:
    if field.enum_type is not None:
        return max(value.number for value in field.enum_type.values)
    return _TEXTS.get(field.type) or _MOST[field.type]


if __name__ == "__main__":
    found = [google.protobuf.__version__, api_implementation.Type(), round_trips()]
    json.dump(found, sys.stdout)
