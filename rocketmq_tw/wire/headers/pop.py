"""Pop consumption: 200050 to 200055.

Format: docs/formats/remoting.md; what is stored: docs/formats/pop.md.
"""

from rocketmq_tw.wire.headers.base import Header, Int, Long, TopicRpcHeader


class PopMessageRequestHeader(TopicRpcHeader, kw_only=True):
    """Request 200050. `queue_id` -1 is any queue; times in ms: `invisible_time` is how long what is
    popped is hidden from others, `poll_time` how long an empty answer may be held, from `born_time`
    on. `init_mode` says where a group begins that has no offset: 0 at the oldest, 1 at the newest
    message. `order` and `attempt_id` are for groups that consume orderly."""

    consumer_group: str
    topic: str
    queue_id: Int
    max_msg_nums: Int
    invisible_time: Long
    poll_time: Long
    born_time: Long = 0
    init_mode: Int
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None


class PopMessageResponseHeader(Header):
    """Answer to 200050 and 200052. The last three say for each queue, with `;` between them: its
    kind (0 normal, 1 and 2 retry) and id, then where its check point begins, the offsets of its
    messages, and how often they were consumed before."""

    pop_time: Long = 0
    invisible_time: Long = 0
    revive_qid: Int = 0
    rest_num: Long = 0
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class AckMessageRequestHeader(TopicRpcHeader):
    """Request 200051. `extra_info` is what the message was popped with."""

    consumer_group: str
    topic: str
    queue_id: Int
    extra_info: str
    offset: Long


#: A field of ours of requests 200051 and 200151, "true" where these are refused if a queue has not
#: all that they name, or an orderly group popped it again since. Stock's brokers pass over it, and
#: over such messages.
REFUSES_MISSING_FLAG = "refusesMissing"
#: A field of ours of request 200053 in orderly groups, "true" where the attempt that popped the
#: message is not made again: another consumer has what it popped. Stock's brokers pass over it.
ENDS_ATTEMPT_FLAG = "endsAttempt"
#: A field of ours of request 200053 in orderly groups, "true" where no consumer got the message: it
#: is visible at once, and this pop does not count. Stock's brokers go by the invisible time.
UNDELIVERED_FLAG = "undelivered"


class ChangeInvisibleTimeRequestHeader(TopicRpcHeader):
    """Request 200053; `invisible_time` in ms from now on."""

    consumer_group: str
    topic: str
    queue_id: Int
    extra_info: str
    offset: Long
    invisible_time: Long


class ChangeInvisibleTimeResponseHeader(Header):
    """Answer to 200053: what the message's extra info says from now on."""

    pop_time: Long = 0
    invisible_time: Long = 0
    revive_qid: Int = 0


class PeekMessageRequestHeader(TopicRpcHeader):
    """Request 200052."""

    consumer_group: str
    topic: str
    queue_id: Int
    max_msg_nums: Int


class NotificationRequestHeader(TopicRpcHeader, kw_only=True):
    """Request 200054: tells when there is something to pop, and pops nothing."""

    consumer_group: str
    topic: str
    queue_id: Int
    poll_time: Long
    born_time: Long = 0
    order: bool | None = None
    attempt_id: str | None = None


class NotificationResponseHeader(Header):
    """Answer to 200054; `polling_full`: too many wait already."""

    has_msg: bool = False
    polling_full: bool = False


class PollingInfoRequestHeader(TopicRpcHeader):
    """Request 200055."""

    consumer_group: str
    topic: str
    queue_id: Int


class PollingInfoResponseHeader(Header):
    """Answer to 200055: how many pops of the group wait for this queue."""

    polling_num: Int = 0
