"""Which queues a consumer gets from the broker, and how it is to read them."""

from msgspec import field

from rocketmq_tw.wire.bodies.base import Body
from rocketmq_tw.wire.bodies.offsets import MessageQueue
from rocketmq_tw.wire.headers.base import Int


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
