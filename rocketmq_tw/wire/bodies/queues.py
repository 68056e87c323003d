"""Bodies about queues: their offsets, groups' offsets, locks, and assignments to consumers.

Format: docs/formats/bodies.md; the files: docs/formats/config-files.md.
"""

from rocketmq_tw.structs import field, msgspec
from rocketmq_tw.wire.bodies.base import Body, DataVersion
from rocketmq_tw.wire.headers.base import Int


class MessageQueue(msgspec.Struct, rename="camel", kw_only=True, frozen=True, order=True):
    """One queue of a topic on a broker name; stock uses it as a key of maps."""

    topic: str = ""
    broker_name: str = ""
    queue_id: int = 0


class ConsumerOffsetTable(Body):
    """Answer to 43, and `consumerOffset.json`: "topic@group" to queue id to offset.

    Two fields are ours. `put_back_queues`: the queues in which a slave that acted for its master
    put a group back, so that a smaller offset counts. `log_place`: pops whose check points stand in
    front of this place of the log are counted.
    """

    offset_table: dict[str, dict[int, int]] = field(default_factory=dict)
    data_version: DataVersion | None = None
    #: With enableLmq: "topic@group" of groups of light queues to the offset in their one queue.
    lmq_offset_table: dict[str, int] | None = None
    put_back_queues: dict[str, list[int]] | None = None
    log_place: int | None = None


class DelayOffsetTable(Body):
    """Answer to 45, and `delayOffset.json`: delay level to offset."""

    offset_table: dict[int, int] = field(default_factory=dict)
    data_version: DataVersion | None = None


class TopicOffset(Body):
    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


class TopicStatsTable(Body):
    """Answer to 202. `topic_put_tps` is 5.x's; None leaves it out."""

    offset_table: dict[MessageQueue, TopicOffset] = field(default_factory=dict)
    topic_put_tps: float | None = 0.0


class OffsetWrapper(Body):
    """`pull_offset` is 5.x's; None leaves it out."""

    broker_offset: int = 0
    consumer_offset: int = 0
    pull_offset: int | None = 0
    last_timestamp: int = 0


class ConsumeStats(Body):
    """Answer to 208."""

    offset_table: dict[MessageQueue, OffsetWrapper] = field(default_factory=dict)
    consume_tps: float = 0.0


class ConsumeStatsList(Body):
    """Answer to 317: group to its statistics, for each group."""

    consume_stats_list: list[dict[str, list[ConsumeStats]]] = field(default_factory=list)
    broker_addr: str | None = None
    total_diff: int = 0
    total_inflight_diff: int | None = 0


class ResetOffsetBody(Body):
    """Request 220 to a client in Java and answer to 222: queue to its new offset."""

    offset_table: dict[MessageQueue, int] = field(default_factory=dict)


class QueueOffset(Body):
    """A queue with an offset, as clients that cannot read object keys get it."""

    topic: str = ""
    broker_name: str = ""
    queue_id: int = 0
    offset: int = 0


class ResetOffsetBodyForC(Body):
    """Request 220 to a client that is not Java's."""

    offset_table: list[QueueOffset] = field(default_factory=list)


class ConsumerStatusBody(Body):
    """Answer to 221 (`message_queue_table`) and 223 (`consumer_table`, by client id)."""

    message_queue_table: dict[MessageQueue, int] = field(default_factory=dict)
    consumer_table: dict[str, dict[MessageQueue, int]] = field(default_factory=dict)


class CorrectionOffsetBody(Body):
    """Answer to 308: queue id to the smallest offset of the filtered groups."""

    correction_offsets: dict[int, int] = field(default_factory=dict)


class QueueTimeSpan(Body):
    """Times in ms; the texts are stock's rendering of them for people."""

    message_queue: MessageQueue | None = None
    min_time_stamp: int = 0
    max_time_stamp: int = 0
    consume_time_stamp: int = 0
    delay_time: int = 0


class ConsumeTimeSpanBody(Body):
    """Answer to 303."""

    consume_time_span_set: list[QueueTimeSpan] = field(default_factory=list)


class ConsumeQueueUnit(Body):
    """One unit of a consume queue, with what its filter says."""

    physic_offset: int = 0
    physic_size: int = 0
    tags_code: int = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


def queue_offsets(offsets: dict[MessageQueue, int]) -> ResetOffsetBodyForC:
    """Returns the body of 220 for a client that is not Java's: a list in place of a map with
    objects as keys."""
    return ResetOffsetBodyForC(
        offset_table=[
            QueueOffset(offset=offset, **msgspec.structs.asdict(queue))
            for queue, offset in offsets.items()
        ]
    )


class LockBatchRequestBody(Body):
    """Request 41. `only_this_broker` is 5.x's: a broker of the group asks, do not ask further."""

    consumer_group: str = ""
    client_id: str = ""
    only_this_broker: bool | None = False
    mq_set: list[MessageQueue] = field(default_factory=list)


class LockBatchResponseBody(Body):
    """Answer to 41: the queues that are locked for the client now."""

    lock_ok_mq_set: list[MessageQueue] = field(default_factory=list, name="lockOKMQSet")


class UnlockBatchRequestBody(LockBatchRequestBody):
    """Request 42."""


class QueryAssignmentRequestBody(Body):
    """Request 400."""

    topic: str = ""
    consumer_group: str = ""
    client_id: str = ""
    strategy_name: str = ""
    message_model: str = "CLUSTERING"


class MessageQueueAssignment(Body):
    """`mode` is PULL or POP; with POP a queue id of -1 stands for all queues of the broker."""

    message_queue: MessageQueue | None = None
    mode: str = "PULL"
    attachments: dict[str, str] | None = None


class QueryAssignmentResponseBody(Body):
    """Answer to 400; None: the client keeps what it has."""

    message_queue_assignments: list[MessageQueueAssignment] | None = None


class SetMessageRequestModeRequestBody(Body):
    """Request 401. `pop_share_queue_num`: so many members behind one in the list share its queues
    with it."""

    topic: str = ""
    consumer_group: str = ""
    mode: str = "PULL"
    pop_share_queue_num: Int = 0


class MessageRequestModeTable(Body):
    """Answer to 402, and `messageRequestMode.json`: topic to group to mode."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]] = field(
        default_factory=dict
    )
