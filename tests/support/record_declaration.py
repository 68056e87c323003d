"""A stored record declared with `construct` (docs/formats/commitlog.md), independently of the
package's own layout and reader, which are tested against it."""

import construct as c

from rocketmq_tw.message.layout import MAGIC_V1, MAGIC_V2
from rocketmq_tw.message.model import BORN_HOST_V6, STORE_HOST_V6


def _host_of(flag: int) -> c.Construct:
    return c.Struct(
        "ip" / c.Bytes(lambda this: 16 if this._.sys_flag & flag else 4),
        "port" / c.Int32sb,
    )


RECORD = c.Struct(
    "size" / c.Int32sb,
    "magic" / c.OneOf(c.Int32sb, (MAGIC_V1, MAGIC_V2)),
    "body_crc" / c.Int32sb,
    "queue_id" / c.Int32sb,
    "flag" / c.Int32sb,
    "queue_offset" / c.Int64sb,
    "physical_offset" / c.Int64sb,
    "sys_flag" / c.Int32sb,
    "born_timestamp" / c.Int64sb,
    "born_host" / _host_of(BORN_HOST_V6),
    "store_timestamp" / c.Int64sb,
    "store_host" / _host_of(STORE_HOST_V6),
    "reconsume_times" / c.Int32sb,
    "prepared_transaction_offset" / c.Int64sb,
    "body" / c.Prefixed(c.Int32sb, c.GreedyBytes),
    "topic"
    / c.IfThenElse(
        lambda this: this.magic == MAGIC_V2,
        c.Prefixed(c.Int16sb, c.GreedyBytes),
        c.Prefixed(c.Int8sb, c.GreedyBytes),
    ),
    "properties" / c.Prefixed(c.Int16sb, c.GreedyBytes),
)
