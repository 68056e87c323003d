"""The stored record: what a commit log, a pull response and a replica's stream are made of.

Format: docs/formats/commitlog.md; `layout` says where each field stands. The hot path packs the
fixed part with one `struct.Struct` where both hosts are IPv4; all else goes the general way.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Sequence
from itertools import accumulate, count
from operator import add
from typing import NamedTuple

from rocketmq_tw.memo import remembered
from rocketmq_tw.message.batch import Batch
from rocketmq_tw.message.layout import (
    BODY_LENGTH,
    FIXED,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
    PACK_V4,
    PACK_V4_OWN,
    PACK_V4_SHARED,
    SHORT_LENGTH,
    SYS_FLAG,
    V6_FLAGS,
    by_address_flags,
    fields,
    fixed_part,
)
from rocketmq_tw.message.model import BORN_HOST_V6, STORE_HOST_V6, StoredMessage
from rocketmq_tw.message.properties import MAX_PROPERTIES_LENGTH
from rocketmq_tw.structs import msgspec

# ISA-L reckons zlib's CRC-32 with carry-less multiplication: a body of 1 KiB takes a fifth of the
# time, one of 16 KiB a tenth. There are no wheels of it for every machine.
try:
    from isal.isal_zlib import crc32 as _crc32
except ImportError:
    from zlib import crc32 as _crc32

MAX_V1_TOPIC_LENGTH = 127
#: `__CRC32#` 0x01, ten digits, 0x02.
CRC_PROPERTY_LENGTH = 20

#: What `parse_head` wants of the fixed part, by the two address bits.
_HEAD = by_address_flags(
    "size",
    "magic",
    "body_crc",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "store_timestamp",
    "body_length",
)
#: What `is_sound` compares.
_PROOF = fields("size", "magic", "body_crc", "physical_offset", "sys_flag")
#: With the body's length behind two IPv4 hosts, for `are_sound`.
_PROOF_V4 = fields("size", "magic", "body_crc", "physical_offset", "sys_flag", "body_length")
_PORT = struct.Struct(">i")
_pack_v4, _pack_alike, _pack_differing = PACK_V4.pack, PACK_V4_SHARED.pack, PACK_V4_OWN.pack


class RecordError(ValueError):
    """Bytes that are no record, or a message that cannot become one."""


class RecordHead(NamedTuple):
    """What dispatch and recovery need of a record."""

    size: int
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    store_timestamp: int
    properties: bytes


@remembered(4096)
def host_bytes(ip: str) -> bytes:
    """Returns the 4 or 16 bytes of an address; raises `RecordError` for what is no address."""
    try:
        return ipaddress.ip_address(ip).packed
    except ValueError as error:
        raise RecordError(f"{ip!r} is no IP address") from error


@remembered(4096)
def host_text(packed: bytes) -> str:
    """Returns the text of 4 or 16 bytes."""
    return str(ipaddress.ip_address(packed))


@remembered(4096)
def _host_part(host: tuple[str, int]) -> bytes:
    """Address and port: 8 or 20 bytes."""
    try:
        return host_bytes(host[0]) + _PORT.pack(host[1])
    except struct.error as error:
        raise RecordError(f"the port {host[1]} is out of its range") from error


@remembered(1024)
def _topic_part(topic: str) -> tuple[int, bytes]:
    """Returns the magic that a topic asks for, and its bytes with their length."""
    encoded = topic.encode()
    if len(encoded) <= MAX_V1_TOPIC_LENGTH:
        return MAGIC_V1, bytes((len(encoded),)) + encoded
    if len(encoded) > 0x7FFF:
        raise RecordError(f"the topic has {len(encoded)} bytes: use at most 127")
    return MAGIC_V2, SHORT_LENGTH.pack(len(encoded)) + encoded


def body_crc(body: bytes) -> int:
    """Returns CRC-32 as stock keeps it, without its highest bit."""
    return _crc32(body) & 0x7FFFFFFF


def encode_record(message: StoredMessage, *, crc_property: bool = False) -> bytes:
    """Returns the record of `message`, with its body's CRC; raises `RecordError` if it has none.

    The address bits of `sys_flag` follow the hosts. `crc_property` appends stock 5.x's property
    over the whole record (`enabledAppendPropCRC`).
    """
    born, store = _host_part(message.born_host), _host_part(message.store_host)
    if crc_property or len(born) != 8 or len(store) != 8:
        return _encode_any_record(message, born, store, crc_property)
    body, properties = message.body, message.properties
    magic, topic = _topic_part(message.topic)
    body_length, properties_length = len(body), len(properties)
    if properties_length > MAX_PROPERTIES_LENGTH:
        raise _too_long(properties_length)
    try:
        head = _pack_v4(
            90 + body_length + len(topic) + properties_length,
            magic,
            _crc32(body) & 0x7FFFFFFF,
            message.queue_id,
            message.flag,
            message.queue_offset,
            message.physical_offset,
            message.sys_flag & ~V6_FLAGS,
            message.born_timestamp,
            born,
            message.store_timestamp,
            store,
            message.reconsume_times,
            message.prepared_transaction_offset,
            body_length,
        )
    except struct.error as error:
        raise RecordError(f"a number of the message is out of its range: {error}") from error
    return b"".join([head, body, topic, SHORT_LENGTH.pack(properties_length), properties])


def encode_batch_records(
    message: StoredMessage,
    batch: Batch,
    *,
    in_queue: bool = True,
    crc_property: bool = False,
) -> tuple[bytes, list[int]]:
    """Returns the records of a batch, one after the other, and their sizes. They stand at
    consecutive places from the offsets of `message` on, with which they share all but flag, body
    and properties; `in_queue`: each has a queue offset of its own.

    They are what `encode_record` gives for one after the other. Raises `RecordError`.
    """
    born, store = _host_part(message.born_host), _host_part(message.store_host)
    if crc_property or len(born) != 8 or len(store) != 8:
        return _encode_any_batch(message, batch, in_queue, crc_property)
    magic, topic = _topic_part(message.topic)
    bodies, properties, common = batch.bodies, batch.properties, batch.common
    body_lengths = list(map(len, bodies))
    properties_lengths = list(map(len, properties))
    fixed = 90 + len(topic)
    #: By the length of a message's own properties: what stands between body and properties, and
    #: the size of all but the body.
    middles: dict[int, bytes] = {}
    others: dict[int, int] = {}
    for own in set(properties_lengths):
        length = own + len(common)
        if length > MAX_PROPERTIES_LENGTH:
            raise _too_long(length)
        middles[own] = topic + SHORT_LENGTH.pack(length)
        others[own] = fixed + length
    sizes = list(map(add, body_lengths, map(others.__getitem__, properties_lengths)))
    try:
        alike = _pack_alike(
            message.sys_flag & ~V6_FLAGS,
            message.born_timestamp,
            born,
            message.store_timestamp,
            store,
            message.reconsume_times,
            message.prepared_transaction_offset,
        )
        queue_id = message.queue_id
        places = accumulate(sizes, initial=message.physical_offset)
        queue_offsets = count(message.queue_offset, int(in_queue))
        heads = [
            _pack_differing(
                size,
                magic,
                _crc32(body) & 0x7FFFFFFF,
                queue_id,
                flag,
                queue_offset,
                place,
                alike,
                len(body),
            )
            for size, body, flag, queue_offset, place in zip(
                sizes, bodies, batch.flags, queue_offsets, places, strict=False
            )
        ]
        parts = [common] * (5 * len(sizes))
        parts[0::5] = heads
        parts[1::5] = bodies
        parts[2::5] = map(middles.__getitem__, properties_lengths)
        parts[3::5] = properties
    except struct.error as error:
        raise RecordError(f"a number of the message is out of its range: {error}") from error
    return b"".join(parts), sizes


def _encode_any_batch(
    message: StoredMessage, batch: Batch, in_queue: bool, crc_property: bool
) -> tuple[bytes, list[int]]:
    each = msgspec.structs.replace(message)
    records = []
    for part in batch:
        each.flag, each.body, each.properties = part.flag, part.body, part.properties
        records.append(encode_record(each, crc_property=crc_property))
        each.physical_offset += len(records[-1])
        each.queue_offset += in_queue
    return b"".join(records), list(map(len, records))


def _encode_any_record(
    message: StoredMessage, born: bytes, store: bytes, crc_property: bool
) -> bytes:
    """Returns what `encode_record` does not do itself: IPv6 addresses, the CRC property."""
    body, properties = message.body, message.properties
    magic, topic = _topic_part(message.topic)
    if crc_property and properties and properties[-1] != 2:
        properties += b"\x02"
    properties_length = len(properties) + (CRC_PROPERTY_LENGTH if crc_property else 0)
    if properties_length > MAX_PROPERTIES_LENGTH:
        raise _too_long(properties_length)
    sys_flag = message.sys_flag & ~V6_FLAGS
    sys_flag |= (BORN_HOST_V6 if len(born) == 20 else 0) | (
        STORE_HOST_V6 if len(store) == 20 else 0
    )
    layout = FIXED[sys_flag & V6_FLAGS]
    try:
        head = layout.pack(
            layout.size + len(body) + len(topic) + 2 + properties_length,
            magic,
            _crc32(body) & 0x7FFFFFFF,
            message.queue_id,
            message.flag,
            message.queue_offset,
            message.physical_offset,
            sys_flag,
            message.born_timestamp,
            born[:-4],
            message.born_host[1],
            message.store_timestamp,
            store[:-4],
            message.store_host[1],
            message.reconsume_times,
            message.prepared_transaction_offset,
            len(body),
        )
    except struct.error as error:
        raise RecordError(f"a number of the message is out of its range: {error}") from error
    record = b"".join([head, body, topic, SHORT_LENGTH.pack(properties_length), properties])
    return record + _crc_property(record) if crc_property else record


def _too_long(length: int) -> RecordError:
    return RecordError(f"the properties have {length} bytes: use at most {MAX_PROPERTIES_LENGTH}")


def _crc_property(record: bytes) -> bytes:
    digits = f"{_crc32(record) & 0x7FFFFFFF:010d}"[::-1]
    return b"__CRC32#\x01" + digits.encode() + b"\x02"


def parse_head(
    data: bytes | bytearray | memoryview, position: int = 0, *, check_body: bool = True
) -> RecordHead | None:
    """Returns the record at `position`; None where there is none or it is damaged.

    Verified: lengths, magic and, with `check_body`, the body's CRC.
    """
    available = len(data) - position
    if available < MIN_RECORD_SIZE:
        return None
    (sys_flag,) = SYS_FLAG.unpack_from(data, position)
    layout = _HEAD[sys_flag & V6_FLAGS]
    if available < layout.size:
        return None
    size, magic, crc, queue_id, queue_offset, physical_offset, store_timestamp, body_length = (
        layout.unpack_from(data, position)
    )
    if size > available or body_length < 0 or (magic != MAGIC_V1 and magic != MAGIC_V2):
        return None
    at = position + layout.size + body_length
    end = position + size
    if at + 3 > end:
        return None
    if magic == MAGIC_V1:
        topic_length = data[at]
        at += 1
    else:
        topic_length = SHORT_LENGTH.unpack_from(data, at)[0]
        at += 2
    properties_at = at + topic_length
    if topic_length < 0 or topic_length > 0x7FFF or properties_at + 2 > end:
        return None
    (properties_length,) = SHORT_LENGTH.unpack_from(data, properties_at)
    if properties_length < 0 or properties_at + 2 + properties_length != end:
        return None
    body_at = position + layout.size
    if (
        check_body
        and body_length
        and _crc32(data[body_at : body_at + body_length]) & 0x7FFFFFFF != crc
    ):
        return None
    try:
        topic = str(bytes(data[at:properties_at]), "utf-8")
    except UnicodeDecodeError:
        return None
    properties = bytes(data[properties_at + 2 : end])
    return RecordHead(
        size, topic, queue_id, queue_offset, physical_offset, sys_flag, store_timestamp, properties
    )


def is_sound(
    data: bytes | bytearray | memoryview, physical_offset: int, *, check_body: bool = True
) -> bool:
    """Returns whether `data` is exactly one record that says it stands at `physical_offset`, with
    `check_body` its body matching its CRC."""
    size = len(data)
    if size < MIN_RECORD_SIZE:
        return False
    said_size, magic, crc, said_offset, sys_flag = _PROOF.unpack_from(data)
    body_at = FIXED[sys_flag & V6_FLAGS].size
    if size < body_at:
        return False
    (length,) = BODY_LENGTH.unpack_from(data, body_at - BODY_LENGTH.size)
    body_end = body_at + length
    sound: bool = (
        said_size == size
        and said_offset == physical_offset
        and magic in (MAGIC_V1, MAGIC_V2)
        and body_at <= body_end <= size
        and (not check_body or _crc32(data[body_at:body_end]) & 0x7FFFFFFF == crc)
    )
    return sound


def are_sound(
    data: bytes,
    start: int,
    positions: Sequence[int],
    sizes: Sequence[int],
    *,
    check_body: bool = True,
) -> bool:
    """Returns what `is_sound` says of many records at once, whose loop is most of what a pull
    costs: `data`, which stands at `start`, has all of them, in ascending order without an
    overlap."""
    if min(sizes) < MIN_RECORD_SIZE:
        return False
    proof, fixed, crc32 = _PROOF_V4.unpack_from, _PROOF_V4.size, _crc32
    for position, size in zip(positions, sizes, strict=True):
        at = position - start
        said_size, magic, crc, said_offset, sys_flag, length = proof(data, at)
        if sys_flag & V6_FLAGS:
            if not is_sound(data[at : at + size], position, check_body=check_body):
                return False
            continue
        body_at = at + fixed
        if (
            said_size != size
            or said_offset != position
            or (magic != MAGIC_V1 and magic != MAGIC_V2)
            or not 0 <= length <= size - fixed
            or (check_body and crc32(data[body_at : body_at + length]) & 0x7FFFFFFF != crc)
        ):
            return False
    return True


def decode_record(data: bytes | bytearray | memoryview, position: int = 0) -> StoredMessage:
    """Returns the message of the record at `position`; raises `RecordError` where it is damaged."""
    head = parse_head(data, position)
    if head is None:
        raise RecordError(f"no sound record at byte {position}")
    layout = fixed_part(data, position)
    values = layout.unpack_from(data, position)
    body_at = position + layout.size
    return StoredMessage(
        topic=head.topic,
        queue_id=head.queue_id,
        body=bytes(data[body_at : body_at + values[16]]),
        properties=head.properties,
        flag=values[4],
        sys_flag=head.sys_flag,
        born_timestamp=values[8],
        born_host=(host_text(values[9]), values[10]),
        store_timestamp=head.store_timestamp,
        store_host=(host_text(values[12]), values[13]),
        reconsume_times=values[14],
        prepared_transaction_offset=values[15],
        queue_offset=head.queue_offset,
        physical_offset=head.physical_offset,
        store_size=head.size,
        body_crc=values[2],
    )


def decode_records(data: bytes | bytearray | memoryview) -> list[StoredMessage]:
    """Returns all records that stand one after the other in `data`, as a pull response carries
    them."""
    messages = []
    position = 0
    while position < len(data):
        message = decode_record(data, position)
        messages.append(message)
        position += message.store_size
    return messages


def heads_and_bodies(data: bytes) -> list[tuple[RecordHead, bytes]]:
    """Returns head and body of each of the records that stand one after the other in `data`, for
    those who need no more of them; raises `RecordError` where one is damaged."""
    found = []
    position, end = 0, len(data)
    while position < end:
        head = parse_head(data, position)
        if head is None:
            raise RecordError(f"no sound record at byte {position}")
        body_at = position + FIXED[head.sys_flag & V6_FLAGS].size
        (length,) = BODY_LENGTH.unpack_from(data, body_at - BODY_LENGTH.size)
        found.append((head, data[body_at : body_at + length]))
        position += head.size
    return found
