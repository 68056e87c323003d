"""SQL92 expressions over a message's properties: `compile_expression` makes one of text, and what
it gives is asked with the bytes of properties. Format and rules: docs/filters.md.
"""

from rocketmq_tw.message.sql92.compiled import (
    CHARACTERS_PER_TURN,
    COST_OF_EXPRESSION,
    Compiled,
    check_expression_length,
    compile_expression,
    is_remembered,
)
from rocketmq_tw.message.sql92.syntax import MAX_EXPRESSION, MAX_TESTS, ExpressionError

__all__ = [
    "CHARACTERS_PER_TURN",
    "COST_OF_EXPRESSION",
    "MAX_EXPRESSION",
    "MAX_TESTS",
    "Compiled",
    "ExpressionError",
    "check_expression_length",
    "compile_expression",
    "is_remembered",
]
