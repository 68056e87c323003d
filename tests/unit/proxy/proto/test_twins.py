"""What stands in for protobuf's messages does what protobuf's do, where these are in C."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import google.protobuf
import pytest
from google.protobuf import duration_pb2, timestamp_pb2
from google.protobuf.internal import api_implementation
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_tw.proxy.proto import messaging_pb2
from rocketmq_tw.proxy.proto.plain import stand_ins
from rocketmq_tw.proxy.proto.plain.fields import is_repeated
from tests.support.proto_bytes import (
    BYTES,
    END_GROUP,
    FIXED32,
    FIXED64,
    START_GROUP,
    VARINT,
    MessageBytes,
    field,
    number,
)

pytestmark = pytest.mark.skipif(
    api_implementation.Type() != "upb" or int(google.protobuf.__version__.split(".")[0]) < 7,
    reason="protobuf in Python, and in older versions, is another one in small things",
)

MODULES = (duration_pb2, timestamp_pb2, messaging_pb2)
PLAIN = stand_ins(*MODULES)
#: Class of protobuf -> class that stands in.
TWINS: dict[Any, Any] = {
    getattr(module, name): PLAIN[name]
    for module in MODULES
    for name in module.DESCRIPTOR.message_types_by_name
}
#: Tries of each class.
ROUNDS = 500


@pytest.fixture
def seed() -> int:
    """One of this run's own, which stands in what a failure shows."""
    return Random().randrange(1 << 32)


def check_same(mine: Any, other: Any) -> bool:
    """Holds that two messages have the same fields, and are written as the same bytes but for the
    order of a map, which protobuf in C has from its hashes; returns whether one has an order."""
    has_order = False
    for each in other.DESCRIPTOR.fields:
        value, expected = getattr(mine, each.name), getattr(other, each.name)
        if each.has_presence:
            assert mine.HasField(each.name) == other.HasField(each.name), each.full_name
        if is_repeated(each):
            assert len(value) == len(expected), each.full_name
        if each.message_type is None:
            same = list(value) == list(expected) if is_repeated(each) else value == expected
            assert same or (math.isnan(value) and math.isnan(expected)), each.full_name
        elif each.message_type.GetOptions().map_entry:
            assert dict(value) == dict(expected), each.full_name
            has_order |= len(value) > 1
        elif is_repeated(each):
            for one, twin in zip(value, expected, strict=True):
                has_order |= check_same(one, twin)
        elif other.HasField(each.name):
            has_order |= check_same(value, expected)
    for group in other.DESCRIPTOR.oneofs:
        if not group.name.startswith("_"):
            assert mine.WhichOneof(group.name) == other.WhichOneof(group.name)
    data = other.SerializeToString(deterministic=True)
    written = [mine.SerializeToString(), mine.SerializeToString(deterministic=True)]
    if has_order:
        written = [
            type(other).FromString(each).SerializeToString(deterministic=True) for each in written
        ]
    if "nan" not in str(other):
        # Python makes all of them quiet.
        assert written == [data, data]
    assert mine.ByteSize() == len(written[0]) == len(data)
    return has_order


def check_read(kind: Any, data: bytes) -> bool:
    """Holds that bytes are read as the same message, or as none; returns whether they are one."""
    try:
        expected = kind.FromString(data)
    except DecodeError:
        with pytest.raises(DecodeError):
            TWINS[kind].FromString(data)
        return False
    try:
        mine = TWINS[kind].FromString(data)
    except DecodeError as error:
        # Within groups that are not known, older versions of protobuf let it pass.
        assert "Field number 0" in str(error)
        return False
    check_same(mine, expected)
    assert str(mine) == str(expected)
    return True


def test_each_class_has_the_numbers_and_names_of_its_fields() -> None:
    assert len(TWINS) > 60
    for kind, twin in TWINS.items():
        assert twin.DESCRIPTOR is kind.DESCRIPTOR
        for each in kind.DESCRIPTOR.fields:
            name = f"{each.name.upper()}_FIELD_NUMBER"
            assert getattr(twin, name) == getattr(kind, name) == each.number


@pytest.mark.parametrize("odd", [0.0, 0.03, 0.3])
def test_bytes_are_read_as_the_same(seed: int, odd: float) -> None:
    random = Random(seed)
    made = MessageBytes(random, odd)
    read = tried = 0
    for kind in TWINS:
        for _ in range(ROUNDS):
            data = made.of(kind.DESCRIPTOR)
            read += check_read(kind, data)
            tried += 1
            check_read(kind, made.damaged(data))
    assert read == tried if not odd else read > tried // 10


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(list(TWINS)), st.binary(max_size=40))
def test_any_bytes_are_read_as_the_same(kind: Any, data: bytes) -> None:
    check_read(kind, data)


def test_what_is_merged_and_copied_is_the_same(seed: int) -> None:
    made = MessageBytes(Random(seed), 0.02)
    for kind, twin in TWINS.items():
        for _ in range(ROUNDS // 5):
            read: list[tuple[Any, Any]] = []
            while len(read) < 2:
                data = made.of(kind.DESCRIPTOR)
                try:
                    read.append((twin.FromString(data), kind.FromString(data)))
                except DecodeError:
                    continue
            (mine, other), (more, other_more) = read
            mine.MergeFrom(more), other.MergeFrom(other_more)
            check_same(mine, other)
            mine.MergeFromString(data), other.MergeFromString(data)
            check_same(mine, other)
            check_same(more, other_more)
            copy = twin()
            copy.CopyFrom(mine)
            check_same(copy, other)
            given_ = {each.name: getattr(mine, each.name) for each, _ in other.ListFields()}
            fields = {each.name: value for each, value in other.ListFields()}
            check_same(twin(**given_), kind(**fields))
            assert copy == mine
            copy.MergeFromString(field(99, VARINT, b"\1"))
            assert copy != mine
            copy.Clear()
            check_same(copy, kind())


def test_equal_messages_are_equal_here_too(seed: int) -> None:
    made = MessageBytes(Random(seed), 0.0)
    for kind, twin in TWINS.items():
        read = [made.of(kind.DESCRIPTOR, 1) for _ in range(20)]
        for one in read:
            for two in read:
                same = kind.FromString(one) == kind.FromString(two)
                assert (twin.FromString(one) == twin.FromString(two)) == same, (one, two)
        assert twin() != 5 and twin() is not None


# Bytes one by one ---------------------------------------------------------------------------------


def groups(depth: int, number_: int = 99) -> bytes:
    """Returns groups in each other."""
    return number(number_ << 3 | START_GROUP) * depth + number(number_ << 3 | END_GROUP) * depth


def within(*numbers: int, content: bytes) -> bytes:
    """Returns content in fields in each other, the outermost first."""
    for each in reversed(numbers):
        content = field(each, BYTES, content)
    return content


CASES: list[tuple[str, str, bytes]] = [
    ("Resource", "nothing", b""),
    ("Resource", "the field number 0", b"\x00\x01"),
    ("Resource", "the field number 0 with bytes", b"\x02\x00"),
    ("Resource", "a tag that ends early", b"\x80"),
    ("Resource", "a tag of five bytes", b"\xff\xff\xff\xff\x0f"),
    ("Resource", "a tag of 33 bits", b"\xf8\xff\xff\xff\x1f\x01"),
    ("Resource", "the highest number", field((1 << 29) - 1, VARINT, b"\1")),
    ("Resource", "a tag of six bytes", b"\x8a\x80\x80\x80\x80\x00\x00"),
    ("Resource", "a tag with a byte too many", b"\x8a\x00\x01a"),
    ("Resource", "a text without its length", b"\x0a"),
    ("Resource", "a text that is cut", b"\x0a\x02a"),
    ("Resource", "an endless length", b"\x0a" + b"\xff" * 10),
    ("Resource", "a length of 2 GiB", b"\x0a\x80\x80\x80\x80\x08"),
    ("Resource", "a length of almost 2 GiB", b"\x0a\xff\xff\xff\xff\x07"),
    ("Resource", "a length of six bytes", b"\x0a\x81\x80\x80\x80\x80\x00a"),
    ("Resource", "a length of five bytes", b"\x0a\x81\x80\x80\x80\x00a"),
    ("Resource", "a text twice", b"\x0a\x01a\x0a\x01b"),
    ("Resource", "an empty text", b"\x0a\x00"),
    ("Resource", "an empty text behind another", b"\x0a\x01a\x0a\x00"),
    ("Resource", "no UTF-8", b"\x0a\x01\xff"),
    ("Resource", "half of a surrogate pair", b"\x0a\x03\xed\xa0\x80"),
    ("Resource", "both surrogates", b"\x0a\x06\xed\xa0\x80\xed\xb0\x80"),
    ("Resource", "beyond Unicode", b"\x0a\x04\xf4\x90\x80\x80"),
    ("Resource", "no UTF-8 that is unknown", field(99, BYTES, b"\xff")),
    ("Resource", "a number in place of a text", b"\x08\x01\x12\x01a"),
    ("Resource", "fields backwards", b"\x12\x01a\x0a\x01b"),
    ("Resource", "the end of no group", b"\x0c"),
    ("Resource", "the end of no group, unknown", number(99 << 3 | END_GROUP)),
    ("Resource", "a wire type 6", b"\x0e\x01"),
    ("Resource", "a wire type 7", b"\x9f\x06\x01"),
    ("Resource", "a group", groups(1)),
    ("Resource", "a group of a known number", b"\x0b\x08\x01\x0c"),
    ("Resource", "a group without end", b"\x0b\x08\x01"),
    ("Resource", "a group with another's end", b"\x0b\x08\x01\x14"),
    ("Resource", "100 groups", groups(100)),
    ("Resource", "101 groups", groups(101)),
    ("Resource", "2000 groups", groups(2000)),
    ("Resource", "fixed numbers", field(98, FIXED32, b"1234") + field(99, FIXED64, b"12345678")),
    ("Resource", "a fixed number that is cut", field(98, FIXED32, b"123")),
    ("Resource", "a longer one that is cut", field(98, FIXED64, b"1234567")),
    ("SendMessageRequest", "97 groups within", within(1, 3, 4, content=groups(97))),
    ("SendMessageRequest", "98 groups within", within(1, 3, 4, content=groups(98))),
    ("SendMessageRequest", "98 groups in an entry", within(1, 2, content=groups(98))),
    ("SendMessageRequest", "99 groups in an entry", within(1, 2, content=groups(99))),
    ("Message", "a part twice", b"\x0a\x03\x0a\x01a\x0a\x03\x12\x01b"),
    ("Message", "a part longer than the whole", b"\x0a\x05\x0a\x01a"),
    ("Message", "a number that leaves its part", b"\x1a\x02\x28\x80\x01"),
    ("Message", "a tag that leaves its part", b"\x1a\x01\x80\x01\x01"),
    ("Message", "a length that leaves its part", b"\x0a\x02\x0a\x80\x00"),
    ("Message", "an unknown number that leaves its part", b"\x0a\x03\x98\x06\x80\x01"),
    ("Message", "an entry without key", within(2, content=b"\x12\x01b")),
    ("Message", "an entry without value", within(2, content=b"\x0a\x01a")),
    ("Message", "an entry without both", b"\x12\x00"),
    ("Message", "an entry backwards", within(2, content=b"\x12\x01b\x0a\x01a")),
    ("Message", "an entry twice", 2 * within(2, content=b"\x0a\x01a\x12\x01b")),
    ("Message", "a key twice", within(2, content=b"\x0a\x01a\x0a\x01c\x12\x01b")),
    ("Message", "a value twice", within(2, content=b"\x0a\x01a\x12\x01c\x12\x01b")),
    ("Message", "a key and values in turns", within(2, content=b"\x12\x01b\x0a\x01a\x12\x01c")),
    ("Message", "an entry with more", within(2, content=b"\x0a\x01a\x12\x01b\x18\x05")),
    ("Message", "an entry with less and more", within(2, content=b"\x12\x00\x18\x05")),
    ("Message", "an entry with a number", within(2, content=b"\x08\x01\x12\x01b")),
    ("Message", "an entry with the field 0", within(2, content=b"\x00\x01")),
    ("Message", "an entry that is cut", within(2, content=b"\x0a\x02a")),
    ("Message", "an entry with no UTF-8", within(2, content=b"\x0a\x01\xff")),
    ("Message", "bytes that are no UTF-8", b"\x22\x01\xff"),
    ("Message", "unknown fields between", b"\x98\x06\x01\x22\x01a\x9d\x06abcd"),
    ("SystemProperties", "a number of ten bytes", b"\x68" + b"\xff" * 9 + b"\x01"),
    ("SystemProperties", "a number of ten bytes, and more bits", b"\x68" + b"\xff" * 9 + b"\x7f"),
    ("SystemProperties", "a number of eleven bytes", b"\x68" + b"\x80" * 10 + b"\x00"),
    ("SystemProperties", "a number of 33 bits", b"\x68" + number(1 << 32 | 5)),
    ("SystemProperties", "a number of 32 bits", b"\x68" + number(1 << 31)),
    ("SystemProperties", "a negative number", b"\x70" + number(-1)),
    ("SystemProperties", "the lowest number", b"\x70" + number(-1 << 63)),
    ("SystemProperties", "the highest number", b"\x70" + number((1 << 63) - 1)),
    ("SystemProperties", "a zero that is there", b"\x70\x00\x80\x01\x00\x0a\x00"),
    ("SystemProperties", "a zero that says nothing", b"\x68\x05\x68\x00\x28\x00"),
    ("SystemProperties", "a value that there is not", b"\x28\x63\x30\x80\x01"),
    ("SystemProperties", "a negative value", b"\x28" + number(-2)),
    ("SystemProperties", "empty keys", b"\x12\x00\x12\x00"),
    ("SystemProperties", "keys with another between", b"\x12\x01a\x1a\x01m\x12\x01b"),
    ("MessageQueue", "values packed", b"\x2a\x03\x01\x02\x63"),
    ("MessageQueue", "values one by one", b"\x28\x01\x28\x02"),
    ("MessageQueue", "values both ways", b"\x28\x01\x2a\x02\x02\x03\x28\x04"),
    ("MessageQueue", "no value packed", b"\x2a\x00"),
    ("MessageQueue", "values that are cut", b"\x2a\x02\x01\x80"),
    ("MessageQueue", "a value that leaves its pack", b"\x2a\x01\x80\x01"),
    ("MessageQueue", "negative values", b"\x2a\x0a" + number(-1) + b"\x28" + number(-1 << 31)),
    ("Publishing", "another bool", b"\x18\x02"),
    ("Publishing", "a bool of 64 bits", b"\x18" + number(1 << 40)),
    ("Publishing", "a bool of more bits", b"\x18" + b"\x80" * 9 + b"\x02"),
    ("ExponentialBackoff", "minus zero", b"\x1d\x00\x00\x00\x80"),
    ("ExponentialBackoff", "infinite", b"\x1d\x00\x00\x80\x7f"),
    ("ExponentialBackoff", "no number", b"\x1d\x00\x00\xc0\x7f"),
    ("ExponentialBackoff", "a float that is cut", b"\x1d\x00\x00\xc0"),
    ("ExponentialBackoff", "a float that leaves its part", b"\x0a\x02\x0d\x00\x00\x00\x00"),
    ("ReceiveMessageResponse", "the last of a group", b"\x0a\x00\x12\x00\x0a\x02\x08\x05"),
    ("ReceiveMessageResponse", "one twice", b"\x0a\x02\x08\x05\x0a\x03\x12\x01a"),
    ("PullMessageResponse", "a number last", b"\x0a\x02\x08\x05\x18\x00"),
    ("PullMessageResponse", "a number first", b"\x18\x05\x0a\x00"),
    ("PullMessageResponse", "a wrong one last", b"\x0a\x00\x1a\x00"),
]


@pytest.mark.parametrize(
    ("name", "data"),
    [(name, data) for name, _, data in CASES],
    ids=[f"{name}: {what}" for name, what, _ in CASES],
)
def test_bytes_that_are_rare(name: str, data: bytes) -> None:
    kind = getattr(messaging_pb2, name)
    check_read(kind, data)
    if name == "Message":
        check_read(messaging_pb2.SendMessageRequest, field(1, BYTES, data))


# Values -------------------------------------------------------------------------------------------

VALUES = [
    *(0, 1, -1, 1.0, 0.5, -0.0, None, "", "é", "\ud800", b"", b"a", b"\xff", [], {}, object),
    *((1 << 31) - 1, 1 << 31, -1 << 31, (-1 << 31) - 1, (1 << 63) - 1, 1 << 63, -1 << 63, 1 << 70),
    *(messaging_pb2.FIFO, float("inf"), 1e300, -1e300, 1e-300, 16777217),
]


def outcome(act: Callable[[], Any]) -> Any:
    """Returns what an action returns, or the kind of its error."""
    try:
        return act()
    except (TypeError, ValueError, AttributeError) as error:
        kinds = (TypeError, ValueError, AttributeError)
        return next(kind for kind in kinds if isinstance(error, kind))


# Enumerations and booleans have values of their own below: protobuf's versions differ in the rest.
@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize(
    ("name", "of"),
    [
        ("tag", "SystemProperties"),
        ("message_id", "SystemProperties"),
        ("queue_id", "SystemProperties"),
        ("queue_offset", "SystemProperties"),
        ("body", "Message"),
        ("multiplier", "ExponentialBackoff"),
        ("topic", "Message"),
        ("keys", "SystemProperties"),
    ],
)
def test_values_are_taken_or_refused(name: str, of: str, value: Any) -> None:
    results = []
    for kind in (PLAIN[of], getattr(messaging_pb2, of)):
        message = kind()
        refused = outcome(partial(setattr, message, name, value))
        results.append((refused, message.SerializeToString()))
    assert results[0] == results[1]


@pytest.mark.parametrize("value", [0, -1, 99, messaging_pb2.FIFO, 1 << 31, None, b"", object])
def test_numbers_of_enumerations_are_taken_or_refused(value: Any) -> None:
    test_values_are_taken_or_refused("message_type", "SystemProperties", value)


@pytest.mark.parametrize("value", [True, False, 0, 1, 2, -1, None, "true", b"", object])
def test_booleans_are_taken_or_refused(value: Any) -> None:
    test_values_are_taken_or_refused("validate_message_type", "Publishing", value)
