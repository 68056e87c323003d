"""Makes the classes of messages from their descriptors.

What touches every field is written out for each class: a loop over fields would be several times
slower. Sources that are written out use short names: `m` is the message, `v` a value of a field,
`c` a part, `at` the place in the bytes that are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from rocketmq_tw.proxy.proto.plain import checks, containers, wire
from rocketmq_tw.proxy.proto.plain.entries import read_entry
from rocketmq_tw.proxy.proto.plain.message import PlainMessage

_HALF32, _HALF64 = 1 << 31, 1 << 63

Lines = list[str]


class _Scalar(NamedTuple):
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
_LENGTH = [
    "length = data[at]",
    "at += 1",
    "if length > 127: length, at = read_length(data, at - 1)",
    "after = at + length",
    "if after > end: raise DecodeError(TRUNCATED)",
]
_INT32 = _Scalar(
    wire.VARINT,
    "0",
    f"type({{v}}) is int and -{_HALF32} <= {{v}} < {_HALF32}",
    "checked_int32",
    "{v}",
    [*_NUMBER, f"if v >= {_HALF32}: v = (v + {_HALF32} & 0xFFFFFFFF) - {_HALF32}"],
    "number_size({v})",
    "put_number(put, {v})",
)
_SCALARS = {
    FieldDescriptor.TYPE_STRING: _Scalar(
        wire.BYTES,
        "''",
        "type({v}) is str and {v}.isascii()",
        "checked_text",
        "{v}",
        [*_LENGTH, "v = data[at:after].decode()", "at = after"],
        "sized(text_size({v}))",
        "v = {v}.encode(); put_number(put, len(v)); put(v)",
    ),
    FieldDescriptor.TYPE_BYTES: _Scalar(
        wire.BYTES,
        "b''",
        "type({v}) is bytes",
        "checked_bytes",
        "{v}",
        [*_LENGTH, "v = data[at:after]", "at = after"],
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
    FieldDescriptor.TYPE_FLOAT: _Scalar(
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


def _is_float_set(value: float) -> bool:
    """Returns whether a number is not 0.0; -0.0 is another one."""
    return checks.FLOAT.pack(value) != b"\0\0\0\0"


def _sized(size: int) -> int:
    """Returns the bytes of what has so many, with their number."""
    return wire.number_size(size) + size


def is_repeated(field: Any) -> bool:
    """Returns whether a field may have several values."""
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    # As in protobuf 4; later versions warn of labels.
    return bool(field.label == FieldDescriptor.LABEL_REPEATED)


class _Field:
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
        self.scalar: Any = None if kind is not None else _SCALARS[field.type]
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


class Classes:
    """Makes classes that know each other. They are in a module of their own, whose names are
    constants to PyPy's compiler, as those of a plain dict are not."""

    def __init__(self) -> None:
        module = ModuleType("rocketmq_tw.proxy.proto.plain.written")
        self._known = module.__dict__
        self._known.update(
            new=object.__new__,
            DecodeError=DecodeError,
            TRUNCATED=wire.TRUNCATED,
            pack_float=checks.FLOAT.pack,
            unpack_float=checks.FLOAT.unpack_from,
            is_float_set=_is_float_set,
            sized=_sized,
            read_entry=read_entry,
            **{
                each.__name__: each
                for each in (
                    wire.put_number,
                    wire.number_size,
                    wire.read_length,
                    wire.read_number,
                    wire.read_tag,
                    wire.skip,
                    wire.text_size,
                    containers.RepeatedMessages,
                    containers.RepeatedValues,
                    containers.TextMap,
                    checks.checked_text,
                    checks.checked_bytes,
                    checks.checked_int32,
                    checks.checked_int64,
                    checks.checked_bool,
                    checks.checked_float,
                )
            },
        )
        for scalar in _SCALARS.values():
            self._known[f"take_{scalar.check}"] = _taker(self._known[scalar.check])

    def made(self, kind: Descriptor) -> Any:
        """Returns the class of a kind of message; those of its parts are to be made before any
        message of it is."""
        fields = sorted(map(_Field, kind.fields), key=lambda field: field.number)
        name = class_name(kind)
        own: dict[str, Any] = {}
        for source in (
            _blank(fields),
            _constructor(fields),
            _read(fields),
            _measure(fields),
            _write(fields),
            _merge(fields),
            _equal(fields),
            *_settlings(fields),
        ):
            own |= self._compiled(source, name)
        asked = {
            field.name: self._function(
                [f"def has(m): return {field.is_set(f'm.{field.slot}')}"], name
            )
            for field in fields
            if field.has_presence
        }
        oneofs = {each: self._function(_which(fields, each), name) for each in _oneofs(fields)}
        properties = {
            field.name: property(*(self._function(each, name) for each in _property(field)))
            for field in fields
        }
        numbers = {f"{field.name.upper()}_FIELD_NUMBER": field.number for field in fields}
        made = type(
            name,
            (PlainMessage,),
            {
                "__slots__": tuple(field.slot for field in fields),
                "__module__": __name__,
                "__doc__": f"Stands for the message {kind.full_name}.",
                "DESCRIPTOR": kind,
                "asked_": asked,
                "oneofs_": oneofs,
                "original_": GetMessageClass(kind),
                **numbers,
                **own,
                **properties,
            },
        )
        # A second one of the name would stand in for the first.
        assert name not in self._known
        self._known[name] = made
        return made

    def _compiled(self, source: Lines, name: str) -> dict[str, Any]:
        """Returns the one function of a source by its name; a traceback names the class."""
        own: dict[str, Any] = {}
        exec(compile("\n".join(source), f"<{name}>", "exec"), self._known, own)
        return own

    def _function(self, source: Lines, name: str) -> Any:
        ((_, function),) = self._compiled(source, name).items()
        return function


def _taker(check: Any) -> Any:
    return lambda value: check(value, "a repeated field")


def _oneofs(fields: list[_Field]) -> list[str]:
    return list(dict.fromkeys(field.oneof for field in fields if field.oneof))


def _indented(lines: Lines, spaces: int) -> Lines:
    return [" " * spaces + line for line in lines]


# Each function of a class -------------------------------------------------------------------------


def _blank(fields: list[_Field]) -> Lines:
    lines = ["def blank_(m):", " m.owner_ = None", " m.unknown_ = None", " m.size_ = 0"]
    return lines + [f" m.{field.slot} = {field.default}" for field in fields]


def _constructor(fields: list[_Field]) -> Lines:
    names = "".join(f", {field.name}=None" for field in fields)
    lines = [f"def __init__(m{', *' if names else ''}{names}):", " m.blank_()"]
    for field in fields:
        lines.append(f" if {field.name} is not None:")
        if field.is_map:
            lines.append(f"  m.{field.name}.update({field.name})")
        elif field.is_repeated:
            lines.append(f"  m.{field.name}.extend({field.name})")
        elif field.part:
            lines.append(f"  m.{field.slot} = {field.part}.copied_({field.name})")
            if field.oneof:
                lines.append(f"  m.settle_{field.oneof}({field.name!r})")
        else:
            lines.append(f"  m.{field.name} = {field.name}")
    return lines


def _property(field: _Field) -> Iterator[Lines]:
    """Yields the getter, and the setter where there is one."""
    slot = f"m.{field.slot}"
    lines = ["def get(m):", f" v = {slot}"]
    if field.is_repeated:
        yield [*lines, f" if v is None: v = {slot} = {field.container}", " return v"]
        return
    if field.part:
        yield [
            *lines,
            " if v is None:",
            f"  v = {slot} = new({field.part})",
            "  v.blank_()",
            "  v.owner_ = m",
            " return v",
        ]
        return
    scalar = field.scalar
    if not field.has_presence:
        yield ["def get(m):", f" return {slot}"]
    else:
        yield [*lines, f" return {scalar.default} if v is None else v"]
    lines = [
        "def put(m, v):",
        f" if not ({scalar.test.format(v='v')}): v = {scalar.check}(v, {field.full_name!r})",
        " if m.owner_ is not None: m.enter_()",
        f" {slot} = v",
    ]
    if field.oneof:
        lines.append(f" m.settle_{field.oneof}({field.name!r})")
    yield lines


def _settlings(fields: list[_Field]) -> Iterator[Lines]:
    """Yields what leaves one field of a group only, and what does so for a part that entered."""
    oneofs = _oneofs(fields)
    for oneof in oneofs:
        lines = [f"def settle_{oneof}(m, chosen):"]
        for field in fields:
            if field.oneof == oneof:
                lines += [
                    f" if chosen != {field.name!r} and {field.is_set(f'm.{field.slot}')}:",
                    f"  m.{field.slot} = None",
                ]
        yield lines
    if oneofs:
        lines = ["def entered_(m, part):", " if m.owner_ is not None: m.enter_()"]
        for field in fields:
            if field.oneof and field.part:
                lines += [
                    f" if part is m.{field.slot}: m.settle_{field.oneof}({field.name!r})",
                ]
        yield lines


def _which(fields: list[_Field], oneof: str) -> Lines:
    lines = ["def which(m):"]
    for field in fields:
        if field.oneof == oneof:
            lines.append(f" if {field.is_set(f'm.{field.slot}')}: return {field.name!r}")
    return [*lines, " return None"]


_NEXT_TAG = [
    "if at >= end: tag = -1",
    "else:",
    " start = at",
    " tag = data[at]",
    " at += 1",
    " if tag > 127: tag, at = read_tag(data, start)",
]


def _read(fields: list[_Field]) -> Lines:
    """Fields mostly come in the order of their numbers, so that one way through all of them takes
    every one; what comes otherwise goes round once more."""
    body: Lines = []
    tags = []
    for field in fields:
        for tag, lines in _field_read(field):
            tags.append(tag)
            body += [f"if tag == {tag}:", *_indented(lines, 1)]
    body += [
        "if tag < 0:",
        " break",
        f"if tag not in {set(tags) or '()'}:",
        " at = skip(data, at, end, tag, depth)",
        " m.add_unknown_(data[start:at])",
        *_indented(_NEXT_TAG, 1),
    ]
    return [
        "def read_(m, data, at, end, depth):",
        *_indented(_NEXT_TAG, 1),
        " while True:",
        *_indented(body, 2),
        " if at > end: raise DecodeError(TRUNCATED)",
    ]


def _field_read(field: _Field) -> Iterator[tuple[int, Lines]]:
    """Yields the tags by which a field comes, and what is done then: all of them read the next tag
    as well."""
    slot = f"m.{field.slot}"
    if field.is_repeated:
        begin = [
            f"v = {slot}",
            f"if v is None: v = {slot} = {field.container}",
            "items = v.items_",
        ]
        if field.is_map:
            one = [
                *_LENGTH,
                f"read_entry(m, {field.tag}, items, data, at, after, depth - 1)",
                "at = after",
            ]
        elif field.part:
            one = [
                *_LENGTH,
                f"c = new({field.part})",
                "c.blank_()",
                "items.append(c)",
                "c.read_(data, at, after, depth - 1)",
                "at = after",
            ]
        else:
            one = [*field.scalar.read, "items.append(v)"]
        if field.is_packed:
            packed = [
                *begin,
                *_LENGTH,
                "while at < after:",
                *_indented(one, 1),
                "if at > after: raise DecodeError(TRUNCATED)",
                *_NEXT_TAG,
            ]
            yield field.tag, packed
            yield field.number << 3 | field.scalar.wire_type, [*begin, *one, *_NEXT_TAG]
            return
        yield (
            field.tag,
            [
                *begin,
                "while True:",
                *_indented(one, 1),
                *_indented(_NEXT_TAG, 1),
                f" if tag != {field.tag}: break",
            ],
        )
        return
    if field.part:
        lines = [
            f"c = {slot}",
            "if c is None:",
            f" c = {slot} = new({field.part})",
            " c.blank_()",
            "elif c.owner_ is not None: c.owner_ = None",
            *_LENGTH,
            "c.read_(data, at, after, depth - 1)",
            "at = after",
        ]
    else:
        lines = [*field.scalar.read, f"{slot} = v"]
    if field.oneof:
        lines.append(f"m.settle_{field.oneof}({field.name!r})")
    yield field.tag, [*lines, *_NEXT_TAG]


def _for_each(line: str) -> Lines:
    """Returns what does with each value of a repeated field what `line` does with `each`. For one,
    as there mostly is, without a loop: PyPy enters none without some memory."""
    return [
        "  items = v.items_",
        "  if len(items) == 1:",
        "   each = items[0]",
        f"   {line}",
        "  else:",
        "   for each in items:",
        f"    {line}",
    ]


def _measure(fields: list[_Field]) -> Lines:
    lines = ["def measure_(m):", " size = 0 if m.unknown_ is None else len(m.unknown_)"]
    for field in fields:
        lines += [f" v = m.{field.slot}", f" if {field.is_set('v')}:"]
        head = field.head_size
        if field.is_map:
            lines += [
                "  for key, v in v.items_.items():",
                f"   size += {head} + sized(2 + sized(text_size(key)) + sized(text_size(v)))",
            ]
        elif field.is_packed:
            one = field.size("each")
            lines.append(f"  size += {head} + sized(sum([{one} for each in v.items_]))")
        elif field.is_repeated:
            lines += _for_each(f"size += {head} + {field.size('each')}")
        else:
            lines.append(f"  size += {head} + {field.size('v')}")
    return [*lines, " m.size_ = size", " return size"]


def _write(fields: list[_Field]) -> Lines:
    lines = ["def write_(m, put, is_sorted):"]
    for field in fields:
        lines += [f" v = m.{field.slot}", f" if {field.is_set('v')}:"]
        if field.is_map:
            lines += [
                "  items = v.items_",
                "  for key in sorted(items) if is_sorted else items:",
                "   v = items[key].encode(); key = key.encode()",
                f"   {field.head}",
                "   put_number(put, 2 + sized(len(key)) + sized(len(v)))",
                "   put(b'\\x0a'); put_number(put, len(key)); put(key)",
                "   put(b'\\x12'); put_number(put, len(v)); put(v)",
            ]
        elif field.is_packed:
            one = field.size("each")
            lines += [
                f"  {field.head}; put_number(put, sum([{one} for each in v.items_]))",
                f"  for each in v.items_: {field.write('each')}",
            ]
        elif field.is_repeated:
            lines += _for_each(f"{field.head}; {field.write('each')}")
        else:
            lines.append(f"  {field.head}; {field.write('v')}")
    return [*lines, " if m.unknown_ is not None: put(bytes(m.unknown_))"]


def _merge(fields: list[_Field]) -> Lines:
    lines = ["def merge_(m, other):"]
    for field in fields:
        lines += [f" v = other.{field.slot}", f" if {field.is_set('v')}:"]
        slot = f"m.{field.slot}"
        if field.is_map:
            lines.append(f"  m.{field.name}.items_.update(v.items_)")
        elif field.part and field.is_repeated:
            lines.append(f"  m.{field.name}.extend(v.items_)")
        elif field.is_repeated:
            lines.append(f"  m.{field.name}.items_.extend(v.items_)")
        elif field.part:
            lines += [
                f"  c = {slot}",
                "  if c is None:",
                f"   c = {slot} = new({field.part})",
                "   c.blank_()",
                "  elif c.owner_ is not None: c.owner_ = None",
                "  c.merge_(v)",
            ]
        else:
            lines.append(f"  {slot} = v")
        if field.oneof:
            lines.append(f"  m.settle_{field.oneof}({field.name!r})")
    return [*lines, " if other.unknown_ is not None: m.add_unknown_(other.unknown_)"]


def _equal(fields: list[_Field]) -> Lines:
    lines = [
        "def __eq__(m, other):",
        " if type(other) is not type(m): return NotImplemented",
        " if m.unknown_ != other.unknown_: return False",
    ]
    for field in fields:
        slot = field.slot
        if field.is_repeated or field.part:
            lines += [
                f" v, c = m.{slot}, other.{slot}",
                f" if {field.is_set('v')}:",
                f"  if not ({field.is_set('c')}) or v != c: return False",
                f" elif {field.is_set('c')}: return False",
            ]
        elif field.scalar.wire_type == wire.FIXED32:
            # -0.0 is another number, and what is none is equal to itself.
            lines.append(f" if pack_float(m.{slot}) != pack_float(other.{slot}): return False")
        else:
            lines.append(f" if m.{slot} != other.{slot}: return False")
    return [*lines, " return True"]
