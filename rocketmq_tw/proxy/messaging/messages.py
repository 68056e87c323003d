"""Messages of the gRPC protocol, and what they are to brokers: names, properties, bodies.

What is legal in a message that is sent: `checks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import md5

from rocketmq_tw.message import properties as props
from rocketmq_tw.message.ids import offset_message_id
from rocketmq_tw.message.model import COMPRESSED, StoredMessage
from rocketmq_tw.message.names import (
    DLQ_PREFIX,
)
from rocketmq_tw.message.types import (
    DELAY_TYPE,
    FIFO_TYPE,
    NORMAL_TYPE,
    TRANSACTION_TYPE,
    message_type,
)
from rocketmq_tw.proxy.proto.messages import (
    DigestType,
    Duration,
    Encoding,
    Message,
    MessageType,
    SystemProperties,
    Timestamp,
)

# Looked up once, since each look into an enumeration is a call, and these are for each message.
_TRANSACTION = MessageType.TRANSACTION
_IDENTITY, _GZIP = Encoding.IDENTITY, Encoding.GZIP
_MD5 = DigestType.MD5
_TYPES = {
    NORMAL_TYPE: MessageType.NORMAL,
    FIFO_TYPE: MessageType.FIFO,
    DELAY_TYPE: MessageType.DELAY,
    TRANSACTION_TYPE: MessageType.TRANSACTION,
}
#: The largest number of the protocol's int32.
MAX_INT = (1 << 31) - 1
#: Bytes that a stored message takes beside its body and properties, roughly.
_STORED_OVERHEAD = 2048


def milliseconds(timestamp: Timestamp) -> int:
    """Returns milliseconds since 1970; raises `ValueError` for what is no time between the years 1
    and 9999."""
    seconds, nanos = timestamp.seconds, timestamp.nanos
    if not (-62135596800 <= seconds <= 253402300799 and 0 <= nanos < 1_000_000_000):
        raise ValueError(
            f"{seconds} s and {nanos} ns since 1970 are no time of the years 1 to 9999"
        )
    return seconds * 1000 + nanos // 1_000_000


def timestamp_of(milliseconds_since_1970: int) -> Timestamp:
    """Returns a time of the protocol."""
    timestamp = Timestamp()
    set_time(timestamp, milliseconds_since_1970)
    return timestamp


def set_time(timestamp: Timestamp, milliseconds_since_1970: int) -> None:
    """Sets a time of the protocol."""
    seconds, rest = divmod(milliseconds_since_1970, 1000)
    timestamp.seconds, timestamp.nanos = seconds, rest * 1_000_000


def duration_ms(duration: Duration) -> int:
    """Returns whole milliseconds; what stands behind them is cut off."""
    return duration.seconds * 1000 + duration.nanos // 1_000_000


def duration_of(milliseconds_long: int) -> Duration:
    """Returns a duration of the protocol; `milliseconds_long` is not negative."""
    seconds, rest = divmod(milliseconds_long, 1000)
    return Duration(seconds=seconds, nanos=rest * 1_000_000)


def user_properties(message: Message) -> dict[str, str]:
    """Returns what its user gave a message."""
    # In this way the protocol's map costs a fifth of what `dict` of it does.
    own = message.user_properties
    return {name: own[name] for name in own}


def sent_properties(
    system: SystemProperties, own: Mapping[str, str], group: str, born_host: str
) -> dict[str, str]:
    """Returns the properties that a message is sent with, except those that ask for a time.

    `own` are its user's; `group` stands for its producers, whom brokers ask about transactions;
    `born_host` is where it comes from when it does not say. Empty values cannot be kept and are
    left out.
    """
    properties = {name: value for name, value in own.items() if value}
    properties[props.UNIQ_KEY] = system.message_id
    if system.tag:
        properties[props.TAGS] = system.tag
    keys = [key for key in system.keys if key]
    if keys:
        properties[props.KEYS] = props.KEY_SEPARATOR.join(keys)
    if system.message_type == _TRANSACTION:
        properties[props.TRAN_MSG] = "true"
        if system.HasField("orphaned_transaction_recovery_duration"):
            seconds = system.orphaned_transaction_recovery_duration.seconds
            properties[props.CHECK_IMMUNITY_TIME_IN_SECONDS] = str(seconds)
    properties[props.RECONSUME_TIME] = str(system.delivery_attempt)
    properties[props.PGROUP] = group
    if system.message_group:
        properties[props.SHARDING_KEY] = system.message_group
    if system.trace_context:
        properties[props.TRACE_CONTEXT] = system.trace_context
    host = system.born_host.strip() or born_host
    if host:
        properties[props.BORN_HOST] = host
    if system.HasField("born_timestamp"):
        properties[props.BORN_TIMESTAMP] = str(milliseconds(system.born_timestamp))
    return properties


def stored_size(stored: StoredMessage) -> int:
    """Returns the bytes that a stored message takes in memory, roughly."""
    return len(stored.body) + len(stored.properties) + _STORED_OVERHEAD


def message_of(
    stored: StoredMessage, properties: Mapping[str, str] | None = None, topic: str | None = None
) -> Message:
    """Returns a message as `fill_message` makes it. `properties` are parsed from `stored` where
    they are not given."""
    if properties is None:
        properties = props.parse_properties(stored.properties)
    message = Message()
    fill_message(message, stored, properties, topic)
    return message


def fill_message(
    message: Message,
    stored: StoredMessage,
    properties: Mapping[str, str],
    topic: str | None = None,
) -> None:
    """Makes an empty message, which mostly is a part of a response, one as clients get it: parts
    that are made by themselves are copied into the whole, which takes longer than all else.

    `properties` are those of `stored`, with what an answer to a pop adds to them (`POP_CK` is the
    receipt handle). `topic` is shown in place of the topic that it stands in, as for one that came
    by a retry topic. A packed body, which is one that `Unpacking` could not read, is given out as
    it is. Raises `ValueError` where clients cannot be shown
    the message.
    """
    message.topic.name = topic or stored.topic
    message.body = body = stored.body
    own = message.user_properties
    for name, value in properties.items():
        if name not in props.RESERVED:
            own[name] = value
    system = message.system_properties
    system.message_id = properties.get(props.UNIQ_KEY) or offset_message_id(
        *stored.store_host, stored.physical_offset
    )
    digest = system.body_digest
    digest.type = _MD5
    digest.checksum = md5(body, usedforsecurity=False).hexdigest().upper()
    # Clients tell gzip and zlib apart by the first bytes; most read both.
    system.body_encoding = _GZIP if stored.sys_flag & COMPRESSED else _IDENTITY
    system.message_type = _TYPES[message_type(properties)]
    set_time(system.born_timestamp, stored.born_timestamp)
    system.born_host = properties.get(props.BORN_HOST) or stored.born_host[0]
    set_time(system.store_timestamp, stored.store_timestamp)
    system.store_host = "{}:{}".format(*stored.store_host)
    system.queue_id = stored.queue_id
    system.queue_offset = stored.queue_offset
    system.delivery_attempt = min(stored.reconsume_times, MAX_INT - 1) + 1
    _add_optional(system, stored, properties)


def _add_optional(
    system: SystemProperties, stored: StoredMessage, properties: Mapping[str, str]
) -> None:
    get = properties.get
    if tag := get(props.TAGS):
        system.tag = tag
    if keys := get(props.KEYS):
        system.keys.extend(key for key in keys.split(props.KEY_SEPARATOR) if key)
    if group := get(props.SHARDING_KEY):
        system.message_group = group
    if handle := get(props.POP_CK):
        system.receipt_handle = handle
    if trace := get(props.TRACE_CONTEXT):
        system.trace_context = trace
    delivery = props.deliver_ms(properties, stored.born_timestamp)
    if delivery is not None and 0 <= delivery < 253402300800000:
        set_time(system.delivery_timestamp, delivery)
    dead_topic, dead_id = get(props.DLQ_ORIGIN_TOPIC), get(props.DLQ_ORIGIN_MESSAGE_ID)
    if stored.topic.startswith(DLQ_PREFIX):
        # No broker sets those two by itself.
        dead_topic = dead_topic or get(props.RETRY_TOPIC)
        dead_id = dead_id or get(props.UNIQ_KEY) or get(props.ORIGIN_MESSAGE_ID)
    if dead_topic and dead_id:
        dead = system.dead_letter_queue
        dead.topic, dead.message_id = dead_topic, dead_id
