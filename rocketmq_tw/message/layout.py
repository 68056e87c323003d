"""The places of the fields of a stored record: the one module that knows them.

Format: docs/formats/commitlog.md. A record is its fixed part, whose length depends on whether its
two hosts are IPv4 or IPv6, then body, topic and properties. `fields` gives a `struct.Struct` for
some fields only, which passes over the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from struct import error as StructError
from typing import Final

from rocketmq_tw.message.model import BORN_HOST_V6, STORE_HOST_V6

MAGIC_V1: Final = -626843481
#: The topic's length takes two bytes; for topics of more than 127 bytes.
MAGIC_V2: Final = -626843477
#: The rest of a commit-log file holds no record.
BLANK_MAGIC: Final = -875286124
#: Size and magic of the blank that fills a file's tail.
BLANK_SIZE: Final = 8
#: A record's size where body, topic and properties are empty and both hosts IPv4.
MIN_RECORD_SIZE: Final = 91

#: The bits of `sys_flag` on which the place of later fields depends.
V6_FLAGS: Final = BORN_HOST_V6 | STORE_HOST_V6
_CODES: Final = (
    ("size", "i"),
    ("magic", "i"),
    ("body_crc", "i"),
    ("queue_id", "i"),
    ("flag", "i"),
    ("queue_offset", "q"),
    ("physical_offset", "q"),
    ("sys_flag", "i"),
    ("born_timestamp", "q"),
    ("born_ip", "s"),
    ("born_port", "i"),
    ("store_timestamp", "q"),
    ("store_ip", "s"),
    ("store_port", "i"),
    ("reconsume_times", "i"),
    ("prepared_transaction_offset", "q"),
    ("body_length", "i"),
)
_V6_FLAG_OF: Final = {"born_ip": BORN_HOST_V6, "store_ip": STORE_HOST_V6}


def _codes(flags: int) -> Iterator[tuple[str, str]]:
    for name, code in _CODES:
        if code == "s":
            code = "16s" if flags & _V6_FLAG_OF[name] else "4s"
        yield name, code


def fields(*names: str, flags: int = 0) -> Struct:
    """Reads these fields, named in the order of the record, from a record's first byte on. `flags`
    are the record's `sys_flag`, of which only the two address bits count."""
    wanted, format_ = list(names), ">"
    for name, code in _codes(flags):
        if not wanted:
            break
        if name == wanted[0]:
            format_ += code
            del wanted[0]
        else:
            format_ += f"{Struct('>' + code).size}x"
    if wanted:
        raise ValueError(f"a record has no {wanted[0]} there")
    return Struct(format_)


def by_address_flags(*names: str) -> dict[int, Struct]:
    """Returns `fields` for each value of `sys_flag & V6_FLAGS`."""
    every = (0, BORN_HOST_V6, STORE_HOST_V6, V6_FLAGS)
    return {flags: fields(*names, flags=flags) for flags in every}


#: All fields of the fixed part, by `sys_flag & V6_FLAGS`; its size is where the body begins.
FIXED: Final = by_address_flags(*(name for name, _ in _CODES))
SIZE_AND_MAGIC: Final = fields("size", "magic")
SIZE: Final = fields("size")
SYS_FLAG: Final = fields("sys_flag")
BODY_LENGTH: Final = Struct(">i")
#: Lengths of properties, and of a topic behind `MAGIC_V2`.
SHORT_LENGTH: Final = Struct(">h")
_PHYSICAL_OFFSET: Final = fields("physical_offset")
_STORE_TIMESTAMP: Final = by_address_flags("store_timestamp")
_TO_BODY: Final = by_address_flags("magic", "sys_flag", "body_length")
_TO_BODY_V4: Final = _TO_BODY[0]
_FIXED_V4: Final = FIXED[0].size
#: Bytes at a record's start that have its store time, whatever its addresses.
STORE_TIMESTAMP_END: Final = max(one.size for one in _STORE_TIMESTAMP.values())

#: For writing where a host with its port is 8 bytes in one piece: the fixed part at once, and in
#: two: what records of a batch share, and what differs, with the former in its place.
PACK_V4: Final = Struct(">iiiiiqqiq8sq8siqi")
PACK_V4_SHARED: Final = Struct(">iq8sq8siq")
PACK_V4_OWN: Final = Struct(">iiiiiqq48si")

#: Name and NumPy type of each field where both hosts are IPv4, which stand with their ports.
V4_COLUMNS: Final = [
    (
        name.replace("_ip", "_host"),
        {"i": ">i4", "q": ">i8", "4s": "V8"}[code],
    )
    for name, code in _codes(0)
    if not name.endswith("_port")
]


def fixed_part(data: bytes | bytearray | memoryview, position: int = 0) -> Struct:
    """Returns the layout of the record at `position`; raises `struct.error` where it is too
    short."""
    return FIXED[SYS_FLAG.unpack_from(data, position)[0] & V6_FLAGS]


def physical_offset(record: bytes) -> int:
    """Returns where in the log a record says that it stands."""
    offset: int = _PHYSICAL_OFFSET.unpack_from(record)[0]
    return offset


def moved(record: bytes, offset: int) -> bytes:
    """Returns the record with another place in the log."""
    end = _PHYSICAL_OFFSET.size
    return record[: end - 8] + offset.to_bytes(8, "big") + record[end:]


def properties_of(data: bytes, start: int, size: int) -> bytes:
    """Returns the properties of the record of `size` bytes at `start`; empty where its lengths do
    not fit, and nothing else of it is looked at."""
    magic, behind = body_end(data, start)
    return properties_behind(data, magic, start + behind, start + size)


def properties_of_each(data: bytes, starts: Sequence[int], sizes: Sequence[int]) -> list[bytes]:
    """Returns `properties_of` for records of `sizes` bytes at `starts`, in a third of the time."""
    unpack, found = _TO_BODY_V4.unpack_from, []
    try:
        for start, size in zip(starts, sizes, strict=True):
            magic, flags, length = unpack(data, start)
            behind = start + _FIXED_V4 + length
            if magic != MAGIC_V1 or flags & V6_FLAGS or length < 0:
                found.append(properties_of(data, start, size))
            else:
                found.append(data[behind + 3 + data[behind] : start + size])
    except (IndexError, StructError):
        return [properties_of(data, *each) for each in zip(starts, sizes, strict=True)]
    return found


def body_end(data: bytes, start: int) -> tuple[int, int]:
    """Returns a record's magic, and how far behind its first byte its body ends, of as many bytes
    as the longest fixed part has; (0, 0) where it is no record."""
    if len(data) - start < _TO_BODY_V4.size:
        return 0, 0
    layout = _TO_BODY_V4
    magic, flags, length = layout.unpack_from(data, start)
    if flags & V6_FLAGS:
        layout = _TO_BODY[flags & V6_FLAGS]
        if len(data) - start < layout.size:
            return 0, 0
        magic, _, length = layout.unpack_from(data, start)
    return (magic, layout.size + length) if length >= 0 else (0, 0)


def properties_behind(data: bytes, magic: int, at: int, end: int) -> bytes:
    """Returns the properties of a record that has its topic at `at` and ends at `end`; empty where
    the topic is longer than that."""
    if at + 4 > min(end, len(data)):
        return b""
    if magic == MAGIC_V1:
        return data[at + 3 + data[at] : end]
    if magic == MAGIC_V2:
        return data[at + 4 + SHORT_LENGTH.unpack_from(data, at)[0] : end]
    return b""


def store_timestamp(record: bytes) -> int:
    """Returns when a record was stored, of its first `STORE_TIMESTAMP_END` bytes or more."""
    flags = SYS_FLAG.unpack_from(record)[0] & V6_FLAGS
    moment: int = _STORE_TIMESTAMP[flags].unpack_from(record)[0]
    return moment
