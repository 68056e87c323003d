"""SQL92 expressions: stock's own cases, what stock answered to random ones, and what is refused."""

import json
from pathlib import Path

import pytest

from rocketmq_tw.message.properties import join_properties
from rocketmq_tw.message.sql92 import MAX_EXPRESSION, ExpressionError, compile_expression
from rocketmq_tw.message.sql92.syntax import MAX_DEPTH, MAX_TESTS

STOCK_ANSWERS = json.loads(Path(__file__).with_name("stock-5.3.3.json").read_text())

AND = "a=3 and b<>4 And c>5 AND d<=4"
OR = "a=3 or b<>4 Or c>5 OR d<=4"
IN = "a in ('3', '4', '5')"
NOT_IN = "a not in ('3', '4', '5')"
BETWEEN = "a between 2 and 10"
NOT_BETWEEN = "a not between 2 and 10"
EQUAL = "a is not null and a='hello'"
NULL_OR = "a is null OR a='hello'"
BOOLEAN = "a=TRUE OR b=FALSE"
LONG = 9223372036854775807


def matches(expression: str, **properties: str) -> bool:
    return compile_expression(expression).matches(join_properties(properties))


@pytest.mark.parametrize("answer", ["true", "false", "null", "error", "refused"])
def test_what_stock_answered(answer: str) -> None:
    rows = [row for row in STOCK_ANSWERS if row[2] == answer]
    assert len(rows) > 100
    for expression, properties, _ in rows:
        if answer == "refused":
            with pytest.raises(ExpressionError):
                compile_expression(expression)
        else:
            given = properties.encode()
            assert compile_expression(expression).matches(given) is (answer == "true"), (
                f"{expression!r} with {properties!r}"
            )


@pytest.mark.parametrize(
    ("expression", "properties", "expected"),
    [
        # stock's ExpressionTest
        (AND, {"a": "3", "b": "5", "c": "6", "d": "1"}, True),
        (AND, {"a": "4", "b": "5", "c": "6", "d": "1"}, False),
        (OR, {"a": "3"}, True),
        (OR, {"a": "4", "b": "5"}, True),
        (OR, {"a": "4", "b": "4", "c": "6"}, True),
        (OR, {"a": "4", "b": "4", "c": "3", "d": "2"}, True),
        (OR, {"a": "4", "b": "4", "c": "3", "d": "10"}, False),
        *((IN, {"a": value}, True) for value in "345"),
        (IN, {"a": "8"}, False),
        *((NOT_IN, {"a": value}, False) for value in "345"),
        (NOT_IN, {"a": "8"}, True),
        *((BETWEEN, {"a": value}, True) for value in ("2", "3", "10")),
        *((BETWEEN, {"a": value}, False) for value in ("1", "11", "abc")),
        *((NOT_BETWEEN, {"a": value}, False) for value in ("2", "3", "10", "abc")),
        *((NOT_BETWEEN, {"a": value}, True) for value in ("1", "11")),
        ("a is null", {"abc": "2"}, True),
        ("a is null", {"a": "2"}, False),
        ("a is not null", {"a": "2"}, True),
        ("a is not null", {"abc": "2"}, False),
        (EQUAL, {"a": "hello"}, True),
        (EQUAL, {}, False),
        (NULL_OR, {}, True),
        (NULL_OR, {"a": "hello"}, True),
        (NULL_OR, {"a": "abc"}, False),
        (BOOLEAN, {"a": "true", "b": "false"}, True),
        (BOOLEAN, {"a": "false", "b": "true"}, False),
        ("TAGS is not null and TAGS='''''tag'''''", {"TAGS": "''tag''"}, True),
        ("a between up and low", {"a": "3.14"}, False),
        ("a between up and low", {"a": "3.14", "up": "up", "low": "low"}, False),
        ("key is not null and key between 0 and 100", {"key": "con"}, False),
        ("a=b", {"a": "3.14", "b": "3.14"}, True),
        ("a<>b", {"a": "3.14", "b": "3.14"}, False),
        ("a<>b", {"a": "3.14", "b": "3.141"}, True),
        ("a > 3.1E10", {"a": "31415000000.0"}, True),
        ("a > 3.14", {"a": "3.1415"}, True),
        ("a > b", {"a": "10", "b": "20"}, False),
        ("a > b", {"a": "20", "b": "10"}, True),
        ("a <= now", {"a": "1", "now": "2"}, True),
        *(
            (f"a not in ('4', '4', '5') and b between 3 and 10 and c not {word} 'axbc'", row, True)
            for word in ("contains", "startswith", "endswith")
            for row in [{"a": "3", "b": "3", "c": "axbdc"}]
        ),
        # unknown is neither true nor false
        ("a = 1 OR b = 1", {"b": "1"}, True),
        ("NOT (a = 1)", {}, False),
        ("NOT (a = 1 AND b = 2)", {"b": "3"}, True),
        ("NOT (a = 1 OR b = 2)", {"b": "3"}, False),
        ("(a = 1) IS NULL", {}, True),
        ("NULL", {}, False),
        ("TRUE", {}, True),
        # what cannot be compared matches nothing, whichever way it is asked
        ("a > 5", {"a": "x"}, False),
        ("NOT (a > 5)", {"a": "x"}, False),
        ("TRUE = a", {"a": "true"}, False),
        ("a = 1 OR b > 5", {"a": "1", "b": "x"}, True),
        ("b > 5 OR a = 1", {"a": "1", "b": "x"}, False),
        # a property is a text, and becomes what it is compared with
        ("a", {"a": "true"}, False),
        ("NOT a", {"a": "true"}, True),
        ("a = 5", {"a": "5.0"}, False),
        ("a = 5.0", {"a": "5"}, True),
        ("a > 5", {"a": "2147483648"}, False),
        ("a > 5L", {"a": "2147483648"}, False),
        ("a > 2147483648", {"a": "2147483649"}, True),
        (f"a = {LONG}", {"a": str(LONG)}, True),
        ("a > 1.5", {"a": " NaN"}, True),
        ("a > 7.5", {"a": "0x1p3"}, True),
        ("a > 5", {"a": "٦"}, True),
        ("a = TRUE", {"a": "TrUe"}, True),
        ("-a IS NULL", {"a": "5"}, True),
        ("a BETWEEN -5 AND -1", {"a": "-3"}, True),
        # names are told apart by case, keywords are not
        ("A = '1' or not (a is null)", {"a": "2"}, True),
        ("A IS NULL", {"a": "2"}, True),
        # comments and blanks
        ("a /* the first */ = -- the second\n\t'1'", {"a": "1"}, True),
        # what stands behind an expression is passed over
        ("a = '1' b = '2'", {"a": "1"}, True),
    ],
)
def test_cases(expression: str, properties: dict[str, str], expected: bool) -> None:
    assert matches(expression, **properties) is expected


TEXTS = [
    ("axb", ("x", "ax", "xb"), True),
    ("abb", ("x", "x", "x"), False),
    ("axb", ("", "", ""), None),
    (None, ("x", "x", "x"), None),
    ("1.23", ("x", "x", "x"), False),
    ("s", ("\\", "\\", "\\"), False),
    (" ", (" ", " ", " "), True),
    ("axb", (".", ".", "."), False),
    ("it's", ("''", "it''", "''s"), True),
]


@pytest.mark.parametrize(("value", "texts", "expected"), TEXTS)
def test_texts_in_texts(
    value: str | None, texts: tuple[str, str, str], expected: bool | None
) -> None:
    properties = {} if value is None else {"value": value}
    for word, text in zip(("contains", "startswith", "endswith"), texts, strict=True):
        operands = ["value"]
        if value is not None:
            operands.append("'" + value.replace("'", "''") + "'")
        for operand in operands:
            has = matches(f"{operand} {word} '{text}'", **properties)
            has_not = matches(f"{operand} not {word} '{text}'", **properties)
            assert has is bool(expected)
            assert has_not is (expected is False)


@pytest.mark.parametrize("operand", ["5", "TRUE", "(a = 'x')", "NULL"])
def test_what_is_no_text_contains_nothing(operand: str) -> None:
    assert not matches(f"{operand} contains 'x'", a="x")
    assert not matches(f"{operand} not contains 'x'", a="x")


@pytest.mark.parametrize(
    ("expression", "column", "words"),
    [
        ("", 1, "found the end"),
        ("a >", 4, "expected a property, a string in single quotes, a number"),
        ("a and between 2 and 10", 7, "found BETWEEN"),
        ("a between 10 and 0", 11, "lower limit"),
        ("a between 10,20", 13, "expected AND"),
        ("a between null and 5", 11, "expected a number or a property"),
        ("a > 'b'", 5, "expected a number or a property"),
        ("a > TRUE", 5, "expected a number or a property"),
        ("(a = 1) > 2", 1, "expected a number or a property"),
        ("a = NULL", 5, "use IS NULL"),
        ("TRUE = 1", 8, "expected TRUE, FALSE or a property"),
        ("a is 5", 6, "expected NULL or NOT NULL"),
        ("a is not 5", 10, "expected NULL"),
        ("a not 5", 7, "expected CONTAINS, STARTSWITH, ENDSWITH, BETWEEN or IN"),
        ("a contains x", 12, "expected a string in single quotes, found x"),
        ("a contains 123", 12, "expected a string in single quotes, found 123"),
        ("'axb' contains ", 16, "expected a string in single quotes, found the end"),
        ("a in (1)", 7, "expected a string in single quotes"),
        ("a in ()", 7, "expected a string in single quotes"),
        ("a in ('x' 'y')", 11, "expected , or )"),
        ("'a' in ('a')", 1, "expected a property in front of IN"),
        ("(a = 1", 7, "expected )"),
        ("a = 'x", 5, "no closing quote"),
        ("a && b", 3, "'&' means nothing"),
        ("a == 1", 4, "found ="),
        ("5", 1, "expected a condition"),
        ("a = 1 and 5", 11, "expected a condition"),
        ("not 5", 5, "expected a condition"),
        ("a > 100000000000000000000000", 5, "too large: at most 9223372036854775807"),
        (f"a > {'1' * 7000}.5", 5, "too large for a double"),
        ("a > 0.0", 5, "is 0 for a double"),
        ("(" * (MAX_DEPTH + 1) + "a", MAX_DEPTH + 1, "levels"),
        ("a" + " = 'x'" * (MAX_DEPTH + 1), 3 + 6 * MAX_DEPTH, "levels"),
        (" OR ".join(["a=1"] * (MAX_TESTS + 1)), 7 * MAX_TESTS + 2, "tests"),
        (" OR ".join(["a"] * (MAX_TESTS + 1)), 5 * MAX_TESTS + 1, "tests"),
        ("a" * (MAX_EXPRESSION + 1), MAX_EXPRESSION + 1, "are the limit"),
    ],
)
def test_what_is_refused(expression: str, column: int, words: str) -> None:
    for _ in range(2):
        # The second time it is remembered.
        with pytest.raises(ExpressionError, match=r"^column \d+: ") as refused:
            compile_expression(expression)
        assert refused.value.column == column
        assert words in str(refused.value)
        assert len(str(refused.value)) < 300


def test_as_much_as_is_allowed() -> None:
    deep = MAX_DEPTH - 1
    assert matches("(" * deep + "a = 'x'" + ")" * deep, a="x")
    assert matches("NOT " * (deep - 1) + "(a = 'x')", a="x")
    assert matches("a" + " = 'x'" * deep, a="x") is False
    assert matches(" OR ".join(f"a = {n}" for n in range(MAX_TESTS)), a=str(MAX_TESTS - 1))
    texts = ",".join(f"'{n:04}'" for n in range(1_100))
    assert matches(f"a IN ({texts})", a="1099")


def test_what_was_passed_over_is_told() -> None:
    assert compile_expression("a > 1  ").rest == 0
    assert compile_expression("a > 1 + 2").rest == 7


@pytest.mark.parametrize(
    "properties",
    [
        b"",
        b"a",
        b"\x02\x02\x01",
        b"a\x01",
        b"ba\x015",
        b"b\x01a\x015\x02",
        b"\xff\xfe\x02a\x01\xff\x02",
        b"a\x01\x02",
    ],
)
def test_properties_without_it(properties: bytes) -> None:
    assert not compile_expression("a = '5'").matches(properties)
    assert not compile_expression("a = '5' and b is null and c is null").matches(properties)


@pytest.mark.parametrize(
    "properties",
    [
        b"a\x015",
        b"a\x015\x02",
        b"b\x01x\x02a\x015",
        b"a\x014\x02a\x015\x02",
        b"a\x015\x02a\x01\x02",
        b"\xff\x01\xff\x02a\x015\x02",
    ],
)
def test_properties_with_it(properties: bytes) -> None:
    assert compile_expression("a = '5'").matches(properties)
    many = " and ".join(f"{name} is null" for name in "uvwxyz")
    assert compile_expression(f"{many} and a = '5'").matches(properties)


def test_many_expressions_do_not_pile_up() -> None:
    first = compile_expression("a = 'first'")
    assert compile_expression("a = 'first'") is first
    for n in range(40):
        compile_expression(f"a = '{n}{'x' * 8_000}'")
    assert compile_expression("a = 'first'") is not first


def test_weight_counts_tests_and_what_is_searched_for() -> None:
    assert compile_expression("a = 1 AND b CONTAINS 'abc'").weight == 1
    assert compile_expression(" OR ".join(["a = 1"] * 32)).weight == 3
    assert compile_expression(" OR ".join([f"b ENDSWITH '{'x' * 256}'"] * 4)).weight == 9


def test_a_slow_expression_is_asked_once_about_equal_properties() -> None:
    """Thousands of reads that wait with it are asked about each message that arrives."""
    text = " OR ".join(f"a CONTAINS '{n:030}' OR b = '{n}'" for n in range(1, 101))
    expression = compile_expression(text)
    properties = b"a\x01" + b"0" * 20_000 + b"\x02b\x01x\x02"
    assert not expression.matches(properties)

    # Without a memory this takes minutes.
    assert not any(expression.matches(properties) for _ in range(100_000))
    other = compile_expression(text + " OR b = 'x'")
    assert other.matches(properties)
