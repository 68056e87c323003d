"""Half messages as they are stored, and what is stored for them: the real message, a copy that is
asked about again, one that is given up, and op messages, which name those that are settled
(docs/formats/transactions.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from rocketmq_tw.message import properties as props
from rocketmq_tw.message.model import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK, StoredMessage
from rocketmq_tw.message.names import HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from rocketmq_tw.message.properties import join_properties, parse_properties
from rocketmq_tw.message.room import MOST_STORED, without_brokers_own
from rocketmq_tw.structs import msgspec

#: The group whose consumer offsets say how far half and op messages are settled, as in stock.
SYSTEM_GROUP = "CID_RMQ_SYS_TRANS"
#: All half and op messages are in this queue of their topics.
QUEUE = 0
#: The tag of op messages.
SETTLED_TAG = "d"

_LARGEST = (1 << 63) - 1
#: Bytes that the counts of a copy take at most.
_COUNTS = 100
_PARSED_OP_PROPERTIES = {props.TAGS: SETTLED_TAG, props.WAIT: "true"}
_OP_PROPERTIES = join_properties(_PARSED_OP_PROPERTIES)


class Half:
    """A half message as it is stored, with its parsed properties, which nobody changes any more."""

    __slots__ = ("checks", "message", "names_origin", "properties", "real_queue", "real_topic")

    def __init__(self, message: StoredMessage, properties: dict[str, str] | None = None) -> None:
        if properties is None:
            properties = parse_properties(message.properties)
        self.message = message
        self.properties = properties
        #: The topic that the message is for; empty where it names none.
        self.real_topic = properties.get(props.REAL_TOPIC, "")
        #: The queue id that the message is for; None where it names none.
        self.real_queue = whole(properties.get(props.REAL_QID))
        #: Whether it names the first copy; copies of stock's do not.
        self.names_origin = props.TRAN_PREPARED_QUEUE_OFFSET in properties
        #: How often its producer was asked.
        self.checks = whole(properties.get(props.TRANSACTION_CHECK_TIMES)) or 0

    @property
    def origin(self) -> int:
        """The queue offset of the first copy, by which all copies belong together."""
        if not self.names_origin:
            return self.message.queue_offset
        first = whole(self.properties[props.TRAN_PREPARED_QUEUE_OFFSET])
        return self.message.queue_offset if first is None else first

    @property
    def offset(self) -> int:
        """The offset of this copy in the half topic's queue."""
        return self.message.queue_offset

    @property
    def is_whole(self) -> bool:
        """Whether it names the topic and the queue that it is for."""
        return bool(self.real_topic) and self.real_queue is not None

    @property
    def group(self) -> str:
        """The producer group; empty where it names none."""
        return self.properties.get(props.PGROUP, "")

    @property
    def unique_id(self) -> str:
        """The id that the producer gave the message; empty without one."""
        return self.properties.get(props.UNIQ_KEY, "")

    @property
    def is_copy(self) -> bool:
        """Whether a broker has put it back; a copy of stock's counts checks alone."""
        return self.names_origin or self.checks > 0

    @property
    def immunity_seconds(self) -> int | None:
        """For how many seconds its producer wants not to be asked; None where it does not say."""
        return whole(self.properties.get(props.CHECK_IMMUNITY_TIME_IN_SECONDS))

    def born_by(self) -> int:
        """Returns when it was born, in ms since 1970, or stored, where its producer's clock is
        ahead."""
        return min(self.message.born_timestamp, self.message.store_timestamp)


def whole(text: str | None) -> int | None:
    """Returns the whole number that a property says; None where it is none. One that is more than a
    long can hold is the largest long."""
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 19:
        return None
    return min(int(text), _LARGEST)


def make_half(message: StoredMessage, properties: dict[str, str]) -> None:
    """Turns what a producer sent into a half message, in place but for the bytes of its properties.
    What a broker counts is the broker's: a message that was consumed and is sent again brings
    nothing of it along."""
    properties.pop(props.TRAN_PREPARED_QUEUE_OFFSET, None)
    properties.pop(props.TRANSACTION_CHECK_TIMES, None)
    unique_id = properties.get(props.UNIQ_KEY)
    if unique_id:
        properties[props.TRANSACTION_ID] = unique_id
    properties[props.REAL_TOPIC] = message.topic
    properties[props.REAL_QID] = str(message.queue_id)
    message.topic = HALF_TOPIC
    message.queue_id = QUEUE
    message.sys_flag &= ~TRANSACTION_ROLLBACK


def real_message(half: Half) -> StoredMessage:
    """Makes the message for consumers once `half` is committed, with the properties of `half` as in
    stock."""
    message, queue_id = half.message, half.real_queue
    assert queue_id is not None, "a half message that names no queue was committed"
    return msgspec.structs.replace(
        message,
        topic=half.real_topic,
        queue_id=queue_id,
        sys_flag=message.sys_flag & ~TRANSACTION_ROLLBACK | TRANSACTION_COMMIT,
        prepared_transaction_offset=message.physical_offset,
    )


def asked_again(half: Half, checks: int) -> StoredMessage:
    """Returns the copy at the queue's end that takes the place of `half` and counts its checks."""
    properties = half.properties | {
        props.TRANSACTION_CHECK_TIMES: str(checks),
        props.TRAN_PREPARED_QUEUE_OFFSET: str(half.origin),
    }
    return _put_back(half, properties)


def may_be_asked_again(half: Half) -> bool:
    """Returns whether a copy of `half` has room for the count of its checks: stock leaves none."""
    if len(half.message.properties) <= MOST_STORED - _COUNTS:
        return True
    return len(asked_again(half, half.checks + 1).properties) <= MOST_STORED


def resumed(half: Half) -> StoredMessage:
    """Returns the copy of a half message, given up or waiting, whose checks are counted from 0
    again."""
    properties = half.properties | {props.TRANSACTION_CHECK_TIMES: "0"}
    if half.message.topic == HALF_TOPIC:
        properties[props.TRAN_PREPARED_QUEUE_OFFSET] = str(half.origin)
    return _put_back(half, properties)


def _put_back(half: Half, properties: dict[str, str]) -> StoredMessage:
    return msgspec.structs.replace(
        half.message,
        topic=HALF_TOPIC,
        queue_id=QUEUE,
        properties=join_properties(without_brokers_own(properties)),
        store_timestamp=0,
        parsed=None,
    )


def given_up(half: Half) -> StoredMessage:
    """Makes the message that is kept of `half` when it is given up undecided."""
    return msgspec.structs.replace(half.message, topic=TRANS_CHECK_MAX_TIME_TOPIC, queue_id=QUEUE)


def shown_to_producer(half: Half, copy: StoredMessage) -> StoredMessage:
    """Returns the message with which its producer is asked: with the topic and queue that it is
    for, and the place in the log of `copy`."""
    queue_id = half.real_queue
    assert queue_id is not None, "a half message that names no queue is asked about"
    return msgspec.structs.replace(copy, topic=half.real_topic, queue_id=queue_id)


def op_message(offsets: Sequence[int], host: tuple[str, int], now_ms: int) -> StoredMessage:
    """Returns the op message that says that the half messages at `offsets` of their queue are
    settled: one alone as 4.9 writes it, which both versions read; several as 5.x does."""
    text = str(offsets[0]) if len(offsets) == 1 else "".join([f"{offset}," for offset in offsets])
    return StoredMessage(
        topic=OP_HALF_TOPIC,
        queue_id=QUEUE,
        body=text.encode(),
        properties=_OP_PROPERTIES,
        born_timestamp=now_ms,
        born_host=host,
        store_host=host,
        parsed=_PARSED_OP_PROPERTIES,
    )


def settled_offsets(op: StoredMessage) -> list[int]:
    """Returns the offsets that an op message names; texts that are no number are ignored."""
    if parse_properties(op.properties).get(props.TAGS) != SETTLED_TAG:
        return []
    parts = op.body.decode("utf-8", "replace").split(",")
    return [offset for offset in map(whole, parts) if offset is not None]
