"""Consume queues and their extensions (docs/formats/consumequeue.md, consumequeue-ext.md)."""

import construct as c

UNIT = c.Struct("position" / c.Int64sb, "size" / c.Int32sb, "tags_code" / c.Int64sb)

#: The size of a unit that stands for no message.
FILLER_SIZE = 0x7FFFFFFF
#: A tags code below this is the address of an extra, counted from `FIRST_ADDRESS`.
ADDRESSES_END = -(1 << 31)
FIRST_ADDRESS = -(1 << 63)

#: An extra up to its bits.
EXTRA_HEAD = c.Struct(
    "size" / c.Int16sb,
    "tags_code" / c.Int64sb,
    "store_timestamp" / c.Int64sb,
    "bits_size" / c.Int16sb,
)
EXTRA = EXTRA_HEAD + c.Struct("bits" / c.Bytes(c.this.bits_size))
