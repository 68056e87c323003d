"""A record of the commit log (docs/formats/commitlog.md)."""

from __future__ import annotations

from typing import Any

import construct as c

MAGIC_V1 = 0xDAA320A7 - (1 << 32)
#: The topic's length has two bytes.
MAGIC_V2 = 0xDAA320AB - (1 << 32)
BLANK_MAGIC = 0xCBD43194 - (1 << 32)

#: Bits of the system flag.
BORN_HOST_V6 = 1 << 4
STORE_HOST_V6 = 1 << 5
TRANSACTION_MASK = 3 << 2
TRANSACTION_PREPARED = 1 << 2
TRANSACTION_ROLLBACK = 3 << 2


def _fields(born: Any, store: Any) -> tuple[c.Construct, ...]:
    """Returns the fields in front of the body, with addresses of so many bytes."""
    return (
        "size" / c.Int32sb,
        "magic" / c.Int32sb,
        "body_crc" / c.Int32sb,
        "queue_id" / c.Int32sb,
        "flag" / c.Int32sb,
        "queue_offset" / c.Int64sb,
        "physical_offset" / c.Int64sb,
        "sys_flag" / c.Int32sb,
        "born_timestamp" / c.Int64sb,
        "born_ip" / c.Bytes(born),
        "born_port" / c.Int32sb,
        "store_timestamp" / c.Int64sb,
        "store_ip" / c.Bytes(store),
        "store_port" / c.Int32sb,
        "reconsume_times" / c.Int32sb,
        "prepared_transaction_offset" / c.Int64sb,
        "body_length" / c.Int32sb,
    )


#: What stands in front of the body, by the two bits of the system flag that say which addresses
#: are IPv6.
FIXED = {
    flags: c.Struct(*_fields(16 if flags & BORN_HOST_V6 else 4, 16 if flags & STORE_HOST_V6 else 4))
    for flags in (0, BORN_HOST_V6, STORE_HOST_V6, BORN_HOST_V6 | STORE_HOST_V6)
}

#: Where a record says which one of its queue it is, and at which of its bytes that stands.
PLACE = c.Struct("queue_id" / c.Int32sb, "flag" / c.Int32sb, "queue_offset" / c.Int64sb)
PLACE_AT = 12

RECORD = c.Struct(
    *_fields(
        lambda this: 16 if this.sys_flag & BORN_HOST_V6 else 4,
        lambda this: 16 if this.sys_flag & STORE_HOST_V6 else 4,
    ),
    c.Check(lambda this: this.magic in (MAGIC_V1, MAGIC_V2)),
    "body" / c.Bytes(c.this.body_length),
    "topic"
    / c.IfThenElse(
        lambda this: this.magic == MAGIC_V2,
        c.Prefixed(c.Int16sb, c.GreedyBytes),
        c.Prefixed(c.Int8ub, c.GreedyBytes),
    ),
    "properties" / c.Prefixed(c.Int16sb, c.GreedyBytes),
)

#: The smallest record: no body, no topic, no properties.
MIN_SIZE = FIXED[0].sizeof() + 3

#: The beginning of a blank, which takes the rest of a file; records begin in the same way.
BLANK = c.Struct("size" / c.Int32sb, "magic" / c.Int32sb)
