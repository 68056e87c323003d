"""Random values and JSON for the classes of structs that the package has, right ones and wrong."""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import Enum
from random import Random
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from rocketmq_tw.structs import msgspec

_INTEGERS = (0, 1, -1, 7, 255, 2**31 - 1, 2**31, -(2**31), 2**53 + 1, 2**63 - 1, 2**63, -(2**63))
_BEYOND = (2**64 - 1, 2**64, -(2**63) - 1, 10**30, -(10**40), 10**400)
_FLOATS = (0.0, -0.0, 1.0, 1.5, -2.25, 1e16, 1e-5, 1.5e-7, 1e300, 5e-324, 0.1)
_TEXTS = (
    "",
    "a",
    "Topic",
    'q"\\/',
    "\x00\x1f\x7f\n\t",
    "äöü€",
    "\U0001f600",
    " x ",
    "$.key",
    "null",
)
_NUMBERS = ("0", "1", "-1", "01", "+1", " 1", "1.0", "1.5", "-0", "1e2", "1e400", "2147483648")
_WORDS = (
    "true",
    "TRUE",
    "False",
    "tru",
    "NULL",
    "nan",
    "-inf",
    "Infinity",
    "9" * 30,
    "1_0",
    "\u0661",
)
_WRONG: tuple[Any, ...] = (None, True, False, [], {}, [1], {"a": 1}, [[]], {"": None})


class Bare(str):
    """A piece of text that stands in JSON as it is."""

    __slots__ = ()


_BARE = (
    *(
        "1e400",
        "-1e400",
        "-0",
        "-0.0",
        "NaN",
        "-Infinity",
        "01",
        "1.",
        ".5",
        "-",
        "+1",
        "1e",
        "1e+",
    ),
    *("0x1", "nul", "tru", "fals", "nulL", "", " ", "1 2", "[1,]", '{"a":1,}', "{a:1}", "[1 2]"),
    *(
        '{"a" 1}',
        "{1:2}",
        "{,}",
        "[,]",
        "[",
        "{",
        '"',
        '"\\x"',
        '"\\u12"',
        '"\\u00zz"',
        '"\\ud800"',
    ),
    *(
        '"\\udc00"',
        '"\\ud800\\u0041"',
        '"\\ud83d\\ude00"',
        '"\\u0000"',
        '"\x01"',
        '"\x7f"',
        "\ufeff1",
    ),
    *(
        "1" * 4300,
        "1" * 4301,
        "-" + "1" * 4301,
        "1" * 400 + ".0",
        "0." + "1" * 400,
        "1e-400",
        "1E5",
    ),
    *("[[[[[[]]]]]]", '{"a":{"b":[1,{"c":"\\n"}]}}', "18446744073709551616", "\u2028", "/**/1"),
)


class Values:
    """Makes values from `random`."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def struct(self, struct_type: Any) -> Any:
        """Returns a struct with fields of their types, mostly, defaults among them."""
        fields = {}
        for info in msgspec.structs.fields(struct_type):
            if info.required or self._random.random() < 0.7:
                fields[info.name] = self.value(info.type)
        try:
            return struct_type(**fields)
        except ValueError:
            # Keys that are no queue ids.
            maps = [name for name, value in fields.items() if type(value) is dict]
            return struct_type(**{name: fields[name] for name in fields if name not in maps})

    def value(self, annotation: Any) -> Any:
        """Returns a value of a type; of a type that no JSON becomes, a text."""
        pick = self._random.choice
        origin, parts = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            return self.value(parts[0])
        if origin in (Union, UnionType):
            return self.value(pick(parts))
        if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
            return self.struct(annotation)
        if isinstance(annotation, type) and issubclass(annotation, Enum):
            return pick(list(annotation))
        if origin is dict:
            keys = (self.value(parts[0]) for _ in range(pick((0, 1, 3))))
            return {key: self.value(parts[1]) for key in keys}
        if origin in (list, set, frozenset):
            return origin(self.value(parts[0]) for _ in range(pick((0, 1, 3))))
        if origin is tuple:
            items = parts[:-1] * pick((0, 2)) if parts[-1] is ... else parts
            return tuple(self.value(item) for item in items)
        if annotation is bool:
            return pick((True, False))
        if annotation is int:
            return pick(_INTEGERS)
        if annotation is float:
            return pick(_FLOATS)
        if annotation is bytes:
            return self._random.randbytes(pick((0, 1, 2, 3, 10)))
        if annotation is msgspec.Raw:
            return msgspec.Raw(pick((b"{}", b"[1, 2]", b'"x"', b" null ")))
        if annotation in (NoneType, None):
            return None
        return pick(_TEXTS)

    def tree(self, annotation: Any, *, wrong: float = 0.05) -> Any:
        """Returns what JSON of a type is like: dicts are lists of pairs, and a part `wrong` of all
        values is of any type, or no JSON at all."""
        pick, chance = self._random.choice, self._random.random
        if chance() < wrong:
            return self._wrong()
        origin, parts = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            return self.tree(parts[0], wrong=wrong)
        if origin in (Union, UnionType):
            return self.tree(pick(parts), wrong=wrong)
        if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
            return self._members(annotation, wrong)
        if isinstance(annotation, type) and issubclass(annotation, Enum):
            return pick(list(annotation)).value
        if origin is dict:
            names = {self._name(parts[0]) for _ in range(pick((0, 1, 3)))}
            return Pairs((name, self.tree(parts[1], wrong=wrong)) for name in sorted(names))
        if origin in (list, set, frozenset):
            return [self.tree(parts[0], wrong=wrong) for _ in range(pick((0, 1, 3)))]
        if origin is tuple:
            items = parts[:-1] * pick((0, 2)) if parts[-1] is ... else parts
            return [self.tree(item, wrong=wrong) for item in items]
        if annotation is bytes:
            return pick(("", "AA==", "AAA=", "AAAA", "A", "AA=A", "====", "-_==", "AB=="))
        value = self.value(annotation)
        if type(value) is bool and chance() < 0.3:
            return "true" if value else "false"
        if type(value) is int and chance() < 0.3:
            return str(value)
        return Bare(bytes(value).decode()) if type(value) is msgspec.Raw else value

    def _members(self, struct_type: Any, wrong: float) -> Any:
        members = Pairs()
        tag = struct_type.__struct_config__.tag
        if tag is not None and self._random.random() > wrong:
            members.append((struct_type.__struct_config__.tag_field, tag))
        for info in msgspec.structs.fields(struct_type):
            if self._random.random() < (1 - wrong if info.required else 0.6):
                members.append((info.encode_name, self.tree(info.type, wrong=wrong)))
        if self._random.random() < wrong * 2:
            members.append((self._random.choice(_TEXTS), self._wrong()))
        if self._random.random() < 0.3:
            self._random.shuffle(members)
        return members

    def _name(self, annotation: Any) -> str:
        if annotation is int:
            return str(self._random.choice((*_INTEGERS, *_NUMBERS[:3])))
        return self._random.choice((*_TEXTS, *_NUMBERS))

    def _wrong(self) -> Any:
        pools: Iterable[Any] = (_INTEGERS, _BEYOND, _FLOATS, _TEXTS, _NUMBERS, _WORDS, _WRONG)
        pool = self._random.choice((*pools, [Bare(text) for text in _BARE]))
        return self._random.choice(pool)

    def text(self, tree: Any) -> bytes:
        """Returns a tree as JSON, with spaces in some places, at times damaged."""
        data = self._text(tree).encode()
        chance = self._random.random()
        place = self._random.randrange(len(data) + 1)
        if chance < 0.05:
            return data[:place]
        if chance < 0.1:
            return data[:place] + self._random.randbytes(1) + data[place + 1 :]
        if chance < 0.15:
            return data[:place] + self._random.choice((b" ", b",", b"}", b"]", b":", b'"', b"\0"))
        return data

    def _text(self, tree: Any) -> str:
        space = self._random.choice(("", "", "", " ", "\n\t"))
        if isinstance(tree, Bare):
            return tree + space
        if isinstance(tree, Pairs | dict):
            pairs = tree.items() if isinstance(tree, dict) else tree
            members = (f"{self._text(name)}:{space}{self._text(item)}" for name, item in pairs)
            return "{" + space + ",".join(members) + "}" + space
        if isinstance(tree, list):
            return "[" + ("," + space).join(map(self._text, tree)) + "]"
        is_ascii = self._random.random() < 0.1
        return json.dumps(tree, ensure_ascii=is_ascii) + space


class Pairs(list[Any]):
    """The members of an object, (name, value) each."""


def plain_tree(tree: Any) -> Any:
    """Returns a tree with dicts in place of pairs, as a reader of JSON would have it."""
    if isinstance(tree, Bare):
        return str(tree)
    if isinstance(tree, Pairs):
        return {name: plain_tree(item) for name, item in tree}
    return [plain_tree(item) for item in tree] if isinstance(tree, list) else tree
