"""Types of messages, and the attribute of a topic that says which it takes."""

from __future__ import annotations

from collections.abc import Mapping

from rocketmq_tw.message.names import DLQ_PREFIX, RETRY_PREFIX
from rocketmq_tw.message.properties import (
    REAL_TOPIC,
    SHARDING_KEY,
    TRAN_MSG,
    TRANSFER_FLAG,
    is_delayed,
)
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

#: The attribute of a topic that names its type.
MESSAGE_TYPE = "message.type"
NORMAL_TYPE = "NORMAL"
FIFO_TYPE = "FIFO"
DELAY_TYPE = "DELAY"
TRANSACTION_TYPE = "TRANSACTION"
#: What a message may be.
MESSAGE_TYPES = (NORMAL_TYPE, FIFO_TYPE, DELAY_TYPE, TRANSACTION_TYPE)
#: The type of a topic that takes all.
MIXED_TYPE = "MIXED"
UNSPECIFIED_TYPE = "UNSPECIFIED"
#: Types that stand for all; a topic without the attribute takes all too.
_ANY = frozenset({MIXED_TYPE, UNSPECIFIED_TYPE})
#: Of a message that another broker sends on: which type it had was checked there.
_PASSED_ON = frozenset({TRANSFER_FLAG, REAL_TOPIC})


def message_type(properties: Mapping[str, str]) -> str:
    """Returns TRANSACTION, DELAY, FIFO or NORMAL, as a message's properties say."""
    if properties.get(TRAN_MSG) == "true":
        return TRANSACTION_TYPE
    if is_delayed(properties):
        return DELAY_TYPE
    return FIFO_TYPE if SHARDING_KEY in properties else NORMAL_TYPE


def topic_type(attributes: Mapping[str, str] | None) -> str:
    """Returns the type of messages that a topic with these attributes takes: stock's proxies take
    NORMAL ones only where it has none. A type that is not specified takes all, as MIXED does."""
    found = (attributes or {}).get(MESSAGE_TYPE, NORMAL_TYPE)
    return MIXED_TYPE if found == UNSPECIFIED_TYPE else found


def has_type(topic: str) -> bool:
    """Returns whether messages of a topic are of one type; those of retries and dead letters are
    of any."""
    return not topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def check_message_type(topic: TopicConfig, properties: Mapping[str, str]) -> None:
    """Raises `RequestError` where the topic takes another kind of messages (its attribute
    `message.type`, with `enableTopicMessageTypeCheck`). Stock's brokers keep the attribute and take
    anything; its proxies refuse as is done here. Topics of retries and dead letters, and messages
    that another broker passed on or had waiting, are not checked."""
    wanted = (topic.attributes or {}).get(MESSAGE_TYPE)
    if wanted is None or wanted in _ANY or not _PASSED_ON.isdisjoint(properties):
        return
    if not has_type(topic.topic_name):
        return
    kind = message_type(properties)
    if kind != wanted:
        raise RequestError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the topic {topic.topic_name} takes {wanted} messages, this one is {kind}: send it to"
            f" a topic of its kind, or change the topic's attribute {MESSAGE_TYPE}",
        )
