"""The ids of transactions that clients get: they say where the half message stands, so that every
proxy of a cluster can hand a decision on, however late it comes."""

from __future__ import annotations

from typing import NamedTuple

from rocketmq_tw.message.properties import number

#: No name of a broker has it.
_SEPARATOR = "/"
#: Characters of an id that may name a place.
_MOST = 1024


class TransactionId(NamedTuple):
    """A half message: its unique id, its broker, and its offsets in the queue of half messages and
    in the log."""

    unique_id: str
    broker_name: str
    queue_offset: int
    log_offset: int

    def __str__(self) -> str:
        return _SEPARATOR.join(map(str, self))


def parse_transaction_id(text: str) -> TransactionId | None:
    """Reads the id of a transaction; None where it names no place, as those of stock's proxies."""
    parts = text.rsplit(_SEPARATOR, 3)
    if len(text) > _MOST or len(parts) != 4 or not parts[0] or not parts[1]:
        return None
    queue_offset, log_offset = map(number, parts[2:])
    if queue_offset is None or log_offset is None or queue_offset < 0 or log_offset < 0:
        return None
    return TransactionId(parts[0], parts[1], queue_offset, log_offset)
