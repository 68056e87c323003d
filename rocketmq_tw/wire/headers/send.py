"""Sends, gives back, replies, recalls and transactions, and their answers.

Format: docs/formats/remoting.md.
"""

from rocketmq_tw.structs import field, msgspec
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.headers.base import Header, Int, Long, RpcHeader, TopicRpcHeader, read_header


class SendMessageRequestHeader(TopicRpcHeader, kw_only=True):
    """Requests 10 and 324. `properties` is name 0x01 value 0x02 ..., `born_timestamp` in ms,
    `queue_id` -1 lets the broker choose; `batch` says that the body holds several messages."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    properties: str | None = None
    reconsume_times: Int | None = None
    unit_mode: bool | None = False
    batch: bool | None = False
    max_reconsume_times: Int | None = None


class SendMessageRequestHeaderV2(SendMessageRequestHeader, kw_only=True):
    """Requests 310, 320 and 325: the same record under shorter names, and the broker's name."""

    producer_group: str = field(name="a")
    topic: str = field(name="b")
    default_topic: str = field(name="c")
    default_topic_queue_nums: Int = field(name="d")
    queue_id: Int = field(name="e")
    sys_flag: Int = field(name="f")
    born_timestamp: Long = field(name="g")
    flag: Int = field(name="h")
    properties: str | None = field(default=None, name="i")
    reconsume_times: Int | None = field(default=None, name="j")
    unit_mode: bool | None = field(default=False, name="k")
    max_reconsume_times: Int | None = field(default=None, name="l")
    batch: bool | None = field(default=False, name="m")
    broker_name: str | None = field(default=None, name="n")


class JsonSend(msgspec.Struct, gc=False):
    """The JSON header of a request 310, with the record that its fields are: `read_json_send` reads
    it at once, without a dictionary of texts between. What it reads, `decode_command` and
    `read_send_header` read alike; what it refuses they may still take, as Java does."""

    fields: SendMessageRequestHeaderV2 = field(name="extFields")
    code: Int = 0
    flag: Int = 0
    language: str = ""
    opaque: Int = 0
    remark: str | None = None
    version: Int = 0


#: (the bytes of a JSON header) -> `JsonSend`; raises `MsgspecError` or `UnicodeDecodeError`.
read_json_send = msgspec.json.Decoder(JsonSend, strict=False).decode


class SendMessageResponseHeader(Header, kw_only=True):
    """Answer to all of them. A batch has its message ids joined by commas."""

    msg_id: str
    queue_id: Int
    queue_offset: Long
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None


class RecallMessageRequestHeader(TopicRpcHeader, kw_only=True):
    """Request 370; `recall_handle` is from the answer to the send of a message with a time of its
    own."""

    topic: str
    recall_handle: str | None = None
    producer_group: str | None = None


class RecallMessageResponseHeader(Header, kw_only=True):
    """`msg_id` is the UNIQ_KEY of the message that is taken back."""

    msg_id: str


class ConsumerSendMsgBackRequestHeader(RpcHeader, kw_only=True):
    """Request 36; `offset` is the message's physical one. `delay_level` below 0 sends it to the
    dead-letter queue, 0 lets the broker choose by the times it was consumed."""

    offset: Long
    group: str
    delay_level: Int
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int | None = None


_SHORT_NAMES = frozenset(
    {
        int(RequestCode.SEND_MESSAGE_V2),
        int(RequestCode.SEND_BATCH_MESSAGE),
        int(RequestCode.SEND_REPLY_MESSAGE_V2),
    }
)


def read_send_header(code: int, fields: dict[str, str]) -> SendMessageRequestHeader:
    """Returns the header of any request that sends, whichever names its code has for the fields.

    Raises `HeaderError`, which names the field as it is on the wire.
    """
    if code in _SHORT_NAMES:
        return read_header(SendMessageRequestHeaderV2, fields)
    return read_header(SendMessageRequestHeader, fields)


class ReplyMessageRequestHeader(TopicRpcHeader):
    """Request 326, to the client that asked."""

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


class EndTransactionRequestHeader(RpcHeader):
    """Request 37; `commit_or_rollback` is a transaction type of the system flag: 8 commit, 12
    rollback, 0 unknown."""

    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: Int
    msg_id: str
    topic: str | None = None
    from_transaction_check: bool = False
    transaction_id: str | None = None


class CheckTransactionStateRequestHeader(RpcHeader):
    """Request 39, to a producer."""

    tran_state_table_offset: Long
    commit_log_offset: Long
    topic: str | None = None
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


class ResumeCheckHalfMessageRequestHeader(Header):
    """Request 323."""

    topic: str | None = None
    msg_id: str | None = None
