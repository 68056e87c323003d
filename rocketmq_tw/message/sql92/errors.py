"""What an expression may not be."""

from __future__ import annotations

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
        """An equal one, without the frames that this one was raised through."""
        return ExpressionError(self.column, self._why)


class EvaluationError(Exception):
    """A message has values that cannot be compared as the expression wants it: it does not match,
    whatever the rest of the expression says."""
