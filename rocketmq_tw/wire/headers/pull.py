"""Reads of a queue: pulls (11, 361), and messages by id or key.

Format: docs/formats/remoting.md.
"""

from rocketmq_tw.wire.headers.base import Header, Int, Long, TopicRpcHeader

# Bits of the `sysFlag` of a pull.
PULL_COMMIT_OFFSET = 1 << 0
PULL_SUSPEND = 1 << 1
PULL_SUBSCRIPTION = 1 << 2


class PullMessageRequestHeader(TopicRpcHeader):
    """Requests 11 and 361. `sys_flag`: the `PULL_` bits; `suspend_timeout_millis` is how long an
    empty answer may be held."""

    consumer_group: str
    topic: str
    queue_id: Int
    queue_offset: Long
    max_msg_nums: Int
    sys_flag: Int
    commit_offset: Long
    suspend_timeout_millis: Long
    sub_version: Long
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: Int | None = None
    request_source: Int | None = None
    proxy_froward_client_id: str | None = None


class PullMessageResponseHeader(Header):
    """Answer to 11 and 361."""

    suggest_which_broker_id: Long
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long
    offset_delta: Long | None = None
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None
    forbidden_type: Int | None = None


class ViewMessageRequestHeader(Header):
    """Request 33; `offset` is the physical one."""

    offset: Long
    topic: str | None = None


#: Set to "true" beside the fields of 12 by a client whose key is a unique id.
UNIQUE_KEY_FLAG = "_UNIQUE_KEY_QUERY"


class QueryMessageRequestHeader(TopicRpcHeader):
    """Request 12; times in ms."""

    topic: str
    key: str
    max_num: Int
    begin_timestamp: Long
    end_timestamp: Long


class QueryMessageResponseHeader(Header):
    """Answer to 12."""

    index_last_update_timestamp: Long
    index_last_update_phyoffset: Long


class QueryConsumeQueueRequestHeader(TopicRpcHeader):
    """Request 321."""

    topic: str | None = None
    queue_id: Int = 0
    index: Long = 0
    count: Int = 0
    consumer_group: str | None = None
