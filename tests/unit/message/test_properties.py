"""The text of properties, read and written as stock does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_tw.message.properties import (
    is_true,
    join_properties,
    number,
    parse_properties,
    rejoin_properties,
    waits_for_store,
)

CASES = [
    ("nothing", "", {}),
    ("one", "TAGS\x01a\x02", {"TAGS": "a"}),
    ("4.9.7 leaves out the last separator", "TAGS\x01a\x02KEYS\x01k", {"TAGS": "a", "KEYS": "k"}),
    ("the last value of a name counts", "k\x01first\x02k\x01second\x02", {"k": "second"}),
    ("a separator in a value belongs to it", "k\x01a\x01b\x02", {"k": "a\x01b"}),
    ("no value", "k\x01\x02l\x01v\x02", {"l": "v"}),
    ("no name", "\x01v\x02l\x01v\x02", {"l": "v"}),
    ("no separator", "kv\x02l\x01v\x02", {"l": "v"}),
    ("unicode", "schlüssel\x01größe 😀\x02", {"schlüssel": "größe 😀"}),
]


@pytest.mark.parametrize(("text", "properties"), [case[1:] for case in CASES], ids=lambda v: "")
def test_parses_as_stock(text: str, properties: dict[str, str]) -> None:
    assert parse_properties(text) == properties
    assert parse_properties(text.encode()) == properties


def test_bytes_that_are_no_utf8_do_not_stop_the_rest() -> None:
    assert parse_properties(b"a\x01\xff\x02b\x01c\x02") == {"a": "�", "b": "c"}


def test_a_lone_surrogate_becomes_a_question_mark() -> None:
    assert join_properties({"k": "\ud800"}) == b"k\x01?\x02"


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ("7", 7),
        ("+7", 7),
        ("-7", -7),
        ("9223372036854775807", (1 << 63) - 1),
        ("9223372036854775808", None),
        ("-9223372036854775809", None),
        ("9" * 5000, None),
        ("1_0", None),
        (" 7", None),
        ("\uff17", None),
        ("", None),
        (None, None),
    ],
)
def test_numbers_are_longs(value: str | None, meant: int | None) -> None:
    assert number(value) == meant


names = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1)


@given(st.dictionaries(names, names))
def test_what_is_joined_parses_to_the_same_in_the_same_order(properties: dict[str, str]) -> None:
    assert list(parse_properties(join_properties(properties)).items()) == list(properties.items())


@pytest.mark.parametrize(
    ("value", "waits"),
    [(None, True), ("true", True), ("TRUE", True), ("false", False), ("1", False)],
)
def test_wait_is_the_default(value: str | None, waits: bool) -> None:
    assert waits_for_store({} if value is None else {"WAIT": value}) is waits
    assert is_true(value) is (waits and value is not None)


@given(st.lists(st.text(alphabet="abä\ud800\x01\x02", max_size=6), max_size=6).map("\x02".join))
def test_properties_passed_through_are_what_joining_them_gives(text: str) -> None:
    properties = parse_properties(text)
    assert rejoin_properties(text, properties) == join_properties(properties)
