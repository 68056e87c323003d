"""The table of what groups filter topics by: `config/consumerFilter.json` in stock's form
(docs/formats/config-files.md).

Heartbeats bring the expressions. They outlive the consumers for a day, so that a group that comes
back is found again. Of two versions of a subscription the newer one counts, as in stock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from twisted.logger import Logger

from rocketmq_tw.broker.filters.bloom import BloomFilter
from rocketmq_tw.broker.tables.versioned import TableFile
from rocketmq_tw.broker.tables.write_behind import WriteBehindTable
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.message.sql92 import (
    Compiled,
    ExpressionError,
    check_expression_length,
    compile_expression,
)
from rocketmq_tw.message.tags import SQL92_TYPE, is_tag_type
from rocketmq_tw.runtime.listeners import Listeners
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.bodies.base import decode_body, encode_body
from rocketmq_tw.wire.bodies.clients import SubscriptionData
from rocketmq_tw.wire.bodies.groups import (
    ConsumerFilterData,
    ConsumerFilterTable,
    FilterDataOfTopic,
)

#: Bytes that all entries together may take, roughly.
_MAX_SIZE = 32 * 1024 * 1024
#: Milliseconds before the start at which consumers count as gone that the file shows as present.
_LEFT_BEFORE_START_MS = 30_000
#: Expressions of one heartbeat that the log tells of, each by itself.
MOST_TOLD = 10
#: Bytes that an entry takes beside its texts, roughly.
_ENTRY_SIZE = 1024

log = Logger()


class GroupFilter:
    """One group's expression for one topic; `data` is what the file has of it. `checked`: it was
    compiled once and is right. That is done when it is first asked for, or a little later, since
    one heartbeat may bring many."""

    __slots__ = ("checked", "data")

    def __init__(self, data: ConsumerFilterData) -> None:
        self.data = data
        self.checked = False

    @property
    def expression(self) -> Compiled:
        """The compiled expression, which is remembered for some time; raises `ExpressionError`
        where it is wrong."""
        return compile_expression(self.data.expression or "")

    @property
    def size(self) -> int:
        """Bytes that it takes in memory, roughly."""
        data = self.data
        expression = data.expression or ""
        return _ENTRY_SIZE + 4 * len(expression) + len(data.topic) + len(data.consumer_group)


class FilterTable(WriteBehindTable):
    """(topic, group) → the expression by which the group filters the topic. `changes` tells of each
    topic of which a group's expression was added, changed or removed."""

    def __init__(
        self,
        config: BrokerConfig,
        file: TableFile,
        now_ms: Callable[[], int],
        max_size: int = _MAX_SIZE,
    ) -> None:
        super().__init__(file.write)
        self._config = config
        self._file = file
        self._now_ms = now_ms
        self._room = max_size
        self.bloom = BloomFilter(
            config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter
        )
        self._topics: dict[str, dict[str, GroupFilter]] = {}
        self._topics_of: dict[str, set[str]] = {}
        #: (topic, group) of those whose consumers left, the first to leave in front.
        self._dead: dict[tuple[str, str], GroupFilter] = {}
        #: Those whose expression nobody has compiled yet, by topic and group.
        self._unchecked: dict[tuple[str, str], GroupFilter] = {}
        self.changes: Listeners[str] = Listeners("an expression of a group changed")
        #: Expressions of the present heartbeat, or of the file, that were added or refused.
        self._news = 0
        #: Store time in ms of the newest message that came into its queue. The bits of messages up
        #: to it say nothing of expressions that are added later.
        self.newest_stored = 0

    def get(self, topic: str, group: str) -> GroupFilter | None:
        """Returns the entry of a group for a topic, whether its consumers are connected or gone;
        None where there is none, or a wrong expression, which is removed."""
        known = self._find(topic, group)
        if known is None or known.checked or self._check(known):
            return known
        return None

    def _find(self, topic: str, group: str) -> GroupFilter | None:
        return self._topics.get(topic, {}).get(group)

    def text_of(self, topic: str, group: str) -> str | None:
        """Returns the text of the expression that `get` would compile, right or wrong."""
        known = self._find(topic, group)
        return None if known is None else known.data.expression

    def check(self) -> Iterator[None]:
        """Removes wrong expressions; a step for each that was not checked before."""
        while self._unchecked:
            key = next(iter(self._unchecked))
            known = self._unchecked.pop(key)
            if not known.checked:
                self._check(known)
                yield

    def of_topic(self, topic: str) -> Collection[GroupFilter]:
        """Returns the entries of all groups for a topic."""
        return self._topics.get(topic, {}).values()

    def shown(self, topic: str, group: str) -> str:
        """Returns the entry of a group for a topic as JSON for administrators; `null`: there is
        none."""
        known = self.get(topic, group)
        if known is None:
            return "null"
        known.data.dead = known.data.dead_time >= known.data.born_time
        return msgspec.json.format(encode_body(known.data), indent=4).decode()

    # Consumers come and go

    def subscribed(self, group: str, wanted: Iterable[SubscriptionData]) -> None:
        """Takes over all subscriptions of a consumer of the group; those that it does not have any
        more count as left."""
        topics = self._topics_of.get(group)
        named = set()
        self._news = 0
        for subscription in wanted:
            named.add(subscription.topic)
            if not is_tag_type(subscription.expression_type) and subscription.sub_string:
                self._register(group, subscription, subscription.sub_string)
        if topics:
            for topic in topics - named:
                self._mark_dead(self._topics[topic][group])
        if self._news > MOST_TOLD:
            log.info(
                "group {group!r} has {count} more expressions that are new or wrong",
                group=group,
                count=self._news - MOST_TOLD,
            )

    def _is_told(self) -> bool:
        """Returns whether the log tells of one more expression."""
        self._news += 1
        return self._news <= MOST_TOLD

    def left(self, group: str) -> None:
        """Notes that the last consumer of the group is gone."""
        for topic in self._topics_of.get(group, ()):
            self._mark_dead(self._topics[topic][group])

    def _register(self, group: str, wanted: SubscriptionData, expression: str) -> None:
        known = self._find(wanted.topic, group)
        if known is None:
            self._add_new(group, wanted, expression)
            return
        data = known.data
        if wanted.sub_version < data.client_version:
            return
        changed = (data.expression, data.expression_type) != (expression, wanted.expression_type)
        if wanted.sub_version > data.client_version:
            self._dirty = True
            if changed:
                # What was asked before must not go on where the new one is wrong.
                self._remove(known)
                self._add_new(group, wanted, expression)
                return
            data.client_version = wanted.sub_version
        if data.dead_time >= data.born_time:
            data.dead_time = 0
            self._dead.pop((data.topic, group), None)
            self._dirty = True

    def _add_new(self, group: str, wanted: SubscriptionData, expression: str) -> None:
        data = ConsumerFilterData(
            bloom_filter_data=self.bloom.data_of(group, wanted.topic),
            born_time=max(self._now_ms(), self.newest_stored),
            client_version=wanted.sub_version,
            consumer_group=group,
            expression=expression,
            expression_type=wanted.expression_type,
            topic=wanted.topic,
        )
        if self._add(GroupFilter(data)) and self._is_told():
            log.info(
                "group {group!r} filters {topic!r} by {expression!r}",
                group=group,
                topic=wanted.topic,
                expression=expression[:200],
            )

    def _check(self, known: GroupFilter) -> bool:
        """Returns whether the expression is right; it is removed where it is not."""
        data = known.data
        try:
            compiled = known.expression
        except ExpressionError as error:
            self._remove(known)
            self._log_wrong(data, error)
            return False
        known.checked = True
        if compiled.rest:
            log.warn(
                "group {group!r} filters {topic!r} by an expression that ends before column {rest},"
                " and what follows is left out: {expression!r}",
                group=data.consumer_group,
                topic=data.topic,
                rest=compiled.rest,
                expression=compiled.text[:200],
            )
        return True

    def _log_wrong(self, data: ConsumerFilterData, error: ExpressionError) -> None:
        log.warn(
            "group {group!r} filters {topic!r} by what is no expression: {error}",
            group=data.consumer_group,
            topic=data.topic,
            error=error,
        )

    # The entries

    def _add(self, made: GroupFilter) -> bool:
        """Returns whether the entry was added: there is room for it, and its text is not too
        long."""
        data = made.data
        try:
            if data.expression_type != SQL92_TYPE:
                raise ExpressionError(1, f"{data.expression_type} is unknown: use TAG or SQL92")
            check_expression_length(data.expression or "")
        except ExpressionError as error:
            if self._is_told():
                self._log_wrong(data, error)
            return False
        while self._room < made.size and self._dead:
            self._remove(next(iter(self._dead.values())))
        if self._room < made.size:
            if self._is_told():
                log.warn(
                    "no room for the expression of group {group!r} for {topic!r}: the expressions"
                    " of all groups take {size} bytes",
                    group=data.consumer_group,
                    topic=data.topic,
                    size=_MAX_SIZE,
                )
            return False
        self._room -= made.size
        self._topics.setdefault(data.topic, {})[data.consumer_group] = made
        self._topics_of.setdefault(data.consumer_group, set()).add(data.topic)
        self._unchecked[data.topic, data.consumer_group] = made
        self._changed(data.topic)
        return True

    def _remove(self, known: GroupFilter) -> None:
        topic, group = known.data.topic, known.data.consumer_group
        self._room += known.size
        self._dead.pop((topic, group), None)
        self._unchecked.pop((topic, group), None)
        groups, topics = self._topics[topic], self._topics_of[group]
        del groups[group]
        topics.remove(topic)
        if not groups:
            del self._topics[topic]
        if not topics:
            del self._topics_of[group]
        self._changed(topic)

    def _changed(self, topic: str) -> None:
        self._dirty = True
        self.changes.tell(topic)

    def _mark_dead(self, known: GroupFilter) -> None:
        data = known.data
        if data.dead_time < data.born_time:
            # A clock that was set back must not bring it to life.
            data.dead_time = max(self._now_ms(), data.born_time)
            self._dead[data.topic, data.consumer_group] = known
            self._dirty = True

    def forget_dead(self) -> None:
        """Removes entries whose consumers have been gone for `filterDataCleanTimeSpan`."""
        latest = self._now_ms() - self._config.filter_data_clean_time_span
        while self._dead:
            known = next(iter(self._dead.values()))
            if known.data.dead_time > latest:
                return
            self._remove(known)

    # The file

    def load(self) -> None:
        """Takes over the entries of the file; raises what reading it raises where it is damaged."""
        table = self._file.read(lambda data: decode_body(ConsumerFilterTable, data))
        if table is None:
            return
        found = [
            data
            for of_topic in table.filter_data_by_topic.values()
            for data in of_topic.group_filter_data.values()
        ]
        if not all(self.bloom.is_own(data.bloom_filter_data) for data in found):
            log.info(
                "{count} expressions of groups are dropped, since expectConsumerNumUseFilter or"
                " maxErrorRateOfBloomFilter changed: consumers tell them again",
                count=len(found),
            )
            return
        before = self._now_ms() - _LEFT_BEFORE_START_MS
        for data in found:
            if not data.dead_time:
                data.dead_time = max(before, data.born_time)
        for data in sorted(found, key=lambda data: data.dead_time):
            self._take_over(data)
        self._dirty = False

    def _take_over(self, data: ConsumerFilterData) -> None:
        made = GroupFilter(data)
        if self._add(made):
            self._dead[data.topic, data.consumer_group] = made

    def pending_write(self) -> Callable[[], bytes] | None:
        self.forget_dead()
        return super().pending_write()

    def _encoder(self) -> Callable[[], bytes]:
        return self.encode

    def encode(self) -> bytes:
        """Returns the file's bytes. May be called in any thread, also while the table changes."""
        topics = {}
        for topic, groups in list(self._topics.items()):
            of_topic = FilterDataOfTopic(topic=topic)
            for group, known in list(groups.items()):
                known.data.dead = known.data.dead_time >= known.data.born_time
                of_topic.group_filter_data[group] = known.data
            topics[topic] = of_topic
        return encode_body(ConsumerFilterTable(filter_data_by_topic=topics))
