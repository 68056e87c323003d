"""Reads what a consumer wants of a topic: an expression over tags, or SQL92."""

from __future__ import annotations

from typing import NamedTuple

from rocketmq_tw.broker.filters.compile_budget import BudgetSpent, CompileBudget
from rocketmq_tw.message.sql92 import ExpressionError, compile_expression
from rocketmq_tw.message.tags import (
    SQL92_TYPE,
    SUBSCRIBE_ALL,
    TAG_TYPE,
    parse_tag_expression,
    wants_tag,
)
from rocketmq_tw.proxy.grpc.interfaces import ICall
from rocketmq_tw.proxy.messaging.statuses import StatusError
from rocketmq_tw.proxy.proto.messages import Code, FilterExpression, FilterType

#: Tags of one expression, and of all subscriptions of one consumer: each takes the reactor 10 µs.
MAX_TAGS = 4096


class WantedMessages(NamedTuple):
    """An expression as brokers get it. They decide by the hash codes of tags, which collide:
    `matches` is asked about what they give. Receives wait with it, so it is no more than its
    text."""

    type: str
    text: str

    def matches(self, tag: str | None) -> bool:
        """Returns whether a message with this tag is wanted; of SQL92 brokers have decided."""
        return self.type == SQL92_TYPE or wants_tag(self.text, tag)


def wanted_messages(expression: FilterExpression) -> WantedMessages:
    """Returns what an expression asks for, everything where it is empty; raises `StatusError`
    (ILLEGAL_FILTER_EXPRESSION) where it cannot be read."""
    text = expression.expression
    try:
        if expression.type == FilterType.SQL:
            compile_expression(text)
            return WantedMessages(SQL92_TYPE, text)
        if expression.type in (FilterType.TAG, FilterType.FILTER_TYPE_UNSPECIFIED):
            bars = text.count("||")
            if bars >= MAX_TAGS:
                raise ValueError(f"an expression of {bars + 1} tags: {MAX_TAGS} are the limit")
            return WantedMessages(TAG_TYPE, parse_tag_expression(text or SUBSCRIBE_ALL).text)
    except ExpressionError as error:
        raise StatusError(
            Code.ILLEGAL_FILTER_EXPRESSION, f"the SQL92 expression: {error}"
        ) from None
    except ValueError as error:
        raise StatusError(Code.ILLEGAL_FILTER_EXPRESSION, str(error)) from None
    raise StatusError(
        Code.ILLEGAL_FILTER_EXPRESSION, f"{expression.type} is no type of filters: use TAG or SQL"
    )


class Expressions:
    """Reads the expressions of calls, new ones of SQL92 a few in each turn of the reactor."""

    def __init__(self, budget: CompileBudget) -> None:
        self._budget = budget

    async def wanted(self, expression: FilterExpression, call: ICall) -> WantedMessages:
        """Returns what `wanted_messages` does, when it is the turn of the call's connection; raises
        `StatusError` where the call is over by then, too."""
        if expression.type == FilterType.SQL:
            await self._budget.admitted(expression.expression, call.address)
            if call.is_over:
                raise StatusError(Code.REQUEST_TIMEOUT, "the call is over")
        return wanted_messages(expression)

    def check(self, expression: FilterExpression) -> None:
        """Raises as `wanted_messages` does; SQL92 for which there is no time in this turn is left
        to the calls that ask for it."""
        if expression.type == FilterType.SQL:
            try:
                self._budget.admit(expression.expression)
            except BudgetSpent:
                return
        wanted_messages(expression)
