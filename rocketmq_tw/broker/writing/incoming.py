"""Counts how many messages came into each topic, and of which type, as stock 5.3.3's
`rocketmq_messages_in_total` and `rocketmq_throughput_in_total`.

Counted is what is stored here for producers, and what the broker delivers itself: delayed and timed
messages, and those of transactions. Where it is counted its type is known, and not any more where
a message becomes readable. As in stock a delayed message counts in the topic that it waits in too,
and topics of retries and dead letters count nothing: what goes there came before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from twisted.internet.defer import Deferred
from zope.interface import implementer

from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.broker.writing.sink import IMessageSink, PutResult
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.names import DLQ_PREFIX, RETRY_PREFIX
from rocketmq_tw.message.types import MESSAGE_TYPES
from rocketmq_tw.metrics.instruments import MAX_SERIES
from rocketmq_tw.store.interface import Appended

#: Messages for these topics were in another one before.
RETURN_PREFIXES = (RETRY_PREFIX, DLQ_PREFIX)


class TopicAndType(NamedTuple):
    """A topic, and a type of `MESSAGE_TYPES`."""

    topic: str
    type: str


class Incoming:
    """Counts messages and their bytes in the log, by topic and type."""

    def __init__(self) -> None:
        #: Type, then topic, which is found faster than a pair.
        self._totals: dict[str, dict[str, list[int]]] = {each: {} for each in MESSAGE_TYPES}
        self._others = [0, 0]

    def count(self, topic: str, type_: str, messages: int, appended: Appended) -> None:
        """Counts messages of a type that were appended together to `topic`."""
        total = self._totals[type_].get(topic)
        if total is None:
            total = self._add(topic, type_)
        total[0] += messages
        total[1] += appended.end_offset - appended.physical_offset

    def forget(self, topics: Iterable[str]) -> None:
        """Ends the series of topics that were removed; one that is made again counts from 0."""
        for topic in topics:
            for totals in self._totals.values():
                totals.pop(topic, None)

    def totals(self) -> Iterator[tuple[TopicAndType | None, int, int]]:
        """Yields messages and bytes of each topic and type; last those of None, for what has no
        series of its own, where there are any."""
        for type_, totals in self._totals.items():
            for topic, (messages, size) in list(totals.items()):
                yield TopicAndType(topic, type_), messages, size
        messages, size = self._others
        if messages:
            yield None, messages, size

    def _add(self, topic: str, type_: str) -> list[int]:
        if sum(map(len, self._totals.values())) >= MAX_SERIES:
            return self._others
        return self._totals[type_].setdefault(topic, [0, 0])


@implementer(IMessageSink)
class CountedSink:
    """Puts messages of one type into `sink`, and counts those that a master's own log takes: what
    another broker is sent counts there."""

    def __init__(
        self, sink: IMessageSink, role: RoleHolder, incoming: Incoming, type_: str
    ) -> None:
        self._sink = sink
        self._role = role
        self._incoming = incoming
        self._type = type_

    @property
    def is_one_log(self) -> bool:
        """See `IMessageSink`."""
        return self._sink.is_one_log

    def put(self, message: StoredMessage, *, wait: bool = False) -> Deferred[PutResult]:
        """See `IMessageSink`."""
        put = self._sink.put(message, wait=wait)
        if self._role.role is Role.MASTER and not message.topic.startswith(RETURN_PREFIXES):
            put.addCallback(partial(self._count, message.topic))
        return put

    def at_turn_end(
        self, compose: Callable[[], StoredMessage | None]
    ) -> Deferred[PutResult | None]:
        """See `IMessageSink`; what is put so belongs to the broker, and is not counted."""
        return self._sink.at_turn_end(compose)

    def _count(self, topic: str, result: PutResult) -> PutResult:
        if result.is_stored:
            self._incoming.count(topic, self._type, 1, result.appended)
        return result
