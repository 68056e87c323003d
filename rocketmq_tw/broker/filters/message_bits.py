"""Computes which groups' expressions a message matches, as the bits of a Bloom filter.

They are calculated when the message comes into its consume queue, whose extension keeps them
(docs/formats/consumequeue-ext.md), so that later reads need not ask its properties.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.filters.table import FilterTable, GroupFilter
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.message.properties import PropertiesMatch
from rocketmq_tw.store.interface import ExtraMatch
from rocketmq_tw.store.queue_extension import UnitExtra

#: Expressions of the usual weight that one message is asked by at most: some 250 us.
_MOST_ASKED = 256
#: Characters of all compiled expressions that are kept.
_MOST_CHARACTERS = 1 << 20

log = Logger()


class _Asked(NamedTuple):
    """The questions to messages of a topic: the expressions of its groups, each with its bits as a
    number; None where they cost too much, so that messages get no bits."""

    expressions: tuple[tuple[PropertiesMatch, int], ...] | None
    characters: int = 0


class MessageBits:
    """Makes the bits of messages. The expressions of a topic are compiled when its first message
    comes, and again where they changed; until they are, its messages get no bits, and reads ask
    the properties of each."""

    def __init__(
        self,
        config: BrokerConfig,
        table: FilterTable,
        in_slices: Callable[[Iterator[None]], Deferred[Any]],
    ) -> None:
        self._config = config
        self._table = table
        self._in_slices = in_slices
        self._most_asked = min(2 * config.expect_consumer_num_use_filter, _MOST_ASKED)
        self._size = table.bloom.bits // 8
        self._topics: dict[str, _Asked] = {}
        self._characters = 0
        #: Topic -> a mark for the compilation of its expressions that is under way.
        self._preparing: dict[str, object] = {}
        #: Where the log ended when the broker started. A kill may have taken what groups asked
        #: last, with whose bits messages were stored by then; their times say nothing where the
        #: clock was set back.
        self.believed_from = 0
        table.changes.add(self._changed)

    def of(self, topic: str, properties: bytes, store_timestamp: int) -> bytes:
        """Returns the bits of a message; empty where no group filters its topic by an
        expression."""
        table = self._table
        table.newest_stored = max(table.newest_stored, store_timestamp)
        if not (self._config.enable_calc_filter_bit_map and table.of_topic(topic)):
            return b""
        asked = self._topics.get(topic)
        if asked is None:
            self._prepare(topic)
            return b""
        if asked.expressions is None:
            return b""
        bits = 0
        for matches, own in asked.expressions:
            if matches(properties):
                bits |= own
        return bits.to_bytes(self._size, "little")

    def may_match(self, group: GroupFilter) -> ExtraMatch:
        """Returns a test whether a message may match the expression of a group, by its bits. It
        always may where it has none of this size, or was stored before the group subscribed or the
        broker started."""
        own, size = self._own_bits(group), self._size
        known_from, believed_from = group.data.born_time, self.believed_from

        def matches(extra: UnitExtra, position: int) -> bool:
            return (
                position < believed_from
                or extra.store_timestamp <= known_from
                or len(extra.bits) != size
                or int.from_bytes(extra.bits, "little") & own == own
            )

        return matches

    def _own_bits(self, group: GroupFilter) -> int:
        data = group.data.bloom_filter_data
        assert data is not None, "each entry of the table has bits"
        return int.from_bytes(self._table.bloom.bit_map(data.bit_pos), "little")

    def _changed(self, topic: str) -> None:
        """Forgets what was compiled for a topic, whose expressions changed."""
        self._preparing.pop(topic, None)
        asked = self._topics.pop(topic, None)
        if asked is not None:
            self._characters -= asked.characters

    def _prepare(self, topic: str) -> None:
        if topic not in self._preparing:
            self._preparing[topic] = mark = object()
            self._in_slices(self._steps(topic, mark)).addErrback(self._failed, topic)

    def _failed(self, reason: Failure, topic: str) -> None:
        log.failure("messages of {topic!r} get no bits of filters", reason, topic=topic)
        self._topics[topic] = _Asked(None)
        self._preparing.pop(topic, None)

    def _steps(self, topic: str, mark: object) -> Iterator[None]:
        """Compiles the expressions one by one, unless they change meanwhile; none in the first
        step, since a message is being dispatched then."""
        yield
        expressions: list[tuple[PropertiesMatch, int]] = []
        weight = characters = 0
        groups = [group.data.consumer_group for group in self._table.of_topic(topic)]
        for name in groups[: self._most_asked + 1]:
            # A wrong expression is removed here, which is a change.
            group = self._table.get(topic, name)
            if self._preparing.get(topic) is not mark or group is None:
                return
            compiled = group.expression
            weight += compiled.weight
            characters += len(compiled.text)
            expressions.append((compiled.matches, self._own_bits(group)))
            yield
        if self._preparing.get(topic) is not mark:
            return
        del self._preparing[topic]
        if weight > self._most_asked or self._characters + characters > _MOST_CHARACTERS:
            log.warn(
                "messages of {topic!r} get no bits of filters: its groups' expressions take too"
                " long (raise expectConsumerNumUseFilter), or the expressions of all topics have"
                " too many characters together",
                topic=topic,
            )
            self._topics[topic] = _Asked(None)
            return
        self._characters += characters
        self._topics[topic] = _Asked(tuple(expressions), characters)
