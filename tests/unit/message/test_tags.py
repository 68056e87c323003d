"""Hash codes and expressions, against what the stock jars made and their rules."""

import gc
from typing import Any

import pytest

from rocketmq_tw.message.tags import (
    MAX_TAGS_EXPRESSION,
    java_hash_code,
    parse_tag_expression,
    tag_match,
    tags_code,
    wants_tag,
)
from tests.support.traced_memory import traced_memory


def test_hash_codes_are_javas(golden: Any) -> None:
    assert golden["hash_codes"]
    for text, code in golden["hash_codes"].items():
        assert java_hash_code(text) == code


def test_no_tag_is_zero() -> None:
    assert tags_code(None) == tags_code("") == 0
    assert tags_code("TagA") == 2598919


@pytest.mark.parametrize("text", [None, "", "*"])
def test_all(text: str | None) -> None:
    expression = parse_tag_expression(text)
    assert expression.text == "*"
    assert expression.matches("anything") and expression.matches(None)
    assert tag_match(expression.text, expression.codes) is None


@pytest.mark.parametrize("text", ["a||b", " a || b ", "a || || b", "||a||b||", "\ta\n||b"])
def test_one_of_two(text: str) -> None:
    expression = parse_tag_expression(text)
    assert expression.text == text
    assert expression.tags == {"a", "b"}
    assert expression.codes == {97, 98}
    assert expression.matches("a") and not expression.matches("c") and not expression.matches(None)
    match = tag_match(text, expression.codes)
    assert match is not None and match(98) and not match(0)


def test_a_single_bar_is_part_of_a_tag() -> None:
    assert parse_tag_expression("a|b").tags == {"a|b"}


def test_only_what_java_trims_is_trimmed() -> None:
    assert parse_tag_expression("\x1fa\u00a0").tags == {"a\u00a0"}


def test_blanks_match_nothing() -> None:
    expression = parse_tag_expression("  ")
    assert not expression.matches("a")
    match = tag_match(expression.text, expression.codes)
    assert match is not None and not match(0)


@pytest.mark.parametrize("text", ["||", "||||"])
def test_bars_alone_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="names no tag"):
        parse_tag_expression(text)


def test_codes_that_a_client_chose_are_not_compared_with_others() -> None:
    """As keys of a dict they would be, each with all whose hashes collide."""
    assert tag_match("a", [97]) != tag_match("a", [97])


def test_very_many_tags_match_like_few() -> None:
    expression = parse_tag_expression("||".join(f"t{number}" for number in range(5000)))
    match = tag_match(expression.text, expression.codes)
    assert match is not None
    for number in (0, 1, 2500, 4999):
        assert match(java_hash_code(f"t{number}"))
    assert not match(0) and not match(java_hash_code("t5000")) and not match(1 << 62)
    strange = tag_match("", [1 << 200, *range(100)])
    assert strange is not None and strange(99) and not strange(100)


def test_an_expression_without_end_is_refused() -> None:
    parse_tag_expression("x" * MAX_TAGS_EXPRESSION)
    with pytest.raises(ValueError, match="65537 characters: 65536 are the limit"):
        parse_tag_expression("x" * (MAX_TAGS_EXPRESSION + 1))


def test_long_expressions_and_tags_are_not_kept() -> None:
    tags = "||".join(f"t{number}" for number in range(5000))
    java_hash_code("x")
    with traced_memory() as traced:
        for number in range(10):
            parse_tag_expression(f"first-{number}||{tags}")
            java_hash_code(f"{number}" + "x" * 100_000)
        gc.collect()
        kept = traced.held
    assert kept < 1_000_000, "10 expressions of 35 KB with 5,000 tags, and texts of 100 KB"


@pytest.mark.parametrize("others", [0, 400], ids=["short", "long"])
def test_an_expression_that_was_read_wants_the_same_tags(others: int) -> None:
    text = " || ".join(["a", "bc", "", *(f"tag{number}" for number in range(others))])
    assert (len(text) > 1024) == bool(others)
    parsed = parse_tag_expression(text)
    for tag in ("a", "bc", "b", "c", "tag1", "tag", "", " ", "||", None, "a || bc"):
        assert wants_tag(text, tag) == parsed.matches(tag)
    assert wants_tag("*", None) and wants_tag("*", "a")
