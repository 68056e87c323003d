"""Tells which messages of the timer's topic have rolled: the topic has a copy of each behind it.

The intake has to know that of a message that was in the wheel before: one that has rolled waits as
its copy (docs/formats/timers.md, "What becomes of a message").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from rocketmq_tw.message import properties as props
from rocketmq_tw.message.names import TIMER_TOPIC
from rocketmq_tw.message.properties import number, parse_properties
from rocketmq_tw.message.record import parse_head
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.store.queue_batches import batches

#: In all other properties a copy is as the message that it was made of.
_CHANGED = frozenset(
    {props.TIMER_ENQUEUE_MS, props.TIMER_DEQUEUE_MS, props.TIMER_ROLL_TIMES, props.CRC32}
)


class RolledMessages:
    """Finds the copies once it is asked to: seldom is a message taken in again. Keeps a number for
    each, and of the topic's end too: a slot may be over before its copies are taken in."""

    def __init__(self, store: IMessageStore) -> None:
        self._store = store
        #: How many copies were made of the messages with a hash.
        self._copies: Counter[int] = Counter()
        #: Where in the topic the copies end that are counted, and those that are to be.
        self._until = self._end = 0

    def are_found(self, until: int) -> bool:
        """Returns whether the copies in front of `until` of the topic are counted."""
        return self._until >= self._end >= min(until, self._topic_end)

    def find(self, offset: int) -> Iterator[None]:
        """Counts the copies from `offset` of the topic on, in steps."""
        if offset >= self._until:
            self._copies.clear()
            self._until = offset
        self._end = self._topic_end
        while self._until < self._end:
            for read in batches(self._store, TIMER_TOPIC, 0, self._until, self._end):
                self._count(read.data)
                self._until = read.next_offset
                yield
            if self._until < self._end:
                # Copies may be behind what cannot be read: without them a message comes twice.
                self._until += 1
                yield

    @property
    def _topic_end(self) -> int:
        return self._store.max_queue_offset(TIMER_TOPIC, 0)

    def _count(self, records: bytes) -> None:
        at = 0
        while at < len(records):
            head = parse_head(records, at, check_body=False)
            if head is None:
                break
            if b"TIMER_ROLL_TIMES" in head.properties:
                properties = parse_properties(head.properties)
                self._copies[_hash(properties, _rolls(properties) - 1)] += 1
            at += head.size

    def take(self, properties: Mapping[str, str]) -> bool:
        """Returns whether a message with these properties has rolled; each copy counts once."""
        found = _hash(properties, _rolls(properties))
        has_rolled = self._copies[found] > 0
        if has_rolled:
            self._copies[found] -= 1
        return has_rolled


def _rolls(properties: Mapping[str, str]) -> int:
    return number(properties.get(props.TIMER_ROLL_TIMES)) or 0


def _hash(properties: Mapping[str, str], rolls: int) -> int:
    """Returns what is the same for a message and for its copy; much smaller than these."""
    same = frozenset(each for each in properties.items() if each[0] not in _CHANGED)
    return hash((rolls, same))
