"""What a consumer wants of a topic: an expression over tags, or SQL92."""

from __future__ import annotations

from typing import NamedTuple

from rocketmq_tw.message.sql92 import ExpressionError, compile_expression
from rocketmq_tw.message.tags import (
    SQL92_TYPE,
    SUBSCRIBE_ALL,
    TAG_TYPE,
    TagExpression,
    parse_tag_expression,
)
from rocketmq_tw.proxy.messaging.statuses import StatusError
from rocketmq_tw.proxy.proto.messaging_pb2 import Code, FilterExpression, FilterType


class WantedMessages(NamedTuple):
    """An expression as brokers get it. They decide by the hash codes of tags, which collide:
    `matches` is asked about what they give."""

    type: str
    text: str
    tags: TagExpression | None

    def matches(self, tag: str | None) -> bool:
        """Returns whether a message with this tag is wanted; of SQL92 brokers have decided."""
        return self.tags is None or self.tags.matches(tag)


def wanted_messages(expression: FilterExpression) -> WantedMessages:
    """Returns what an expression asks for, everything where it is empty; raises `StatusError`
    (ILLEGAL_FILTER_EXPRESSION) where it cannot be read."""
    text = expression.expression
    try:
        if expression.type == FilterType.SQL:
            compile_expression(text)
            return WantedMessages(SQL92_TYPE, text, None)
        if expression.type in (FilterType.TAG, FilterType.FILTER_TYPE_UNSPECIFIED):
            tags = parse_tag_expression(text or SUBSCRIBE_ALL)
            return WantedMessages(TAG_TYPE, tags.text, tags)
    except ExpressionError as error:
        raise StatusError(
            Code.ILLEGAL_FILTER_EXPRESSION, f"the SQL92 expression: {error}"
        ) from None
    except ValueError as error:
        raise StatusError(Code.ILLEGAL_FILTER_EXPRESSION, str(error)) from None
    raise StatusError(
        Code.ILLEGAL_FILTER_EXPRESSION, f"{expression.type} is no type of filters: use TAG or SQL"
    )
