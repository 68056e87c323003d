"""Which kind of message a topic takes (`+message.type`), where `enableTopicMessageTypeCheck` is on.

Stock's brokers keep the attribute and take anything; its proxies refuse as is done here.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketmq_tw.message import names
from rocketmq_tw.message import properties as props
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

#: The attribute of a topic that names its kind.
ATTRIBUTE = "message.type"
#: Kinds that stand for all; a topic without the attribute takes all too.
_ANY = frozenset({"MIXED", "UNSPECIFIED"})


def message_type(properties: Mapping[str, str]) -> str:
    """TRANSACTION, DELAY, FIFO or NORMAL, as a message's properties say."""
    if properties.get(props.TRAN_MSG) == "true":
        return "TRANSACTION"
    if props.DELAY in properties or any(name in properties for name in props.TIMER_PROPERTIES):
        return "DELAY"
    return "FIFO" if props.SHARDING_KEY in properties else "NORMAL"


def check_message_type(topic: TopicConfig, properties: Mapping[str, str]) -> None:
    """Raises `RequestError` where the topic is for another kind of messages. What is given back, is
    dead, or was passed on by another broker has its kind behind it."""
    wanted = (topic.attributes or {}).get(ATTRIBUTE)
    if wanted is None or wanted in _ANY or props.TRANSFER_FLAG in properties:
        return
    if topic.topic_name.startswith((names.RETRY_PREFIX, names.DLQ_PREFIX)):
        return
    kind = message_type(properties)
    if kind != wanted:
        raise RequestError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the topic {topic.topic_name} takes {wanted} messages, this one is {kind}: send it to"
            f" a topic of its kind, or change the topic's attribute {ATTRIBUTE}",
        )
