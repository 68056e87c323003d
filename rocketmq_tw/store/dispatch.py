"""What a record means to consume queues and index."""

from __future__ import annotations

import msgspec

from rocketmq_tw.message.names import SCHEDULE_TOPIC
from rocketmq_tw.message.properties import KEY_SEPARATOR
from rocketmq_tw.message.sysflags import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from rocketmq_tw.message.tags import java_hash_code

_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Dispatch(msgspec.Struct, gc=False):
    """One record on its way to its queue and into the index; `keys` are the index's."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    in_queue: bool
    keys: tuple[bytes, ...]


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Milliseconds by level, level 1 first, of `1s 5s 1m 2h 1d`; raises `ValueError`."""
    levels = []
    for word in text.split():
        number, unit = word[:-1], word[-1:]
        if unit not in _UNITS or not (number.isascii() and number.isdigit()):
            raise ValueError(
                f"messageDelayLevel has {word!r}: write a number and s, m, h or d, as in `1s 5m`"
            )
        levels.append(int(number) * _UNITS[unit])
    if not levels:
        raise ValueError("messageDelayLevel is empty: name at least one level, as in `1s 5s`")
    return tuple(levels)


def property_value(properties: bytes, name: bytes) -> bytes:
    """One property's value without parsing the others; empty where it is missing.

    `name` ends with the separator 0x01.
    """
    if properties.startswith(name):
        start = len(name)
    else:
        start = properties.find(b"\x02" + name)
        if start < 0:
            return b""
        start += len(name) + 1
    end = properties.find(b"\x02", start)
    return properties[start:] if end < 0 else properties[start:end]


class Dispatcher:
    """Makes a `Dispatch` of a record; knows the delay levels and whether an index is kept."""

    def __init__(self, delay_levels: tuple[int, ...], *, index: bool) -> None:
        self._delay_levels = delay_levels
        self._index = index

    def dispatch(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        physical_offset: int,
        size: int,
        sys_flag: int,
        store_timestamp: int,
        properties: bytes,
    ) -> Dispatch:
        """Half and rolled-back messages of a transaction are in no queue, as in stock."""
        transaction = sys_flag & TRANSACTION_ROLLBACK
        tags_code = 0
        keys: tuple[bytes, ...] = ()
        if properties:
            if b"TAGS\x01" in properties and (tags := property_value(properties, b"TAGS\x01")):
                tags_code = java_hash_code(str(tags, "utf-8", "replace"))
            if topic == SCHEDULE_TOPIC:
                tags_code = self._deliver_time(properties, store_timestamp, tags_code)
            if self._index and transaction != TRANSACTION_ROLLBACK:
                unique = property_value(properties, b"UNIQ_KEY\x01")
                keys = (unique,) if unique else ()
                if b"KEYS\x01" in properties:
                    keys += _words(property_value(properties, b"KEYS\x01"))
        return Dispatch(
            topic,
            queue_id,
            queue_offset,
            physical_offset,
            size,
            tags_code,
            store_timestamp,
            transaction != TRANSACTION_PREPARED and transaction != TRANSACTION_ROLLBACK,
            keys,
        )

    def _deliver_time(self, properties: bytes, store_timestamp: int, otherwise: int) -> int:
        delay = property_value(properties, b"DELAY\x01")
        if not delay.isdigit() or int(delay) < 1:
            return otherwise
        level = min(int(delay), len(self._delay_levels))
        return store_timestamp + self._delay_levels[level - 1]


def _words(keys: bytes) -> tuple[bytes, ...]:
    return tuple([word for word in keys.split(KEY_SEPARATOR.encode()) if word])
