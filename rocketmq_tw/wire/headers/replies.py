"""Request-reply between clients."""

from rocketmq_tw.wire.headers.base import Int, Long, TopicRpcHeader


class ReplyMessageRequestHeader(TopicRpcHeader):
    """326, to the client that asked."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    born_host: str
    store_host: str
    properties: str | None = None
    reconsume_times: Int | None = None
    unit_mode: bool = False
    store_timestamp: Long = 0
