"""A message as a store keeps it, and the bits of its `sysFlag`.

Format: docs/formats/commitlog.md.
"""

from rocketmq_tw.structs import msgspec

COMPRESSED = 1 << 0
MULTI_TAGS = 1 << 1
TRANSACTION_PREPARED = 1 << 2
TRANSACTION_COMMIT = 2 << 2
#: Also the mask of the transaction's two bits.
TRANSACTION_ROLLBACK = 3 << 2
BORN_HOST_V6 = 1 << 4
STORE_HOST_V6 = 1 << 5
#: Three bits that hold a `compression.CompressionType`.
COMPRESSION_TYPE_SHIFT = 8
COMPRESSION_TYPE = 7 << COMPRESSION_TYPE_SHIFT


def transaction_value(flag: int) -> int:
    """Returns the transaction's two bits of a message's flag; 0 where it is no part of one."""
    return flag & TRANSACTION_ROLLBACK


class StoredMessage(msgspec.Struct, kw_only=True, gc=False):
    """One record of a commit log, or one on its way there (docs/formats/commitlog.md).

    `properties` is the wire's text, name 0x01 value 0x02 after each other, kept as bytes so that
    what only passes through is never parsed; `properties.parse_properties` reads it. Hosts are
    `(ip text, port)`; IPv6 sets the flag of `sys_flag`. Times are milliseconds since 1970.
    `physical_offset`, `queue_offset`, `store_timestamp`, `store_size` and `body_crc` are the
    store's to fill. `parsed` spares reading tags, keys and unique id again: what
    `parse_properties` gives for `properties`, all ASCII; what changes these must set it to None.
    """

    topic: str
    queue_id: int
    body: bytes
    properties: bytes = b""
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: tuple[str, int] = ("127.0.0.1", 0)
    store_timestamp: int = 0
    store_host: tuple[str, int] = ("127.0.0.1", 0)
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    store_size: int = 0
    body_crc: int = 0
    parsed: dict[str, str] | None = None

    @property
    def was_stored(self) -> bool:
        """Whether it comes from a log: a copy, or what a message that waited becomes."""
        return self.store_size > 0
