"""The files of a DLedger member (docs/formats/dledger.md)."""

import zlib
from struct import Struct

import construct as c

MAGIC = 1
BLANK_MAGIC = -1

ENTRY_HEAD = c.Struct(
    "magic" / c.Int32sb,
    "size" / c.Int32sb,
    "index" / c.Int64sb,
    "term" / c.Int64sb,
    "position" / c.Int64sb,
    "channel" / c.Int32sb,
    "chain_crc" / c.Int32sb,
    "body_crc" / c.Int32sb,
    "body_length" / c.Int32sb,
)
ENTRY = ENTRY_HEAD + c.Struct("body" / c.Bytes(c.this.body_length))
#: What closes a data file.
BLANK = c.Struct("magic" / c.Int32sb, "size" / c.Int32sb)

INDEX_UNIT = c.Struct(
    "magic" / c.Int32sb,
    "position" / c.Int64sb,
    "size" / c.Int32sb,
    "index" / c.Int64sb,
    "term" / c.Int64sb,
)

_CHAINED = Struct(">IqqqI")


def chain_crc(before: int, index: int, term: int, position: int, body_crc: int) -> int:
    """Returns the CRC of an entry and all in front of it; 0 is the one before the first."""
    return zlib.crc32(_CHAINED.pack(before, index, term, position, body_crc)) & 0x7FFFFFFF
