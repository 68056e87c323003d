"""The records of a pull response as messages: the hot loop of every consumer."""

import zlib
from struct import error as StructError

from rocketmq_tw.client.message import ReceivedMessage
from rocketmq_tw.message.compression import compression_type, decompress
from rocketmq_tw.message.layout import MAGIC_V1, MAGIC_V2, SHORT_LENGTH, fixed_part
from rocketmq_tw.message.model import COMPRESSED
from rocketmq_tw.message.record import host_text
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.errors import BodyError


def decode_messages(
    data: bytes, queue: MessageQueue, problems: dict[int, str] | None = None
) -> list[ReceivedMessage]:
    """Returns the messages of a pull response's body, compressed bodies unpacked.

    Raises `BodyError` where a record is damaged: its length, magic or CRC. With `problems` a
    damaged body is left as it is, and what is wrong with it stands there under the index of its
    message.
    """
    messages: list[ReceivedMessage] = []
    position, end = 0, len(data)
    try:
        while position < end:
            try:
                message, following = _decode(data, position, queue)
            except ValueError as error:
                if problems is None:
                    raise
                message, following = _decode(data, position, queue, body_counts=False)
                problems[len(messages)] = str(error)
            messages.append(message)
            position = following
    except (StructError, IndexError, ValueError) as error:
        raise BodyError(f"no sound record at byte {position} of {end}: {error}") from error
    return messages


def _decode(
    data: bytes, position: int, queue: MessageQueue, *, body_counts: bool = True
) -> tuple[ReceivedMessage, int]:
    layout = fixed_part(data, position)
    (
        size,
        magic,
        crc,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp,
        born_ip,
        born_port,
        store_timestamp,
        store_ip,
        store_port,
        reconsume_times,
        _prepared,
        body_length,
    ) = layout.unpack_from(data, position)
    following = position + size
    start = position + layout.size
    stop = start + body_length
    if body_length < 0 or stop >= following or following > len(data):
        raise ValueError(f"its size of {size} contradicts its parts")
    body = data[start:stop]
    if magic == MAGIC_V1:
        topic_start = stop + 1
        topic_end = topic_start + data[stop]
    elif magic == MAGIC_V2:
        topic_start = stop + 2
        topic_end = topic_start + SHORT_LENGTH.unpack_from(data, stop)[0]
    else:
        raise ValueError(f"its magic is {magic}")
    (properties_length,) = SHORT_LENGTH.unpack_from(data, topic_end)
    if topic_end + 2 + properties_length != following:
        raise ValueError(f"its size of {size} contradicts its parts")
    if body_counts and body and zlib.crc32(body) & 0x7FFFFFFF != crc:
        raise ValueError("the CRC is not its body's")
    if body_counts and sys_flag & COMPRESSED:
        kind = compression_type(sys_flag)
        assert kind is not None
        body = decompress(body, kind)
    if queue_id != queue.queue_id:
        queue = MessageQueue(topic=queue.topic, broker_name=queue.broker_name, queue_id=queue_id)
    message = ReceivedMessage(
        data[topic_start:topic_end].decode(),
        body,
        queue,
        queue_offset,
        physical_offset,
        born_timestamp,
        (host_text(born_ip), born_port),
        store_timestamp,
        (host_text(store_ip), store_port),
        reconsume_times,
        flag,
        sys_flag,
        size,
        data[topic_end + 2 : following],
    )
    return message, following
