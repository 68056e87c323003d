"""Reads an expression by recursive descent, with the grammar and the checks of stock's parser.

As in stock, an expression ends where no more of it can follow: `a > 1 b` is `a > 1`.

Grammar: docs/filters.md.
"""

from __future__ import annotations

import math

from rocketmq_tw.message.sql92.lexer import Lexer, Token, TokenKind, shortened
from rocketmq_tw.message.sql92.numbers import INT_RANGE, LONG_RANGE
from rocketmq_tw.message.sql92.syntax import (
    MAX_DEPTH,
    MAX_TESTS,
    NUMBERS,
    And,
    Comparison,
    ExpressionError,
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
    is_condition,
)

_VALUE = "a property, a string in single quotes, a number, TRUE, FALSE, NULL, NOT or ("
_TEXT_WORDS = ("CONTAINS", "STARTSWITH", "ENDSWITH")
_ORDER_SIGNS = (">", ">=", "<", "<=")
_CONSTANTS = {"TRUE": True, "FALSE": False, "NULL": None}


class Parser:
    """One use: `parse` gives the tree; then `tests` says how many comparisons and the like it has,
    and `rest` the column of what was passed over behind it, 0 where nothing was."""

    def __init__(self, text: str) -> None:
        self._lexer = Lexer(text)
        self.tests = 0
        #: Characters of the texts that properties are searched for.
        self.searched = 0
        self._depth = 0
        self.rest = 0

    def parse(self) -> Node:
        """Raises `ExpressionError`."""
        column = self._lexer.peek().column
        node = self._condition(self._boolean("OR"), column)
        behind = self._lexer.peek()
        self.rest = 0 if behind.kind is TokenKind.END else behind.column
        return node

    # Conditions

    def _boolean(self, word: str) -> Node:
        """Returns what OR joins, or what AND does; in one method, to need no deeper a stack than
        two."""
        is_or = word == "OR"
        column = self._lexer.peek().column
        left = self._boolean("AND") if is_or else self._equality()
        if not self._accept(word):
            return left
        operands = [self._condition(left, column)]
        while True:
            column = self._lexer.peek().column
            operand = self._boolean("AND") if is_or else self._equality()
            operands.append(self._condition(operand, column))
            if not self._accept(word):
                return Or(tuple(operands)) if is_or else And(tuple(operands))

    def _equality(self) -> Node:
        column = self._lexer.peek().column
        left = self._comparison()
        chained = 0
        while True:
            token = self._lexer.peek()
            if self._accept("IS"):
                negated = self._accept("NOT")
                self._expect("NULL", "NULL" if negated else "NULL or NOT NULL")
                left = IsNull(left)
                if negated:
                    left = Not(left)
            elif token.text in ("=", "<>") and token.kind is TokenKind.SIGN:
                self._lexer.next()
                at = self._lexer.peek().column
                right = self._comparison()
                _check_equal(left, column, right, at)
                left = Comparison("=", left, right)
                if token.text == "<>":
                    left = Not(left)
            else:
                self._depth -= chained
                return left
            self._count(token.column)
            self._enter(token)
            chained += 1

    def _comparison(self) -> Node:
        column = self._lexer.peek().column
        left = self._unary()
        chained = 0
        while True:
            token = self._lexer.peek()
            if token.kind is TokenKind.SIGN and token.text in _ORDER_SIGNS:
                left = self._ordered(left, column)
            elif token.kind is TokenKind.KEYWORD and token.text in (
                *_TEXT_WORDS,
                "BETWEEN",
                "IN",
                "NOT",
            ):
                left = self._word_operator(left, column)
            else:
                self._depth -= chained
                return left
            self._count(token.column)
            self._enter(token)
            chained += 1

    def _ordered(self, left: Node, column: int) -> Node:
        sign = self._lexer.next().text
        at = self._lexer.peek().column
        right = self._unary()
        _check_ordered(left, column)
        _check_ordered(right, at)
        return Comparison(sign, left, right)

    def _word_operator(self, left: Node, column: int) -> Node:
        """Returns what a word says of `left`: CONTAINS and its kind, BETWEEN or IN, maybe behind
        NOT."""
        negated = self._accept("NOT")
        token = self._lexer.next()
        word = token.text if token.kind is TokenKind.KEYWORD else ""
        if word in _TEXT_WORDS:
            text = self._string()
            self.searched += len(text)
            return TextTest(word, left, text, negated)
        if word == "BETWEEN":
            return self._between(left, column, negated)
        if word == "IN":
            return self._in(left, column, negated)
        raise _expected(token, "CONTAINS, STARTSWITH, ENDSWITH, BETWEEN or IN behind NOT")

    def _between(self, value: Node, column: int, negated: bool) -> Node:
        at = self._lexer.peek().column
        low = self._unary()
        self._expect("AND", "AND between the two limits of BETWEEN")
        high_at = self._lexer.peek().column
        high = self._unary()
        for node, place in ((value, column), (low, at), (high, high_at)):
            _check_ordered(node, place)
        if negated:
            return Or((Comparison("<", value, low), Comparison(">", value, high)))
        if _is_constant(low) and _is_constant(high) and _is_above(low, high):
            raise ExpressionError(at, "the lower limit of BETWEEN is above the upper one")
        return And((Comparison(">=", value, low), Comparison("<=", value, high)))

    def _in(self, value: Node, column: int, negated: bool) -> Node:
        if not isinstance(value, Property):
            raise ExpressionError(column, "expected a property in front of IN")
        self._expect("(", "( and strings in single quotes behind IN")
        texts = [self._string()]
        while self._accept(","):
            texts.append(self._string())
        self._expect(")", ", or ) in the list behind IN")
        return ListTest(value.name, frozenset(texts), negated)

    # Values

    def _unary(self) -> Node:
        token = self._lexer.peek()
        if not (self._accept("+") or self._accept("-") or self._accept("NOT")):
            return self._primary()
        self._enter(token)
        column = self._lexer.peek().column
        operand = self._unary()
        self._depth -= 1
        if token.text == "NOT":
            return Not(self._condition(operand, column))
        return operand if token.text == "+" else _negated(operand)

    def _primary(self) -> Node:
        token = self._lexer.peek()
        if token.kind is TokenKind.SIGN and token.text == "(":
            self._enter(token)
            self._lexer.next()
            inner = self._boolean("OR")
            self._expect(")", ") or a further part of the condition in ( )")
            self._depth -= 1
            return inner
        self._lexer.next()
        match token.kind:
            case TokenKind.NAME:
                return Property(token.text)
            case TokenKind.STRING:
                return Literal(token.text, Kind.TEXT)
            case TokenKind.DECIMAL:
                return _decimal(token)
            case TokenKind.FLOAT:
                return _double(token)
            case TokenKind.KEYWORD if token.text in _CONSTANTS:
                value = _CONSTANTS[token.text]
                return Literal(value, Kind.NULL if value is None else Kind.BOOLEAN)
        raise _expected(token, _VALUE)

    def _string(self) -> str:
        token = self._lexer.next()
        if token.kind is not TokenKind.STRING:
            raise _expected(token, "a string in single quotes")
        return token.text

    # Words

    def _accept(self, text: str) -> bool:
        """Takes the next word where it is this keyword or sign."""
        token = self._lexer.peek()
        if token.text == text and token.kind in (TokenKind.KEYWORD, TokenKind.SIGN):
            self._lexer.next()
            return True
        return False

    def _expect(self, text: str, what: str) -> None:
        if not self._accept(text):
            raise _expected(self._lexer.peek(), what)

    def _condition(self, node: Node, column: int) -> Node:
        if is_condition(node):
            return node
        if isinstance(node, Property):
            self._count(column)
            return IsTrue(node)
        raise ExpressionError(column, "expected a condition, not a value alone")

    # Limits

    def _count(self, column: int) -> None:
        self.tests += 1
        if self.tests > MAX_TESTS:
            raise ExpressionError(
                column, f"more than {MAX_TESTS} tests: use IN (…) where one property has many"
            )

    def _enter(self, token: Token) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ExpressionError(
                token.column, f"more than {MAX_DEPTH} levels inside of each other"
            )


def _expected(token: Token, what: str) -> ExpressionError:
    return ExpressionError(token.column, f"expected {what}, found {token}")


def _is_constant(node: Node) -> bool:
    return isinstance(node, Literal) and not node.signed


def _check_ordered(node: Node, column: int) -> None:
    """Checks that both sides have an order, as numbers do, and properties that may be numbers."""
    if is_condition(node) or (isinstance(node, Literal) and node.kind is Kind.TEXT):
        raise ExpressionError(
            column, "expected a number or a property: nothing else is compared by <, >, BETWEEN"
        )


def _check_equal(left: Node, column: int, right: Node, at: int) -> None:
    for node, place in ((left, column), (right, at)):
        if isinstance(node, Literal) and node.kind is Kind.NULL:
            raise ExpressionError(place, "NULL equals nothing: use IS NULL or IS NOT NULL")
    if not (isinstance(left, Literal) and isinstance(right, Literal)):
        return
    if left.kind is Kind.BOOLEAN and right.kind is not Kind.BOOLEAN and not right.signed:
        raise ExpressionError(at, "expected TRUE, FALSE or a property to compare with a boolean")


def _is_above(low: Node, high: Node) -> bool:
    assert isinstance(low, Literal) and isinstance(high, Literal)
    first, last = low.value, high.value
    if Kind.DOUBLE in (low.kind, high.kind):
        return float(first or 0) > float(last or 0)
    return int(first or 0) > int(last or 0)


def _negated(operand: Node) -> Node:
    if not (isinstance(operand, Literal) and operand.kind in NUMBERS):
        return Nothing(operand)
    assert isinstance(operand.value, (int, float))
    return Literal(-operand.value, operand.kind, signed=True)


def _decimal(token: Token) -> Literal:
    digits = token.text.rstrip("lL")
    if len(digits) > 19 or int(digits) not in LONG_RANGE:
        raise ExpressionError(
            token.column, f"{shortened(token.text)} is too large: at most {LONG_RANGE[-1]}"
        )
    number = int(digits)
    return Literal(number, Kind.INT if number in INT_RANGE else Kind.LONG)


def _double(token: Token) -> Literal:
    number = float(token.text)
    if math.isinf(number):
        raise ExpressionError(token.column, f"{shortened(token.text)} is too large for a double")
    if number == 0:
        # Stock's smallest constant is the smallest double above 0.
        raise ExpressionError(
            token.column, f"{shortened(token.text)} is 0 for a double: write 0 without a point"
        )
    return Literal(number, Kind.DOUBLE)
