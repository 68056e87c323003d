"""Parts of the whole tables that slaves and tools copy, which are ours.

Format: docs/formats/bodies.md.
"""

from rocketmq_tw.wire.headers.base import Header, Long


class TablePartRequestHeader(Header):
    """Our fields of 21, 43, 201 and 402, which ask for the table in parts. `part_from` is how many
    bytes came before, `part_of` what the answer with the first of them said."""

    part_from: Long | None = None
    part_of: str | None = None


class TablePartResponseHeader(Header):
    """Answer to 21, 43, 201 and 402 where the body is a part of the table, of which `whole_length`
    is the length in bytes; empty where it is the whole."""

    part_of: str | None = None
    whole_length: Long | None = None
