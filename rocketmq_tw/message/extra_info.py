"""Reads and writes what a client hands back with an acknowledgement, and what an answer to a pop
says for it (docs/formats/pop.md, "Extra infos")."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rocketmq_tw.message.names import RETRY_PREFIX, pop_retry_topic
from rocketmq_tw.message.properties import number
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

SEPARATOR = " "
#: The revive queue that orderly pops name: they have no check point.
ORDER_REVIVE_QUEUE = 999
NORMAL, RETRY, RETRY_V2 = "0", "1", "2"
_PARTS = 8
#: What brokers write, maybe with more behind it as in receipt handles, read at once; any other text
#: is read part by part.
_usual = re.compile(
    r"([0-9]{1,18}) ([0-9]{1,18}) ([0-9]{1,18}) ([0-9]{1,18}) ([^ ]*) ([^ ]*)"
    r" ([0-9]{1,18}) ([0-9]{1,18})(?: .*)?",
    re.DOTALL,
).fullmatch
#: Characters of a wrong text that a refusal repeats.
_SHOWN = 100


class ExtraInfo(NamedTuple):
    """Which check point a popped message belongs to; times in ms."""

    start_offset: int
    pop_time: int
    invisible_time: int
    revive_queue_id: int
    kind: str
    broker_name: str
    queue_id: int
    offset: int

    @property
    def is_orderly(self) -> bool:
        """Whether the pop was one of an orderly group, which has no check point."""
        return self.revive_queue_id == ORDER_REVIVE_QUEUE

    def __str__(self) -> str:
        start, pop, hidden, revive_queue, kind, name, queue, at = self
        return f"{start} {pop} {hidden} {revive_queue} {kind} {name} {queue} {at}"


def parse_extra_info(text: str) -> ExtraInfo:
    """Reads an extra info; raises `RequestError`, which says what is wrong with the text."""
    usual = _usual(text)
    if usual is not None:
        first, pop, hidden, revive_queue, kind, name, queue, at = usual.groups()
        return ExtraInfo(
            int(first), int(pop), int(hidden), int(revive_queue), kind, name, int(queue), int(at)
        )
    return _parse_by_part(text)


def _parse_by_part(text: str) -> ExtraInfo:
    parts = text.split(SEPARATOR, _PARTS)
    try:
        if len(parts) < 6:
            raise ValueError(f"{len(parts)} of {_PARTS} parts")
        start, popped, invisible, revive = map(_long, parts[:4])
        queue_id, offset = [*map(_long, parts[6:8]), 0, 0][:2]
    except ValueError as error:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"the extraInfo {text[:_SHOWN]!r} is not what a pop gave: {error}; hand it back"
            " unchanged",
        ) from None
    return ExtraInfo(start, popped, invisible, revive, parts[4], parts[5], queue_id, offset)


def kind_of(topic: str) -> str:
    """Returns the kind of a topic in extra infos: `NORMAL`, `RETRY` or `RETRY_V2`."""
    if not topic.startswith(RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if "+" in topic else RETRY


def topic_of_kind(topic: str, group: str, kind: str) -> str:
    """Returns the topic that a kind stands for in acknowledgements of `topic`; raises
    `RequestError`."""
    if kind == NORMAL:
        return topic
    if kind not in (RETRY, RETRY_V2):
        raise RequestError(
            ResponseCode.SYSTEM_ERROR, f"the kind {kind!r} of a topic is none of 0, 1 and 2"
        )
    return pop_retry_topic(topic, group, int(kind))


class OffsetInfos:
    """Collects the three texts of one answer: `startOffsetInfo`, `msgOffsetInfo` and
    `orderCountInfo`."""

    def __init__(self) -> None:
        self._starts: list[str] = []
        self._offsets: list[str] = []
        self._counts: list[str] = []

    def add(self, topic: str, queue_id: int, start: int, offsets: Iterable[int]) -> None:
        """Adds messages of one queue by their offsets; their check point begins at `start`."""
        queue = f"{kind_of(topic)} {queue_id} "
        self._starts.append(f"{queue}{start}")
        self._offsets.append(queue + ",".join(map(str, offsets)))

    def add_counts(self, topic: str, queue_id: int, counts: Sequence[tuple[int, int]]) -> None:
        """Adds pairs of an offset and how often its message was consumed before."""
        kind = kind_of(topic)
        self._counts += [f"{kind} qo{queue_id}%{offset} {count}" for offset, count in counts]

    def add_least_count(self, topic: str, queue_id: int, count: int) -> None:
        """Adds how often all messages of a queue were consumed before, for older clients."""
        self._counts.append(f"{kind_of(topic)} {queue_id} {count}")

    @property
    def starts(self) -> str:
        """The text `startOffsetInfo`."""
        return ";".join(self._starts)

    @property
    def offsets(self) -> str:
        """The text `msgOffsetInfo`."""
        return ";".join(self._offsets)

    @property
    def counts(self) -> str:
        """The text `orderCountInfo`."""
        return ";".join(self._counts)


class PoppedOffsets:
    """Reads `startOffsetInfo` and `orderCountInfo` of one answer; raises `RequestError` where they
    are not what a pop answers."""

    def __init__(self, starts: str | None, counts: str | None) -> None:
        self._starts = _pairs(starts)
        self._counts = _pairs(counts)

    def start(self, kind: str, queue_id: int) -> int | None:
        """Returns where the check point of a queue's messages begins; None where the answer does
        not say."""
        return self._starts.get(f"{kind} {queue_id}")

    def consumed(self, kind: str, queue_id: int, offset: int) -> int:
        """Returns how often a message of an orderly group was consumed before."""
        counts = self._counts
        count = counts.get(f"{kind} qo{queue_id}%{offset}", counts.get(f"{kind} {queue_id}", 0))
        return max(count, 0)


def _pairs(text: str | None) -> dict[str, int]:
    """Returns the number of each entry by the two words in front of it."""
    pairs = {}
    try:
        for entry in text.split(";") if text else ():
            queue, _, value = entry.rpartition(SEPARATOR)
            pairs[queue] = _long(value)
    except ValueError as error:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR, f"{entry[:_SHOWN]!r} in the answer to a pop: {error}"
        ) from None
    return pairs


def _long(text: str) -> int:
    found = number(text)
    if found is None:
        raise ValueError(f"{text[:_SHOWN]!r} is no number that a long can hold")
    return found
