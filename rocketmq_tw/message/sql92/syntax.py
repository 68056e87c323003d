"""The pieces of an expression, as the parser makes and the compiler takes them, its limits, and the
errors of one that is none.

Grammar: docs/filters.md.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

#: Characters of an expression; a longer one takes too long to read.
MAX_EXPRESSION = 8_192
#: Comparisons and other tests of one expression. Each message is asked all of them at worst; a
#: list behind IN counts as one.
MAX_TESTS = 256
#: Parentheses, NOTs and signs inside of each other.
MAX_DEPTH = 100


class ExpressionError(ValueError):
    """An expression that is none; says in which column, counted from 1, and what was expected."""

    def __init__(self, column: int, why: str) -> None:
        super().__init__(f"column {column}: {why}")
        self.column = column
        self._why = why

    def copy(self) -> ExpressionError:
        """Returns an equal one, without the frames that this one was raised through."""
        return ExpressionError(self.column, self._why)


class EvaluationError(Exception):
    """A message has values that cannot be compared as the expression wants it: it does not match,
    whatever the rest of the expression says."""


class Kind(Enum):
    """Java's type of a value, which decides how two are compared."""

    TEXT = auto()
    INT = auto()
    LONG = auto()
    DOUBLE = auto()
    BOOLEAN = auto()
    #: Never a value.
    NULL = auto()


NUMBERS = frozenset((Kind.INT, Kind.LONG, Kind.DOUBLE))


class Literal(NamedTuple):
    """A constant; `signed` says that it stood behind a minus."""

    value: str | int | float | bool | None
    kind: Kind
    signed: bool = False


class Property(NamedTuple):
    """A property's value: a text, or nothing where the message does not have it."""

    name: str


class Nothing(NamedTuple):
    """The negative of something that is no number: never a value."""

    operand: Node


class IsTrue(NamedTuple):
    """A property that stands where a condition is wanted: false, as a text is no boolean."""

    operand: Property


class Comparison(NamedTuple):
    """`sign` is =, <, <=, > or >=."""

    sign: str
    left: Node
    right: Node


class IsNull(NamedTuple):
    operand: Node


class ListTest(NamedTuple):
    """IN, and with `negated` NOT IN."""

    name: str
    texts: frozenset[str]
    negated: bool


class TextTest(NamedTuple):
    """`word` is CONTAINS, STARTSWITH or ENDSWITH."""

    word: str
    operand: Node
    text: str
    negated: bool


class Not(NamedTuple):
    operand: Node


class And(NamedTuple):
    operands: tuple[Node, ...]


class Or(NamedTuple):
    operands: tuple[Node, ...]


Node = (
    Literal
    | Property
    | Nothing
    | IsTrue
    | Comparison
    | IsNull
    | ListTest
    | TextTest
    | Not
    | And
    | Or
)

CONDITIONS = (IsTrue, Comparison, IsNull, ListTest, TextTest, Not, And, Or)


def value_kind(node: Node) -> Kind:
    """Returns the type that the values of a node have, where it has one."""
    if isinstance(node, Literal):
        return node.kind
    if isinstance(node, Property):
        return Kind.TEXT
    return Kind.NULL if isinstance(node, Nothing) else Kind.BOOLEAN


def is_condition(node: Node) -> bool:
    """Returns whether it is true, false or unknown; a constant TRUE, FALSE or NULL is too."""
    if isinstance(node, Literal):
        return node.kind in (Kind.BOOLEAN, Kind.NULL)
    return isinstance(node, CONDITIONS)
