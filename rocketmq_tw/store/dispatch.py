"""What a record means to consume queues and index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from rocketmq_tw.message.names import SCHEDULE_TOPIC
from rocketmq_tw.message.properties import KEY_SEPARATOR, KEYS, TAGS, UNIQ_KEY
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
        parsed: dict[str, str] | None = None,
    ) -> Dispatch:
        """Half and rolled-back messages of a transaction are in no queue, as in stock. `parsed`
        tells what it can instead of `properties`, see `StoredMessage`."""
        transaction = sys_flag & TRANSACTION_ROLLBACK
        tags_code = 0
        keys: tuple[bytes, ...] = ()
        if parsed is not None and topic != SCHEDULE_TOPIC:
            if (tags_text := parsed.get(TAGS)) is not None:
                tags_code = java_hash_code(tags_text)
            if self._index and transaction != TRANSACTION_ROLLBACK:
                unique_id, keys_text = parsed.get(UNIQ_KEY), parsed.get(KEYS)
                if unique_id is not None:
                    keys = (unique_id.encode(),)
                if keys_text is not None:
                    keys += _words(keys_text.encode())
        elif properties:
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

    def dispatch_batch(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        physical_offset: int,
        records: Sequence[bytes],
        data: bytes,
        sys_flag: int,
        store_timestamp: int,
        properties: Iterable[bytes],
    ) -> list[Dispatch]:
        """The same for records that stand one after the other: `data` is all of them, `properties`
        are those of each."""
        offset = physical_offset
        entries = []
        is_plain = (
            self._index
            and topic != SCHEDULE_TOPIC
            and not sys_flag & TRANSACTION_ROLLBACK
            and b"TAGS\x01" not in data
            and b"KEYS\x01" not in data
        )
        for record, each in zip(records, properties, strict=True):
            size = len(record)
            if is_plain:
                unique = property_value(each, b"UNIQ_KEY\x01")
                keys = (unique,) if unique else ()
                entry = Dispatch(
                    topic, queue_id, queue_offset, offset, size, 0, store_timestamp, True, keys
                )
            else:
                entry = self.dispatch(
                    topic, queue_id, queue_offset, offset, size, sys_flag, store_timestamp, each
                )
            entries.append(entry)
            offset += size
            queue_offset += 1
        return entries

    def _deliver_time(self, properties: bytes, store_timestamp: int, otherwise: int) -> int:
        delay = property_value(properties, b"DELAY\x01")
        if not delay.isdigit() or int(delay) < 1:
            return otherwise
        level = min(int(delay), len(self._delay_levels))
        return store_timestamp + self._delay_levels[level - 1]


def _words(keys: bytes) -> tuple[bytes, ...]:
    return tuple([word for word in keys.split(KEY_SEPARATOR.encode()) if word])
