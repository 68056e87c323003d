"""What stands in for msgspec does what that does, for each class of structs of the package."""

from __future__ import annotations

import copy
import operator
import re
from random import Random
from typing import Any

import pytest

msgspec = pytest.importorskip("msgspec")

from rocketmq_tw.structs import plain  # noqa: E402
from rocketmq_tw.wire.bodies.base import DataVersion  # noqa: E402
from tests.support.struct_outcomes import outcome  # noqa: E402
from tests.support.struct_twins import readable, twins  # noqa: E402
from tests.support.struct_values import Values, plain_tree  # noqa: E402

OPTIONS = ("frozen", "eq", "order", "omit_defaults", "forbid_unknown_fields", "tag", "tag_field")
#: How msgspec shows a `Raw`; here it is shown by its bytes.
_SHOWN_RAW = re.compile(r"<msgspec.Raw object at 0x[0-9a-f]+>|b'.*?'|b\".*?\"")
COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
#: Tries of each class.
ROUNDS = 20
#: Rooms in which all classes but of these are read from JSON.
READ_ROOMS = ("rocketmq_tw.wire.", "rocketmq_tw.raft.bodies", "rocketmq_tw.container.messages")


@pytest.fixture
def seed() -> int:
    """One of this run's own, which stands in what a failure shows."""
    return Random().randrange(1 << 32)


def test_the_classes_have_the_same_fields_and_options() -> None:
    classes = twins().classes
    assert len(classes) > 300
    for struct_type, twin in classes.items():
        for name in ("__struct_fields__", "__struct_encode_fields__", "__match_args__"):
            assert getattr(twin, name) == getattr(struct_type, name), struct_type
        for option in OPTIONS:
            mine = getattr(twin.__struct_config__, option)
            assert mine == getattr(struct_type.__struct_config__, option), (struct_type, option)


def test_a_class_made_while_a_server_runs_has_no_twin() -> None:
    made = msgspec.defstruct(
        "Extra", [("a", int, 0)], bases=(DataVersion,), module=DataVersion.__module__
    )
    assert made not in twins.__wrapped__().classes


def test_the_fields_have_the_same_names_and_defaults() -> None:
    for struct_type, twin in twins().classes.items():
        infos = zip(msgspec.structs.fields(struct_type), plain.structs.fields(twin), strict=True)
        for info, mine in infos:
            assert (mine.name, mine.encode_name) == (info.name, info.encode_name)
            assert mine.required == info.required, (struct_type, info.name)
            mine_default = twins().carried(info.default)
            assert str(mine.default) == str(mine_default), (struct_type, info.name)
            made, mine_made = info.default_factory, mine.default_factory
            assert (made is msgspec.NODEFAULT) == (mine_made is plain.NODEFAULT)


def test_what_the_servers_read_is_read() -> None:
    found = readable()
    missing = [
        struct_type.__qualname__
        for struct_type in twins().classes
        if struct_type.__module__.startswith(READ_ROOMS) and struct_type not in found
    ]
    assert missing == []


def test_json_becomes_the_same_or_fails_with_the_same_words(seed: int) -> None:
    random = Random(seed)
    values = Values(random)
    for struct_type, twin in readable().items():
        for strict in (True, False):
            theirs = msgspec.json.Decoder(struct_type, strict=strict).decode
            ours = plain.json.Decoder(twin, strict=strict).decode
            for _ in range(ROUNDS):
                text = values.text(values.tree(struct_type, wrong=random.choice((0, 0.02, 0.1))))
                expected = outcome(theirs, text)
                found = outcome(ours, text)
                assert found == expected, (seed, struct_type, strict, text)


def test_values_become_the_same_or_fail_with_the_same_words(seed: int) -> None:
    random = Random(seed)
    values = Values(random)
    for struct_type, twin in readable().items():
        for _ in range(ROUNDS):
            tree = values.tree(struct_type, wrong=random.choice((0, 0.02, 0.1)))
            value = plain_tree(tree)
            options = {"strict": random.random() < 0.5, "str_keys": random.random() < 0.5}
            expected = outcome(msgspec.convert, value, struct_type, **options)
            found = outcome(plain.convert, value, twin, **options)
            assert found == expected, (seed, struct_type, options, value)


def test_any_json_is_the_same(seed: int) -> None:
    random = Random(seed)
    values = Values(random)
    for struct_type in readable():
        for _ in range(ROUNDS // 2):
            text = values.text(values.tree(struct_type, wrong=0.1))
            expected = outcome(msgspec.json.decode, text)
            assert outcome(plain.json.decode, text) == expected, (seed, text)
            expected = outcome(msgspec.json.format, text, indent=2)
            assert outcome(plain.json.format, text, indent=2) == expected, (seed, text)


def test_structs_are_written_the_same(seed: int) -> None:
    values = Values(Random(seed))
    for struct_type in twins().classes:
        for _ in range(ROUNDS // 2):
            struct = values.struct(struct_type)
            twin = twins().carried(struct)
            expected = outcome(msgspec.json.encode, struct)
            assert outcome(plain.json.encode, twin) == expected, (seed, struct)
            for str_keys in (True, False):
                expected = outcome(msgspec.to_builtins, struct, str_keys=str_keys)
                found = outcome(plain.to_builtins, twin, str_keys=str_keys)
                assert found == expected, (seed, struct)


def test_structs_are_copied_changed_and_shown_the_same(seed: int) -> None:
    values = Values(Random(seed))
    for struct_type in twins().classes:
        for _ in range(ROUNDS // 4):
            struct, other = values.struct(struct_type), values.struct(struct_type)
            twin, other_twin = twins().carried(struct), twins().carried(other)
            name = next(iter(struct_type.__struct_fields__), "none")
            value = getattr(other, name, 1)
            mine = twins().carried(value)
            for call, mine_call, arguments in (
                (_shown, _shown, ()),
                (copy.copy, copy.copy, ()),
                (_is_like_its_copy, _is_like_its_copy, ()),
                (_hashed, _hashed, ()),
                (_reduced, _reduced, ()),
                (msgspec.structs.asdict, plain.structs.asdict, ()),
                (msgspec.structs.astuple, plain.structs.astuple, ()),
                (setattr, setattr, (name,)),
            ):
                theirs = outcome(call, struct, *arguments, *[value] * len(arguments))
                ours = outcome(mine_call, twin, *arguments, *[mine] * len(arguments))
                assert ours == theirs, (seed, struct, call)
            theirs = outcome(msgspec.structs.replace, struct, **{name: value})
            ours = outcome(plain.structs.replace, twin, **{name: mine})
            assert ours == theirs, (seed, struct, name)
            for compare in COMPARISONS:
                theirs = outcome(compare, struct, other)
                assert outcome(compare, twin, other_twin) == theirs, (seed, struct, other)
            assert struct != twin


def _shown(struct: Any) -> str:
    return _SHOWN_RAW.sub("", repr(struct))


def _is_like_its_copy(struct: Any) -> bool:
    return copy.copy(struct) == struct


def _hashed(struct: Any) -> int:
    return len({struct, copy.copy(struct)})


def _reduced(struct: Any) -> Any:
    """Returns what a struct is pickled as, but for its class."""
    _, arguments = struct.__reduce__()
    return [argument for argument in arguments if not isinstance(argument, type)]
