"""Compiles the tree of an expression into a function.

Each node becomes a closure over the values of the properties: it gives True, False or None, which
is SQL's unknown, and a value's node gives a value or None. `EvaluationError` is raised where stock
gives up on a message. Types are known beforehand, since every property is a text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import ge, gt, le, lt
from typing import Any

from rocketmq_tw.message.sql92.numbers import (
    double_order,
    java_boolean,
    java_double,
    java_int,
    java_long,
)
from rocketmq_tw.message.sql92.syntax import (
    NUMBERS,
    And,
    Comparison,
    EvaluationError,
    IsNull,
    IsTrue,
    Kind,
    ListTest,
    Literal,
    Node,
    Not,
    Nothing,
    Or,
    Property,
    TextTest,
    value_kind,
)

#: The values of the properties that an expression names, in the order of `names`.
Values = Sequence[str | None]
Evaluate = Callable[[Values], Any]

_TEXT_TESTS: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": str.__contains__,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
#: Constants that may change sides with a property.
_TURNED = NUMBERS | {Kind.TEXT}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _double_for_order(text: str) -> float:
    """Returns the number of a text to compare with a constant. NaN becomes infinity: as the
    constant is a number, NaN is larger than all it is compared with."""
    number = java_double(text)
    return number if number == number else math.inf


_NUMBER_OF_TEXT: dict[Kind, Callable[[str], int | float]] = {
    Kind.INT: java_int,
    Kind.LONG: java_long,
    Kind.DOUBLE: _double_for_order,
}


class Compiler:
    """Makes closures of syntax trees. It numbers the properties as it meets them: `names` has them
    in that order."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    @property
    def names(self) -> list[str]:
        """The properties that the trees compiled so far name."""
        return list(self._places)

    def compile(self, node: Node) -> Evaluate:
        """Returns the closure of a node."""
        match node:
            case Literal(value):
                return lambda values: value
            case Property(name):
                index = self._index(name)
                return lambda values: values[index]
            case Nothing(operand):
                return _always_null(self.compile(operand))
            case IsTrue(operand):
                return _is_true(self.compile(operand))
            case IsNull(operand):
                evaluate = self.compile(operand)
                return lambda values: evaluate(values) is None
            case ListTest(name, texts, negated):
                return _membership(self._index(name), texts, negated)
            case TextTest():
                return self._text_test(node)
            case Not(operand):
                return _not(self.compile(operand))
            case And(operands):
                return _and([self.compile(operand) for operand in operands])
            case Or(operands):
                return _or([self.compile(operand) for operand in operands])
            case Comparison("=", left, right):
                return self._equal(left, right)
            case Comparison(sign, left, right):
                return self._ordered(sign, left, right)
        raise TypeError(f"{node!r} is no part of an expression")

    def _index(self, name: str) -> int:
        return self._places.setdefault(name, len(self._places))

    def _text_test(self, node: TextTest) -> Evaluate:
        if not node.text:
            return lambda values: False
        evaluate = self.compile(node.operand)
        test, text, wanted = _TEXT_TESTS[node.word], node.text, not node.negated
        is_text = value_kind(node.operand) is Kind.TEXT

        def has(values: Values) -> bool:
            value = evaluate(values)
            return value is not None and is_text and test(value, text) is wanted

        return has

    def _ordered(self, sign: str, left: Node, right: Node) -> Evaluate:
        if isinstance(left, Literal) and isinstance(right, Property):
            return self._ordered(_MIRRORED[sign], right, left)
        order = _ORDERS[sign]
        if isinstance(left, Property) and isinstance(right, Literal) and right.kind in NUMBERS:
            return _compared_with(
                self._index(left.name), order, _NUMBER_OF_TEXT[right.kind], right.value
            )
        first, second = self.compile(left), self.compile(right)
        if value_kind(left) is Kind.TEXT and value_kind(right) is Kind.TEXT:
            return _compared_as_doubles(first, order, second)
        double = Kind.DOUBLE in (value_kind(left), value_kind(right))

        def compared(values: Values) -> bool | None:
            one = first(values)
            if one is None:
                return None
            other = second(values)
            if other is None:
                return None
            return order(float(one), float(other)) if double else order(one, other)

        return compared

    def _equal(self, left: Node, right: Node) -> Evaluate:
        if isinstance(left, Literal) and isinstance(right, Property) and left.kind in _TURNED:
            # But for an unknown side, which counts as such only on the left, = has no direction.
            return _false_without(self._index(right.name), self._equal(right, left))
        first, second = self.compile(left), self.compile(right)
        equal = _equality(value_kind(left), value_kind(right))
        if isinstance(left, Property) and isinstance(right, Literal):
            return _equals_constant(self._index(left.name), equal, right.value)

        def equals(values: Values) -> bool | None:
            one, other = first(values), second(values)
            if one is None:
                return True if other is None else None
            return other is not None and equal(one, other)

        return equals


def _equality(left: Kind, right: Kind) -> Callable[[Any, Any], bool]:
    """Returns how two values of these types, both there, are found equal."""
    if left is right or Kind.NULL in (left, right):
        return lambda one, other: bool(one == other)
    if left is Kind.BOOLEAN:
        return _never_compares if right is Kind.TEXT else _never_equal
    if right is Kind.BOOLEAN:
        if left is Kind.TEXT:
            return lambda one, other: java_boolean(one) is other
        return _never_equal
    if left is Kind.TEXT:
        number = _NUMBER_OF_TEXT[right]
        return lambda one, other: number(one) == other
    if right is Kind.TEXT:
        of_text = _NUMBER_OF_TEXT[left]
        return lambda one, other: bool(one == of_text(other))
    if Kind.DOUBLE in (left, right):
        return lambda one, other: float(one) == float(other)
    return lambda one, other: bool(one == other)


def _never_equal(one: Any, other: Any) -> bool:
    return False


def _never_compares(one: Any, other: Any) -> bool:
    raise EvaluationError


def _always_null(evaluate: Evaluate) -> Evaluate:
    def nothing(values: Values) -> None:
        evaluate(values)

    return nothing


def _is_true(evaluate: Evaluate) -> Evaluate:
    return lambda values: None if evaluate(values) is None else False


def _membership(index: int, texts: frozenset[str], negated: bool) -> Evaluate:
    def member(values: Values) -> bool | None:
        value = values[index]
        return None if value is None else (value in texts) is not negated

    return member


def _compared_with(
    index: int,
    order: Callable[[Any, Any], bool],
    number: Callable[[str], int | float],
    constant: Any,
) -> Evaluate:
    def compared(values: Values) -> bool | None:
        value = values[index]
        return None if value is None else order(number(value), constant)

    return compared


def _compared_as_doubles(
    first: Evaluate, order: Callable[[Any, Any], bool], second: Evaluate
) -> Evaluate:
    def compared(values: Values) -> bool | None:
        one = first(values)
        if one is None:
            return None
        other = second(values)
        if other is None:
            return None
        return order(double_order(java_double(one)), double_order(java_double(other)))

    return compared


def _equals_constant(index: int, equal: Callable[[Any, Any], bool], constant: Any) -> Evaluate:
    def equals(values: Values) -> bool | None:
        value = values[index]
        return None if value is None else equal(value, constant)

    def equals_text(values: Values) -> bool | None:
        value = values[index]
        return None if value is None else value == constant

    return equals_text if isinstance(constant, str) else equals


def _false_without(index: int, evaluate: Evaluate) -> Evaluate:
    return lambda values: False if values[index] is None else evaluate(values)


def _not(evaluate: Evaluate) -> Evaluate:
    def negation(values: Values) -> bool | None:
        value = evaluate(values)
        return None if value is None else not value

    return negation


def _and(operands: Sequence[Evaluate]) -> Evaluate:
    def conjunction(values: Values) -> bool | None:
        result: bool | None = True
        for evaluate in operands:
            value = evaluate(values)
            if value is None:
                result = None
            elif not value:
                return False
        return result

    return conjunction


def _or(operands: Sequence[Evaluate]) -> Evaluate:
    def disjunction(values: Values) -> bool | None:
        result: bool | None = False
        for evaluate in operands:
            value = evaluate(values)
            if value is None:
                result = None
            elif value:
                return True
        return result

    return disjunction
