"""The bytes of entries and of index units; all numbers big-endian (docs/formats/dledger.md)."""

from struct import Struct

from rocketmq_tw.raft.core.entry import ENTRY_HEADER_SIZE, Entry
from rocketmq_tw.store.errors import StoreError

#: magic, size, index, term, pos, channel, chain CRC, body CRC, length of the body.
ENTRY_HEADER = Struct(">iiqqqiiii")
#: magic, pos, size, index, term.
INDEX_UNIT = Struct(">iqiqq")
INDEX_UNIT_SIZE = 32
#: What closes a data file whose rest is too short for the next entry: magic, bytes left.
BLANK = Struct(">ii")
ENTRY_BLANK_MAGIC = -1

assert ENTRY_HEADER.size == ENTRY_HEADER_SIZE
assert INDEX_UNIT.size == INDEX_UNIT_SIZE


#: What a member that cannot go on with its files is to do.
COPY_AGAIN = "remove this store to copy it from the leader, one member at a time (docs/raft.md)"


def encode_header(entry: Entry) -> bytes:
    """Returns the entry's bytes before its body."""
    return ENTRY_HEADER.pack(
        entry.magic,
        entry.size,
        entry.index,
        entry.term,
        entry.pos,
        entry.channel,
        entry.chain_crc,
        entry.body_crc,
        len(entry.body),
    )


def encode_index(entry: Entry) -> bytes:
    """Returns the index unit of the entry."""
    return INDEX_UNIT.pack(entry.magic, entry.pos, entry.size, entry.index, entry.term)


def decode_entry(data: bytes) -> Entry:
    """Returns the entry in `data`. Raises `StoreError` where the sizes contradict each other."""
    if len(data) < ENTRY_HEADER_SIZE:
        raise StoreError(f"{len(data)} bytes are no entry")
    magic, size, index, term, pos, channel, chain, crc, length = ENTRY_HEADER.unpack_from(data)
    if size != len(data) or length != size - ENTRY_HEADER_SIZE:
        raise StoreError(f"entry {index} at {pos}: size {size}, body {length}, read {len(data)}")
    return Entry(index, term, pos, data[ENTRY_HEADER_SIZE:], chain, crc, channel, magic)
