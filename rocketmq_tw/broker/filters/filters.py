"""Makes the filter of a read: of its own expression, or of what its group subscribes to."""

from __future__ import annotations

from rocketmq_tw.broker.clients.registry import ConsumerGroup
from rocketmq_tw.broker.filters.compile_budget import CompileBudget
from rocketmq_tw.broker.filters.message_bits import MessageBits
from rocketmq_tw.broker.filters.table import FilterTable
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.message.names import RETRY_PREFIX
from rocketmq_tw.message.properties import RETRY_TOPIC, parse_properties
from rocketmq_tw.message.sql92 import (
    MAX_EXPRESSION,
    MAX_TESTS,
    Compiled,
    ExpressionError,
    check_expression_length,
    compile_expression,
)
from rocketmq_tw.message.tags import SQL92_TYPE, is_tag_type, parse_tag_expression, tag_match
from rocketmq_tw.store.interface import EVERY_MESSAGE, ExtraMatch, MessageFilter
from rocketmq_tw.wire.bodies.clients import SubscriptionData
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

#: The weight of a filter of retries: which expressions they meet is not known beforehand.
_HEAVIEST = 1 + MAX_TESTS // 16 + MAX_EXPRESSION // 128


class MessageFilters:
    """Makes filters; refuses with stock's codes what cannot be filtered by. Each method that makes
    one raises `BudgetSpent` where that must wait for a later turn of the reactor, so handlers that
    call it are wrapped with `budget.retrying`."""

    def __init__(
        self,
        config: BrokerConfig,
        table: FilterTable,
        budget: CompileBudget,
        bits: MessageBits | None,
    ) -> None:
        """`bits` makes and reads the bits that messages have; None where messages have none."""
        self._config = config
        self._table = table
        self._bits = bits
        self.budget = budget

    def of_expression(self, text: str | None, kind: str | None) -> MessageFilter:
        """Returns the filter of an expression that a request brings along: `kind` is TAG or SQL92,
        None means TAG. Raises `RequestError` where it is wrong."""
        if is_tag_type(kind):
            try:
                tags = parse_tag_expression(text)
            except ValueError as error:
                raise RequestError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error
            return MessageFilter(tag_match(tags.text, tags.codes))
        expression = self.parsed(text, kind)
        self.check_enabled(kind)
        return self._filter_by_properties(expression)

    def of_subscription(
        self, consumers: ConsumerGroup, wanted: SubscriptionData, version: int = 0
    ) -> MessageFilter:
        """Returns the filter of `wanted`, one of the subscriptions of a group. Raises
        `RequestError` where its expression is not kept, or is older than `version`."""
        if is_tag_type(wanted.expression_type):
            if wanted.class_filter_mode:
                return EVERY_MESSAGE
            return MessageFilter(consumers.wanted_tags(wanted.topic))
        self._admit(wanted.topic, consumers.name)
        known = self._table.get(wanted.topic, consumers.name)
        if known is None:
            raise self._not_kept(consumers.name, wanted)
        if known.data.client_version < version:
            raise RequestError(
                ResponseCode.FILTER_DATA_NOT_LATEST,
                f"the expression of {consumers.name} for {wanted.topic} is older than the pull's:"
                " send a heartbeat first",
            )
        self.check_enabled(wanted.expression_type)
        if wanted.class_filter_mode:
            return EVERY_MESSAGE
        if self._config.filter_support_retry and wanted.topic.startswith(RETRY_PREFIX):
            return self._of_retries(consumers.name)
        by_expression = self._filter_by_properties(known.expression)
        if self._bits is None:
            return by_expression
        return by_expression._replace(by_extra=self._bits.may_match(known))

    def by_extra(self, consumers: ConsumerGroup, topic: str) -> ExtraMatch:
        """Returns whether a message may match what a group subscribes to, by what the extension of
        its consume queue has of it."""
        wanted = consumers.subscriptions[topic]
        if is_tag_type(wanted.expression_type):
            match = consumers.wanted_tags(topic)
            if match is not None and not wanted.class_filter_mode:
                return lambda extra, position: match(extra.tags_code)
        else:
            known = self._table.get(topic, consumers.name)
            if known is not None and self._bits is not None and not wanted.class_filter_mode:
                return self._bits.may_match(known)
        return lambda extra, position: True

    def shown(self, topic: str, group: str) -> str:
        """Returns what a group filters a topic by, as JSON for administrators; `null`: nothing."""
        self._admit(topic, group)
        return self._table.shown(topic, group)

    def check_enabled(self, kind: str | None) -> None:
        """Raises `RequestError` where only tags may be filtered by (`enablePropertyFilter`)."""
        if not self._config.enable_property_filter:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"the broker does not filter by {kind} expressions: use tags, or set"
                " enablePropertyFilter=true",
            )

    def parsed(self, text: str | None, kind: str | None) -> Compiled:
        """Returns the compiled expression of a text; raises `RequestError` where it is wrong."""
        try:
            if kind != SQL92_TYPE:
                raise ExpressionError(1, f"{kind} expressions are unknown: use TAG or SQL92")
            if not text:
                raise ExpressionError(1, "it is empty")
            check_expression_length(text)
            self.budget.admit(text)
            return compile_expression(text)
        except ExpressionError as error:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"the {kind} expression, {error}"
            ) from error

    def _admit(self, topic: str, group: str) -> None:
        text = self._table.text_of(topic, group)
        if text:
            self.budget.admit(text)

    def _of_retries(self, group: str) -> MessageFilter:
        """Returns the filter of a retry topic: each message is asked what the group asks of the
        topic that it was sent to (`filterSupportRetry`)."""

        def matches(properties: bytes) -> bool:
            topic = parse_properties(properties).get(RETRY_TOPIC, "")
            known = self._table.get(topic, group)
            return known is None or known.expression.matches(properties)

        self.budget.admit_read(_HEAVIEST)
        return MessageFilter(by_properties=matches, weight=_HEAVIEST)

    def _filter_by_properties(self, expression: Compiled) -> MessageFilter:
        self.budget.admit_read(expression.weight)
        return MessageFilter(by_properties=expression.matches, weight=expression.weight)

    def _not_kept(self, group: str, wanted: SubscriptionData) -> RequestError:
        """Returns the refusal that says why the expression of a subscription is not in the table:
        it is wrong, or there was no room."""
        try:
            self.parsed(wanted.sub_string, wanted.expression_type)
            why = (
                "the filters of other groups leave no room for it: subscribe again later, or with a"
                " shorter one"
            )
        except RequestError as error:
            why = error.remark or ""
        return RequestError(
            ResponseCode.FILTER_DATA_NOT_EXIST,
            f"the expression of {group} for {wanted.topic} is not kept: {why}",
        )
