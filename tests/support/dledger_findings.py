"""What is wrong with the messages of a group's log, and which member wrote them in which term."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from rocketmq_tw.raft.core.entry import ENTRY_HEADER_SIZE, Entry
from tests.support.storecheck import Record, StoreDamaged, parse_records

#: Findings of one kind that a report has.
_MOST = 10


class Written(NamedTuple):
    """A message of the log; `entry_index` and `term` are its entry's."""

    entry_index: int
    term: int
    record: Record


def written(entries: Iterable[Entry]) -> Iterator[Written]:
    """The messages of entries; raises `StoreDamaged` where one says another place."""
    for entry in entries:
        for record in parse_records(entry.body):
            if record.position != entry.pos + ENTRY_HEADER_SIZE:
                raise StoreDamaged(f"entry {entry.index} at {entry.pos} has {record}")
            yield Written(entry.index, entry.term, record)


class Writers:
    """Says who wrote; `names` has the members by the addresses that records have."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def say(self, one: Written) -> str:
        """A message as a line of a report."""
        record = one.record
        return (
            f"{record.topic}/{record.queue} offset {record.offset}: entry {one.entry_index} of term"
            f" {one.term} at {record.position}, by {self._name(record)}, body {record.body[:40]!r}"
        )

    def doubled(self, log: Sequence[Written]) -> list[str]:
        """Messages that have a queue's offset together."""
        places: dict[tuple[str, int, int], list[Written]] = defaultdict(list)
        for one in log:
            if one.record.queued:
                places[one.record.topic, one.record.queue, one.record.offset].append(one)
        wrong = [several for several in places.values() if len(several) > 1]
        return [self.say(one) for several in wrong[:_MOST] for one in several]

    def lost(self, log: Sequence[Written], message_ids: Mapping[bytes, str]) -> list[str]:
        """What is where acknowledged messages should be, which are not in the log."""
        bodies = {one.record.body for one in log}
        at = {one.record.position: one for one in log}
        lines = []
        for body in sorted(message_ids.keys() - bodies)[:_MOST]:
            address, position = parse_message_id(message_ids[body])
            name, there = self._names.get(address, address), at.get(position)
            found = self.say(there) if there else "no message"
            lines.append(f"{body!r}, acknowledged by {name} at {position}; there is {found}")
        return lines

    def terms(self, log: Sequence[Written]) -> list[str]:
        """Who wrote in which term."""
        lines = []
        for (term, name), group in groupby(log, lambda one: (one.term, self._name(one.record))):
            ones = list(group)
            lines.append(
                f"term {term}: entries {ones[0].entry_index} to {ones[-1].entry_index} by {name}"
            )
        return lines

    def _name(self, record: Record) -> str:
        return self._names.get(record.stored_by, record.stored_by)


def parse_message_id(message_id: str) -> tuple[str, int]:
    """The broker's address and the message's place, of an id with an IPv4 address."""
    data = bytes.fromhex(message_id)
    host = ".".join(map(str, data[:4]))
    return f"{host}:{int.from_bytes(data[4:8], 'big')}", int.from_bytes(data[8:], "big")
