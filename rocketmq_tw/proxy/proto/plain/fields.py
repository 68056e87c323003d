"""Fields of messages, and the parts of the written out functions that are about one of them.

Sources use short names: `m` is the message, `v` a value of a field, `c` a part, `at` the place in
the bytes that are read, up to `end`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from rocketmq_tw.proxy.proto.plain import checks, wire

_HALF32, _HALF64 = 1 << 31, 1 << 63

#: A source.
Lines = list[str]


class Scalar(NamedTuple):
    """How values of a type are held, checked and written; `{v}` stands for the value."""

    wire_type: int
    default: str
    #: Whether a value is taken as it is.
    test: str
    check: str
    #: Whether it differs from the default.
    is_set: str
    #: Reads into `v`, from `at` on.
    read: Lines
    size: str
    write: str


_NUMBER = ["v = data[at]", "at += 1", "if v > 127: v, at = read_number(data, at - 1)"]
#: Reads how long a value is, which ends at `after`.
READ_LENGTH = [
    "length = data[at]",
    "at += 1",
    "if length > 127: length, at = read_length(data, at - 1)",
    "after = at + length",
    "if after > end: raise DecodeError(TRUNCATED)",
]
_INT32 = Scalar(
    wire.VARINT,
    "0",
    f"type({{v}}) is int and -{_HALF32} <= {{v}} < {_HALF32}",
    "checked_int32",
    "{v}",
    [*_NUMBER, f"if v >= {_HALF32}: v = (v + {_HALF32} & 0xFFFFFFFF) - {_HALF32}"],
    "number_size({v})",
    "put_number(put, {v})",
)
#: By the type of a field.
SCALARS = {
    FieldDescriptor.TYPE_STRING: Scalar(
        wire.BYTES,
        "''",
        "type({v}) is str and {v}.isascii()",
        "checked_text",
        "{v}",
        [*READ_LENGTH, "v = data[at:after].decode()", "at = after"],
        "sized(text_size({v}))",
        "v = {v}.encode(); put_number(put, len(v)); put(v)",
    ),
    FieldDescriptor.TYPE_BYTES: Scalar(
        wire.BYTES,
        "b''",
        "type({v}) is bytes",
        "checked_bytes",
        "{v}",
        [*READ_LENGTH, "v = data[at:after]", "at = after"],
        "sized(len({v}))",
        "put_number(put, len({v})); put({v})",
    ),
    FieldDescriptor.TYPE_INT32: _INT32,
    FieldDescriptor.TYPE_ENUM: _INT32,
    FieldDescriptor.TYPE_INT64: _INT32._replace(
        test=f"type({{v}}) is int and -{_HALF64} <= {{v}} < {_HALF64}",
        check="checked_int64",
        read=[*_NUMBER, f"if v >= {_HALF64}: v -= {1 << 64}"],
    ),
    FieldDescriptor.TYPE_BOOL: _INT32._replace(
        default="False",
        test="type({v}) is bool",
        check="checked_bool",
        read=[*_NUMBER, "v = v != 0"],
        size="1",
        write="put(b'\\x01' if {v} else b'\\x00')",
    ),
    FieldDescriptor.TYPE_FLOAT: Scalar(
        wire.FIXED32,
        "0.0",
        "False",
        "checked_float",
        "is_float_set({v})",
        [
            "if at + 4 > end: raise DecodeError(TRUNCATED)",
            "v = unpack_float(data, at)[0]",
            "at += 4",
        ],
        "4",
        "put(pack_float({v}))",
    ),
}


def is_float_set(value: float) -> bool:
    """Returns whether a number is not 0.0; -0.0 is another one."""
    return checks.FLOAT.pack(value) != b"\0\0\0\0"


def sized(size: int) -> int:
    """Returns the bytes of what has so many, with their number."""
    return wire.number_size(size) + size


def is_repeated(field: Any) -> bool:
    """Returns whether a field may have several values."""
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    # As in protobuf 4; later versions warn of labels.
    return bool(field.label == FieldDescriptor.LABEL_REPEATED)


class MessageField:
    """A field, and the parts of sources that are about it."""

    def __init__(self, field: FieldDescriptor) -> None:
        self.name = field.name
        self.slot = f"_{field.name}"
        self.number = field.number
        self.full_name = field.full_name
        kind: Any = field.message_type
        self.is_repeated = is_repeated(field)
        self.is_map = kind is not None and kind.GetOptions().map_entry
        self.part = None if kind is None or self.is_map else class_name(kind)
        self.has_presence = field.has_presence
        group = field.containing_oneof
        # A field that may be missing is alone in a group of its name.
        self.oneof = None if group is None or group.name == self.slot else group.name
        self.scalar: Any = None if kind is not None else SCALARS[field.type]
        if self.is_map:
            types = {each.type for each in kind.fields}
            assert types == {FieldDescriptor.TYPE_STRING}, self.full_name
        wire_type = wire.BYTES if self.scalar is None else self.scalar.wire_type
        self.is_packed = self.is_repeated and wire_type != wire.BYTES
        packed_or_not = wire.BYTES if self.is_packed else wire_type
        self.tag = field.number << 3 | packed_or_not
        self.head = f"put({wire.number_bytes(self.tag)!r})"
        self.head_size = wire.number_size(self.tag)

    @property
    def default(self) -> str:
        is_plain = self.scalar and not self.is_repeated and not self.has_presence
        return self.scalar.default if is_plain else "None"

    @property
    def container(self) -> str:
        """What makes the values of a field that has several."""
        if self.is_map:
            return f"TextMap(m, {self.full_name!r})"
        if self.part:
            return f"RepeatedMessages(m, {self.part})"
        return f"RepeatedValues(m, take_{self.scalar.check})"

    def is_set(self, slot: str) -> str:
        """Returns the condition under which the message has the field."""
        if self.is_repeated:
            return f"{slot} is not None and {slot}.items_"
        if self.part:
            return f"{slot} is not None and {slot}.owner_ is None"
        if self.has_presence:
            return f"{slot} is not None"
        return self.scalar.is_set.format(v=slot)

    def size(self, value: str) -> str:
        """Returns what counts the bytes of one value without its tag; a part notes its own."""
        return f"sized({value}.measure_())" if self.part else self.scalar.size.format(v=value)

    def write(self, value: str) -> str:
        """Returns what writes one value, without the tag."""
        if self.part:
            return f"put_number(put, {value}.size_); {value}.write_(put, is_sorted)"
        return self.scalar.write.format(v=value)


def class_name(kind: Descriptor) -> str:
    """Returns the name of a class in the sources."""
    return kind.full_name.rsplit(".", 1)[-1]
