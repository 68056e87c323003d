"""The `checkpoint` file (docs/formats/checkpoint.md)."""

import zlib

import construct as c

FILE_SIZE = 4096
MAGIC = 0x726D7175

STOCK = c.Struct(
    "physic_msg_timestamp" / c.Int64sb,
    "logics_msg_timestamp" / c.Int64sb,
    "index_msg_timestamp" / c.Int64sb,
    "master_flushed_offset" / c.Int64sb,
    "confirm_phy_offset" / c.Int64sb,
)
OURS = c.Struct(
    "magic" / c.Int32ub,
    "safe_offset" / c.Int64sb,
    "queues" / c.Int64sb,
    "units" / c.Int64sb,
    "index_begin" / c.Int64sb,
    "index_entries" / c.Int64sb,
    "index_end" / c.Int64sb,
    "crc" / c.Int32ub,
)
OURS_AT = 64
CHECKPOINT = c.Struct(
    "stock" / STOCK,
    c.Padding(OURS_AT - STOCK.sizeof()),
    "ours" / OURS,
    c.Padding(FILE_SIZE - OURS_AT - OURS.sizeof()),
)


def crc_of(data: bytes) -> int:
    """Returns the CRC-32 that a file's content is to have in its last field."""
    ours_end = OURS_AT + OURS.sizeof() - c.Int32ub.sizeof()
    return zlib.crc32(data[OURS_AT:ours_end], zlib.crc32(data[: STOCK.sizeof()]))
