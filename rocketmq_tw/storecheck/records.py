"""One record of a log: whether it is whole, and what it means to queues and index."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from operator import mul
from typing import NamedTuple
from zlib import crc32

from rocketmq_tw.formats.flat import flat
from rocketmq_tw.formats.record import (
    BLANK,
    BORN_HOST_V6,
    FIXED,
    MAGIC_V1,
    MIN_SIZE,
    STORE_HOST_V6,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from rocketmq_tw.memo import remembered

BEGIN = flat(BLANK)
_FIXED = {flags: flat(declaration) for flags, declaration in FIXED.items()}
_V4 = _FIXED[0]
_V6_FLAGS = BORN_HOST_V6 | STORE_HOST_V6
_CRC_PROPERTY = re.compile(rb"__CRC32#\x01(\d{10})\x02").fullmatch
#: Digits of the largest number that a long holds.
_LONGEST_NUMBER = 19
_CRC_SIZE = 20
#: Lengths of two bytes have a sign.
_MAX_SHORT = 0x7FFF
_CRC_NAME = b"__CRC32#\x01"
_properties = re.compile(
    rb"(?:^|\x02)(TAGS|UNIQ_KEY|KEYS|INNER_MULTI_DISPATCH|INNER_MULTI_QUEUE_OFFSET)\x01([^\x02]*)"
).findall
_LIGHT_PREFIX = "%LMQ%"
#: What may name the directory of a topic's queues.
is_topic = re.compile(
    r"(?=.{1,255}\Z)([%|a-zA-Z0-9_-]+|%RETRY%[%|a-zA-Z0-9_-]+\+[%|a-zA-Z0-9_-]+)"
).fullmatch


class LogRecord(NamedTuple):
    """A whole record; `position` and `size` are bytes of the log, times are milliseconds."""

    position: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_timestamp: int
    properties: bytes

    @property
    def in_queue(self) -> bool:
        """Whether its queue has it: half and rolled-back messages are in none."""
        return self.sys_flag & TRANSACTION_MASK not in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)

    @property
    def has_place(self) -> bool:
        """Whether there can be a queue that it says to be in; brokers leave out others."""
        return is_topic(self.topic) is not None and self.queue_id >= 0

    @property
    def has_crc(self) -> bool:
        """Whether a CRC of all of it holds, as it is where it was read."""
        return self.properties[-_CRC_SIZE:-10].startswith(_CRC_NAME)

    @property
    def wanted(self) -> dict[bytes, bytes]:
        """The properties that queues and index want."""
        return dict(_properties(self.properties))


def read_record(
    data: bytes, at: int, size: int, position: int, *, check_body: bool = True
) -> LogRecord | str:
    """Returns the record of `size` bytes at `at` of `data`, which is to say that it stands at
    `position`; or why there is no whole one. All of it must be in `data`."""
    values = _V4.unpack_from(data, at)
    body_at = at + _V4.size
    sys_flag = values[7]
    if sys_flag & _V6_FLAGS:
        layout = _FIXED[sys_flag & _V6_FLAGS]
        if size < layout.size:
            return "it is too short for its addresses"
        values = layout.unpack_from(data, at)
        body_at = at + layout.size
    _, magic, crc, queue_id, _, queue_offset, said, *_, length = values
    stored = values[11]
    if said != position:
        return f"the record there says that it stands at {said}"
    end = at + size
    topic_at = body_at + length
    if length < 0 or topic_at + 3 > end:
        return f"its body of {length} bytes is longer than the record"
    if check_body and crc32(data[body_at:topic_at]) & 0x7FFFFFFF != crc:
        return "its body does not match its CRC"
    width = 1 if magic == MAGIC_V1 else 2
    topic_length = int.from_bytes(data[topic_at : topic_at + width], "big")
    topic_end = topic_at + width + topic_length
    properties_at = topic_end + 2
    if properties_at > end:
        return "its topic is longer than the record"
    properties_length = int.from_bytes(data[topic_end:properties_at], "big")
    if properties_at + properties_length != end:
        return "its lengths do not make its size"
    if topic_length > _MAX_SHORT or properties_length > _MAX_SHORT:
        return "one of its lengths would be negative"
    try:
        topic = str(data[topic_at + width : topic_end], "utf-8")
    except UnicodeDecodeError:
        return "its topic is no UTF-8"
    properties = data[properties_at:end]
    if properties[-_CRC_SIZE:-10].startswith(_CRC_NAME):
        found = _CRC_PROPERTY(properties[-_CRC_SIZE:])
        if found and int(found[1][::-1]) != crc32(data[at : end - _CRC_SIZE]) & 0x7FFFFFFF:
            return "it does not match the CRC of its properties"
    return LogRecord(position, size, topic, queue_id, queue_offset, sys_flag, stored, properties)


def is_size(size: int, room: int) -> bool:
    """Returns whether a record may have that size where a file has `room` bytes left; a blank must
    find room behind it."""
    return MIN_SIZE <= size <= room - BEGIN.size


def tags_code_of(wanted: dict[bytes, bytes]) -> int:
    """Returns what a unit has for the tags."""
    tags = wanted.get(b"TAGS")
    return _hash_of_tags(tags) if tags else 0


@remembered(65536)
def _hash_of_tags(tags: bytes) -> int:
    return java_hash(str(tags, "utf-8", "replace"))


@remembered(4096)
def _powers(count: int) -> tuple[int, ...]:
    return tuple(pow(31, number, 1 << 32) for number in reversed(range(count)))


def java_hash(text: str) -> int:
    """Returns Java's `String.hashCode`."""
    units: Sequence[int]
    if text.isascii():
        units = text.encode()
    else:
        data = text.encode("utf-16-be", "surrogatepass")
        units = [data[at] << 8 | data[at + 1] for at in range(0, len(data), 2)]
    total = sum(map(mul, units, _powers(len(units)))) & 0xFFFFFFFF
    return total - (1 << 32) if total >> 31 else total


def key_hashes(record: LogRecord, wanted: dict[bytes, bytes]) -> set[int]:
    """Returns the hashes that the index has for a record."""
    if record.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
        return set()
    keys = [wanted[b"UNIQ_KEY"]] if wanted.get(b"UNIQ_KEY") else []
    keys += [key for key in wanted.get(b"KEYS", b"").split(b" ") if key]
    return {key_hash(record.topic, str(key, "utf-8", "replace")) for key in keys}


def key_hash(topic: str, key: str) -> int:
    """Returns the hash by which the index has a key."""
    number = abs(java_hash(f"{topic}#{key}"))
    return 0 if number == 1 << 31 else number


def further_places(record: LogRecord, wanted: dict[bytes, bytes]) -> Iterator[tuple[str, int, int]]:
    """Yields topic, queue and offset of the further queues that a record says to be in."""
    offsets = wanted.get(b"INNER_MULTI_QUEUE_OFFSET", b"").split(b",")
    names = wanted.get(b"INNER_MULTI_DISPATCH", b"").strip().split(b",")
    if len(names) != len(offsets):
        return
    for raw, offset in zip(names, offsets, strict=True):
        name = str(raw, "utf-8", "replace")
        if offset.isdigit() and len(offset) <= _LONGEST_NUMBER and name:
            queue_id = 0 if name.startswith(_LIGHT_PREFIX) else record.queue_id
            yield name, queue_id, int(offset)
