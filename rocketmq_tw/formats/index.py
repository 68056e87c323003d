"""A file of the message index (docs/formats/index.md)."""

import construct as c

HEADER = c.Struct(
    "begin_timestamp" / c.Int64sb,
    "end_timestamp" / c.Int64sb,
    "begin_offset" / c.Int64sb,
    "end_offset" / c.Int64sb,
    "slots_in_use" / c.Int32sb,
    #: One more than the number of entries.
    "count" / c.Int32sb,
)
SLOT = c.Int32sb
ENTRY = c.Struct(
    "key_hash" / c.Int32sb,
    "physical_offset" / c.Int64sb,
    "seconds" / c.Int32sb,
    #: Number of the slot's entry before.
    "previous" / c.Int32sb,
)


# `sizeof` takes a while.
HEADER_SIZE: int = HEADER.sizeof()
SLOT_SIZE: int = SLOT.sizeof()
ENTRY_SIZE: int = ENTRY.sizeof()


def entry_at(number: int, slots: int) -> int:
    """Returns where an entry stands in a file with so many slots; the first one has number 1."""
    return HEADER_SIZE + slots * SLOT_SIZE + number * ENTRY_SIZE
