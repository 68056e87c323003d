"""Timed messages: the timer log, the wheel and their checkpoint (docs/formats/timers.md)."""

import construct as c

LOG_ENTRY = c.Struct(
    "size" / c.Int32sb,
    "previous" / c.Int64sb,
    "magic" / c.Int32sb,
    "wait_start" / c.Int64sb,
    "wait_ms" / c.Int32sb,
    "physical_offset" / c.Int64sb,
    "record_size" / c.Int32sb,
    "topic_hash" / c.Int32sb,
    "reserved" / c.Int64sb,
)
#: In place of an entry for which a file has no room.
LOG_BLANK = c.Struct("size" / c.Int32sb, c.Padding(8), "magic" / c.Int32sb)
LOG_BLANK_MAGIC = 0xCBD43194 - (1 << 32)

SLOTS = 1_209_600
SLOT = c.Struct(
    "time" / c.Int64sb,
    "first" / c.Int64sb,
    "last" / c.Int64sb,
    "number" / c.Int32sb,
    "reserved" / c.Int32sb,
)

PROGRESS = c.Struct(
    "delivered_up_to" / c.Int64sb,
    "log_end" / c.Int64sb,
    "queue_offset" / c.Int64sb,
    "master_queue_offset" / c.Int64sb,
    "state_version" / c.Int64sb,
    "version_timestamp" / c.Int64sb,
    "version_counter" / c.Int64sb,
)
