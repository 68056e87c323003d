"""One entry of the log and where it lies in the data files (docs/formats/dledger.md).

The position is part of an entry: the leader assigns it and every follower keeps it, so the data
files of all members are byte for byte the same. Hence the sizes of the files must agree too.
"""

from struct import Struct
from zlib import crc32

from rocketmq_tw.structs import msgspec

MAGIC = 1
#: Bytes of an entry before its body: magic, size, index, term, pos, channel, chain CRC, body CRC,
#: length of the body.
ENTRY_HEADER_SIZE = 48
#: A data file always keeps this many bytes for the BLANK record that closes it.
ENTRY_BLANK_SIZE = 8

_CHAIN = Struct(">IqqqI")


class Entry(msgspec.Struct, frozen=True):
    """An entry as it is stored and sent. `size` counts the header and the body.

    A CRC of 0 means that its writer (stock) left it out.
    """

    index: int
    term: int
    pos: int
    body: bytes
    chain_crc: int = 0
    body_crc: int = 0
    channel: int = 0
    magic: int = MAGIC

    @property
    def size(self) -> int:
        return ENTRY_HEADER_SIZE + len(self.body)

    @property
    def end_pos(self) -> int:
        return self.pos + ENTRY_HEADER_SIZE + len(self.body)


def crc_of_body(body: bytes) -> int:
    """Returns CRC-32 of the body, cut to Java's positive ints."""
    return crc32(body) & 0x7FFFFFFF


def chain_crc(previous: int, index: int, term: int, pos: int, crc: int) -> int:
    """Returns the CRC that covers an entry and all entries before it."""
    return crc32(_CHAIN.pack(previous, index, term, pos, crc)) & 0x7FFFFFFF


def same_entry(ours: Entry, theirs: Entry) -> bool:
    """Returns whether both are one entry; the CRCs do not count, as with stock."""
    return (
        ours.index == theirs.index
        and ours.term == theirs.term
        and ours.pos == theirs.pos
        and ours.magic == theirs.magic
        and ours.channel == theirs.channel
        and ours.body == theirs.body
    )


def crc_fits(entry: Entry) -> bool:
    """Returns whether the body matches its CRC; True where there is no CRC."""
    return entry.body_crc == 0 or entry.body_crc == crc_of_body(entry.body)


def largest_body(file_size: int) -> int:
    """Returns the most bytes of a body that fit in a data file of `file_size` bytes."""
    return file_size - ENTRY_HEADER_SIZE - ENTRY_BLANK_SIZE


def place(end_pos: int, size: int, file_size: int) -> int:
    """Returns where an entry of `size` bytes goes in files of `file_size` bytes that are full up to
    `end_pos`. An entry never crosses the end of a file: one that does not fit with a BLANK behind
    it starts the next file (docs/formats/dledger.md)."""
    left = file_size - end_pos % file_size
    if size + ENTRY_BLANK_SIZE > left:
        return end_pos + left
    return end_pos
