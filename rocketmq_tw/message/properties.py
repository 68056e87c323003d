"""A message's properties: name 0x01 value 0x02 after each other (docs/formats/message.md).

The names below mean something to a broker or to a client; every other name is the user's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

#: (the bytes of a message's properties) -> does it match?
PropertiesMatch = Callable[[bytes], bool]

NAME_VALUE_SEPARATOR = "\x01"
PROPERTY_SEPARATOR = "\x02"

#: The length is a signed short of the stored record.
MAX_PROPERTIES_LENGTH = 32767

#: A first retry waits at this delay level, each further one at the next.
FIRST_RETRY_LEVEL = 3

#: Between the keys of one message.
KEY_SEPARATOR = " "

KEYS = "KEYS"
TAGS = "TAGS"
WAIT = "WAIT"
DELAY = "DELAY"
RETRY_TOPIC = "RETRY_TOPIC"
REAL_TOPIC = "REAL_TOPIC"
REAL_QID = "REAL_QID"
TRAN_MSG = "TRAN_MSG"
PGROUP = "PGROUP"
MIN_OFFSET = "MIN_OFFSET"
MAX_OFFSET = "MAX_OFFSET"
BUYER_ID = "BUYER_ID"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
TRANSFER_FLAG = "TRANSFER_FLAG"
CORRECTION_FLAG = "CORRECTION_FLAG"
MQ2_FLAG = "MQ2_FLAG"
RECONSUME_TIME = "RECONSUME_TIME"
MSG_REGION = "MSG_REGION"
TRACE_ON = "TRACE_ON"
UNIQ_KEY = "UNIQ_KEY"
EXTEND_UNIQ_INFO = "EXTEND_UNIQ_INFO"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
CONSUME_START_TIME = "CONSUME_START_TIME"
INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
DUP_INFO = "DUP_INFO"
CHECK_IMMUNITY_TIME_IN_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
TRAN_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_ID = "__transactionId__"
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
INSTANCE_ID = "INSTANCE_ID"
CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
TTL = "TTL"
ARRIVE_TIME = "ARRIVE_TIME"
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
CLUSTER = "CLUSTER"
MSG_TYPE = "MSG_TYPE"
POP_CK = "POP_CK"
POP_CK_OFFSET = "POP_CK_OFFSET"
FIRST_POP_TIME = "1ST_POP_TIME"
#: Of check points in the revive topic: which part of its queue the pop took.
POP_CLAIM = "POP_CLAIM"
SHARDING_KEY = "__SHARDINGKEY"
INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
TRACE_CONTEXT = "TRACE_CONTEXT"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
#: By any of these a message asks for a time of its own.
TIMER_PROPERTIES = (TIMER_DELIVER_MS, TIMER_DELAY_SEC, TIMER_DELAY_MS)
TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"
TIMER_DELAY_LEVEL = "TIMER_DELAY_LEVEL"
BORN_HOST = "__BORNHOST"
BORN_TIMESTAMP = "BORN_TIMESTAMP"
DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
CRC32 = "__CRC32#"

#: Properties with a field of their own in a message, or of clients and servers: no user's. Stock's
#: proxy has the same set, without those of message groups, traces and checks of transactions.
RESERVED = frozenset(
    {
        BORN_HOST,
        BORN_TIMESTAMP,
        BUYER_ID,
        CLUSTER,
        CONSUME_START_TIME,
        CORRECTION_FLAG,
        CORRELATION_ID,
        ARRIVE_TIME,
        CRC32,
        DELAY,
        DLQ_ORIGIN_MESSAGE_ID,
        DLQ_ORIGIN_TOPIC,
        DUP_INFO,
        EXTEND_UNIQ_INFO,
        FIRST_POP_TIME,
        INNER_MULTI_QUEUE_OFFSET,
        INSTANCE_ID,
        KEYS,
        MAX_OFFSET,
        MAX_RECONSUME_TIMES,
        MIN_OFFSET,
        MQ2_FLAG,
        MSG_REGION,
        MSG_TYPE,
        ORIGIN_MESSAGE_ID,
        PGROUP,
        POP_CK,
        POP_CK_OFFSET,
        PUSH_REPLY_TIME,
        REAL_QID,
        REAL_TOPIC,
        RECONSUME_TIME,
        REPLY_TO_CLIENT,
        RETRY_TOPIC,
        TAGS,
        *TIMER_PROPERTIES,
        TIMER_DELAY_LEVEL,
        TIMER_DEL_UNIQKEY,
        TIMER_DEQUEUE_MS,
        TIMER_ENQUEUE_MS,
        TIMER_OUT_MS,
        TIMER_ROLL_TIMES,
        TRACE_ON,
        TRANSFER_FLAG,
        TRAN_MSG,
        TRAN_PREPARED_QUEUE_OFFSET,
        TTL,
        UNIQ_KEY,
        WAIT,
    }
)

_number = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII).fullmatch


def parse_properties(text: str | bytes) -> dict[str, str]:
    """Returns the properties in `text`, in its order; of a name that stands twice, the last value.

    What has no separator, no name or no value is left out, as stock leaves it out; bytes that are
    no UTF-8 become U+FFFD.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    properties = {}
    for entry in text.split(PROPERTY_SEPARATOR):
        name, _, value = entry.partition(NAME_VALUE_SEPARATOR)
        if name and value:
            properties[name] = value
    return properties


def join_properties(properties: Mapping[str, str]) -> bytes:
    """Returns the wire's text of `properties`, UTF-8; a lone surrogate becomes `?` as Java writes
    it."""
    text = "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
    return text.encode("utf-8", "replace")


def rejoin_properties(text: str, properties: Mapping[str, str]) -> bytes:
    """Returns `join_properties` of what `parse_properties` made of `text`, mostly without joining:
    where no entry was left out and none stood twice, it is `text` itself."""
    if len(properties) == text.count(PROPERTY_SEPARATOR):
        if text[-1:] == PROPERTY_SEPARATOR or not text:
            return text.encode("utf-8", "replace")
    elif len(properties) == text.count(PROPERTY_SEPARATOR) + 1:
        return text.encode("utf-8", "replace") + b"\x02"
    return join_properties(properties)


def number(value: str | None) -> int | None:
    """Returns the whole number that a property says; None for what is none that a long can hold."""
    if value is None or not _number(value):
        return None
    found = int(value)
    return found if -(1 << 63) <= found < 1 << 63 else None


def is_true(value: str | None) -> bool:
    """Returns whether a property says true: in any case, and nothing else."""
    return value is not None and value.lower() == "true"


def is_delayed(properties: Mapping[str, str]) -> bool:
    """Returns whether a message asks for a delay level or for a time of its own."""
    return DELAY in properties or not properties.keys().isdisjoint(TIMER_PROPERTIES)


def deliver_ms(properties: Mapping[str, str], from_ms: int) -> int | None:
    """Returns the time in ms since 1970 that a message asks for, where a delay counts from
    `from_ms`, also since 1970: now for one that is being sent, its store time for one that is
    stored, the time at which its producer made it for one that a client is shown. None where it
    asks for none, or its property is no number."""
    for name, unit in ((TIMER_DELAY_SEC, 1000), (TIMER_DELAY_MS, 1)):
        if name in properties:
            delay = number(properties[name])
            return None if delay is None else from_ms + delay * unit
    return number(properties.get(TIMER_DELIVER_MS))


def waits_for_store(properties: Mapping[str, str]) -> bool:
    """Returns whether the sender wants its answer only after flush and replicas: unless `WAIT`
    denies."""
    wait = properties.get(WAIT)
    return wait is None or wait == "true" or wait.lower() == "true"
