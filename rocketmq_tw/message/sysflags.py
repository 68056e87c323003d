"""The bits of the `sysFlag` of messages, of pulls and of topics."""

# Of a message.
COMPRESSED = 1 << 0
MULTI_TAGS = 1 << 1
TRANSACTION_PREPARED = 1 << 2
TRANSACTION_COMMIT = 2 << 2
#: Also the mask of the transaction's two bits.
TRANSACTION_ROLLBACK = 3 << 2
BORN_HOST_V6 = 1 << 4
STORE_HOST_V6 = 1 << 5
NEED_UNWRAP = 1 << 6
INNER_BATCH = 1 << 7
#: Three bits that hold a `compression.CompressionType`.
COMPRESSION_TYPE_SHIFT = 8
COMPRESSION_TYPE = 7 << COMPRESSION_TYPE_SHIFT

# Of a pull request.
PULL_COMMIT_OFFSET = 1 << 0
PULL_SUSPEND = 1 << 1
PULL_SUBSCRIPTION = 1 << 2
PULL_CLASS_FILTER = 1 << 3
PULL_LITE = 1 << 4

# Of a topic.
TOPIC_UNIT = 1 << 0
TOPIC_UNIT_SUB = 1 << 1


def transaction_value(flag: int) -> int:
    """The transaction's two bits of a message's flag; 0 where it is no part of one."""
    return flag & TRANSACTION_ROLLBACK
