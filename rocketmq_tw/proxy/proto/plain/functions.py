"""The functions of a class of messages, written out for all of its fields."""

from __future__ import annotations

from collections.abc import Iterator

from rocketmq_tw.proxy.proto.plain import wire
from rocketmq_tw.proxy.proto.plain.fields import READ_LENGTH, Lines, MessageField


def methods(fields: list[MessageField]) -> Iterator[Lines]:
    """Yields the sources of what each message does; `fields` are in the order of their numbers."""
    yield _blank(fields)
    yield _constructor(fields)
    yield _read(fields)
    yield _measure(fields)
    yield _write(fields)
    yield _merge(fields)
    yield _equal(fields)
    yield from _settlings(fields)


def oneof_names(fields: list[MessageField]) -> list[str]:
    """Returns the names of the groups of which a message has one field at most."""
    return list(dict.fromkeys(field.oneof for field in fields if field.oneof))


def _indented(lines: Lines, spaces: int) -> Lines:
    return [" " * spaces + line for line in lines]


def _blank(fields: list[MessageField]) -> Lines:
    lines = ["def blank_(m):", " m.owner_ = None", " m.unknown_ = None", " m.size_ = 0"]
    return lines + [f" m.{field.slot} = {field.default}" for field in fields]


def _constructor(fields: list[MessageField]) -> Lines:
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


def accessors(field: MessageField) -> Iterator[Lines]:
    """Yields the getter of a field, and its setter where there is one."""
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


def _settlings(fields: list[MessageField]) -> Iterator[Lines]:
    """Yields what leaves one field of a group only, and what does so for a part that entered."""
    oneofs = oneof_names(fields)
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


def question(field: MessageField) -> Lines:
    """Returns what tells whether a message has a field."""
    return [f"def has(m): return {field.is_set(f'm.{field.slot}')}"]


def which(fields: list[MessageField], oneof: str) -> Lines:
    """Returns what tells which field of a group a message has."""
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


def _read(fields: list[MessageField]) -> Lines:
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


def _field_read(field: MessageField) -> Iterator[tuple[int, Lines]]:
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
                *READ_LENGTH,
                f"read_entry(m, {field.tag}, items, data, at, after, depth - 1)",
                "at = after",
            ]
        elif field.part:
            one = [
                *READ_LENGTH,
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
                *READ_LENGTH,
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
            *READ_LENGTH,
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


def _measure(fields: list[MessageField]) -> Lines:
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


def _write(fields: list[MessageField]) -> Lines:
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


def _merge(fields: list[MessageField]) -> Lines:
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


def _equal(fields: list[MessageField]) -> Lines:
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
