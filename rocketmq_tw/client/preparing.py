"""From messages to the requests that send them: properties, unique ids, compression, batches."""

import os
import secrets
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import NamedTuple

from rocketmq_tw.client.message import Message, ReceivedMessage
from rocketmq_tw.client.settings import COMPRESS_OVER
from rocketmq_tw.message.batch import BatchedMessage, encode_batch
from rocketmq_tw.message.compression import CompressionType, compress, compression_flag
from rocketmq_tw.message.ids import UniqueIds
from rocketmq_tw.message.model import COMPRESSED, COMPRESSION_TYPE
from rocketmq_tw.message.names import AUTO_CREATE_TOPIC, RETRY_PREFIX, check_topic
from rocketmq_tw.message.properties import (
    DELAY,
    KEY_SEPARATOR,
    KEYS,
    MAX_PROPERTIES_LENGTH,
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    SHARDING_KEY,
    TAGS,
    TRAN_MSG,
    UNIQ_KEY,
    WAIT,
    is_delayed,
    is_true,
    join_properties,
    waits_for_store,
)
from rocketmq_tw.net.address import host_address
from rocketmq_tw.runtime.clock import wall_clock_ms
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.send import SendMessageRequestHeaderV2

#: Bytes of the largest message, as in stock's producer.
MAX_MESSAGE_SIZE = 4 * 1024 * 1024
DEFAULT_TOPIC_QUEUES = 4
_NAME_END, _VALUE_END = NAME_VALUE_SEPARATOR.encode(), PROPERTY_SEPARATOR.encode()


class Prepared(NamedTuple):
    """Ready to be sent to any queue; `message_id` are the unique ids, joined by commas.

    The last two are for a retry topic: how often the message was tried, and how often it may be
    before it goes to the dead-letter queue; None: as often as the group has it."""

    topic: str
    body: bytes
    properties: str
    sys_flag: int
    flag: int
    message_id: str
    batch: bool
    reconsume_times: int = 0
    max_reconsume_times: int | None = None


class Preparer:
    """Turns messages into what is sent; one for each client, since it makes the unique ids."""

    def __init__(self, ids: UniqueIds, *, compress_over: int = COMPRESS_OVER) -> None:
        self._ids = ids
        self._compress_over = compress_over

    def prepare(self, message: Message) -> Prepared:
        """Returns one message. Raises `TypeError`, `ValueError` or `RequestError` that says what is
        wrong with it."""
        _check_type(message.body)
        _check(message.topic, message.body)
        properties, message_id = self._properties(message)
        body, sys_flag = _compressed(message.body, self._compress_over)
        return Prepared(
            message.topic,
            body,
            properties_text(properties),
            sys_flag,
            message.flag,
            message_id,
            False,
        )

    def prepare_batch(self, messages: Sequence[Message]) -> Prepared:
        """Returns several messages of one topic in one request."""
        if not messages:
            raise ValueError("a batch needs at least one message")
        topic, wait = messages[0].topic, _wait(messages[0])
        if topic.startswith(RETRY_PREFIX):
            raise ValueError(f"a batch cannot go to the retry topic {topic}: send one by one")
        parts, ids = [], []
        for message in messages:
            if message.topic != topic:
                raise ValueError(f"a batch has one topic: {topic} and {message.topic} are two")
            if _wait(message) != wait:
                # Brokers answer once, as the whole batch asks.
                raise ValueError("a batch has one wait_store: send two batches")
            _check_type(message.body)
            properties, message_id = self._properties(message)
            if is_delayed(properties):
                raise ValueError("messages of a batch cannot be delayed: send them one by one")
            ids.append(message_id)
            parts.append(
                BatchedMessage(message.flag, message.body, properties_text(properties).encode())
            )
        body = encode_batch(parts)
        _check(topic, body)
        # Stock's brokers append these to each message's own, so no id may stand here.
        text = properties_text({WAIT: wait})
        return Prepared(topic, body, text, 0, 0, ",".join(ids), True)

    def _properties(self, message: Message) -> tuple[dict[str, str], str]:
        properties = dict(message.properties)
        if is_true(properties.get(TRAN_MSG)):
            # A half message, which no consumer would see: nothing here can commit it.
            raise ValueError(f"the property {TRAN_MSG}: these producers send no transactions")
        keys = message.keys
        if keys:
            properties[KEYS] = keys if isinstance(keys, str) else KEY_SEPARATOR.join(keys)
        if message.tags:
            properties[TAGS] = message.tags
        if message.delay_level:
            properties[DELAY] = str(message.delay_level)
        if message.sharding_key:
            properties[SHARDING_KEY] = message.sharding_key
        properties[WAIT] = _wait(message)
        message_id = properties.get(UNIQ_KEY)
        if message_id is None:
            message_id = properties[UNIQ_KEY] = self._ids.next()
        return properties, message_id


def check_queue(queue: MessageQueue | None, topic: str) -> None:
    """Raises `ValueError` where a queue that was chosen is none of the topic's."""
    if queue is not None and queue.topic != topic:
        raise ValueError(
            f"a queue of {queue.topic} for a message of {topic}: choose one of {topic}"
        )


def send_header(
    prepared: Prepared, group: str, queue: MessageQueue, born_timestamp: int
) -> SendMessageRequestHeaderV2:
    """Returns the header of the request (310 or 320) that sends to `queue`."""
    return SendMessageRequestHeaderV2(
        producer_group=group,
        topic=prepared.topic,
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_nums=DEFAULT_TOPIC_QUEUES,
        queue_id=queue.queue_id,
        sys_flag=prepared.sys_flag,
        born_timestamp=born_timestamp,
        flag=prepared.flag,
        properties=prepared.properties,
        reconsume_times=prepared.reconsume_times,
        max_reconsume_times=prepared.max_reconsume_times,
        batch=prepared.batch,
        broker_name=queue.broker_name,
    )


def send_command(
    prepared: Prepared,
    group: str,
    queue: MessageQueue,
    born_timestamp: int,
    *,
    oneway: bool = False,
) -> RemotingCommand:
    """Returns the request (310 or 320) that sends to `queue`."""
    header = send_header(prepared, group, queue, born_timestamp)
    code = RequestCode.SEND_BATCH_MESSAGE if prepared.batch else RequestCode.SEND_MESSAGE_V2
    return RemotingCommand.request(code, header, prepared.body, oneway=oneway)


def prepare_again(
    message: ReceivedMessage,
    topic: str,
    properties: Mapping[str, str],
    most: int,
    *,
    is_damaged: bool = False,
) -> Prepared:
    """Returns a message that was received, to be sent to a retry topic with these properties: it
    was tried once more, and goes to the dead-letter queue once that is more than `most`. What its
    producer may set is not checked again; the body of a damaged one stays as it is stored."""
    body, sys_flag = message.body, message.sys_flag & (COMPRESSED | COMPRESSION_TYPE)
    if not is_damaged:
        body, sys_flag = _compressed(body, COMPRESS_OVER)
    return Prepared(
        topic,
        body,
        join_properties(properties).decode(),
        sys_flag,
        message.flag,
        message.message_id,
        False,
        message.reconsume_times + 1,
        most,
    )


def process_unique_ids() -> UniqueIds:
    """Returns unique ids of a series of its own. It is told by chance from the others of this
    process, and from those of other containers, which may have the same address and process id."""
    series = secrets.randbits(32)
    return UniqueIds(ip_address(host_address()).packed, os.getpid(), series, wall_clock_ms)


def _wait(message: Message) -> str:
    """Returns the property by which a message asks to be acknowledged only once it is safe."""
    return "true" if message.wait_store and waits_for_store(message.properties) else "false"


def _compressed(body: bytes, over: int) -> tuple[bytes, int]:
    """Returns what is sent of a body, and the flags that say so."""
    if len(body) >= over:
        compressed = compress(body, CompressionType.ZLIB)
        # What cannot be compressed would get longer, also than brokers take.
        if len(compressed) < len(body):
            return compressed, compression_flag(CompressionType.ZLIB)
    return body, 0


def _check_type(body: object) -> None:
    if not isinstance(body, bytes | bytearray | memoryview):
        raise TypeError(f"a body of type {type(body).__name__}: give bytes, as of text.encode()")


def _check(topic: str, body: bytes) -> None:
    check_topic(topic)
    if len(body) > MAX_MESSAGE_SIZE:
        raise ValueError(f"a body of {len(body)} bytes: at most {MAX_MESSAGE_SIZE} are taken")


def _check_property(name: str, value: str) -> None:
    if not name or not value:
        raise ValueError(f"the property {name!r} with the value {value!r}: neither may be empty")
    for separator in (NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR):
        if separator in name or separator in value:
            raise ValueError(f"the property {name!r} has the byte {ord(separator)}, a separator")


def properties_text(properties: dict[str, str]) -> str:
    """Returns the wire's text of properties; raises `ValueError` that says what is wrong with
    them."""
    data = join_properties(properties)
    count = len(properties)
    if (
        # No name and no value has a separator: each is there once for a property.
        data.count(_NAME_END) != count
        or data.count(_VALUE_END) != count
        or "" in properties
        or "" in properties.values()
    ):
        for name, value in properties.items():
            _check_property(name, value)
    if len(data) > MAX_PROPERTIES_LENGTH:
        raise ValueError(f"properties of more than {MAX_PROPERTIES_LENGTH} bytes")
    return data.decode()
