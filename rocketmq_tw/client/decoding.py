"""The records of a pull response as messages: the hot loop of every consumer."""

import zlib
from struct import Struct
from struct import error as StructError
from typing import Final

from rocketmq_tw.client.message import ReceivedMessage
from rocketmq_tw.message.compression import compression_type, decompress
from rocketmq_tw.message.record import MAGIC_V1, MAGIC_V2, host_text
from rocketmq_tw.message.sysflags import BORN_HOST_V6, COMPRESSED, STORE_HOST_V6
from rocketmq_tw.wire.bodies.offsets import MessageQueue
from rocketmq_tw.wire.errors import BodyError

_V6: Final = BORN_HOST_V6 | STORE_HOST_V6
# Size to body length by the two address bits; docs/formats/commitlog.md.
_LAYOUTS = {
    bits: Struct(
        f">iiiiiqqiq{16 if bits & BORN_HOST_V6 else 4}siq{16 if bits & STORE_HOST_V6 else 4}siiqi"
    )
    for bits in (0, BORN_HOST_V6, STORE_HOST_V6, _V6)
}
_SYS_FLAG = Struct(">i")
_SYS_FLAG_AT = 36
_SHORT = Struct(">h")


def decode_messages(
    data: bytes, queue: MessageQueue, problems: dict[int, str] | None = None
) -> list[ReceivedMessage]:
    """The messages of a pull response's body, compressed bodies unpacked.

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
    (sys_flag,) = _SYS_FLAG.unpack_from(data, position + _SYS_FLAG_AT)
    layout = _LAYOUTS[sys_flag & _V6]
    (
        size,
        magic,
        crc,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        _,
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
        topic_end = topic_start + _SHORT.unpack_from(data, stop)[0]
    else:
        raise ValueError(f"its magic is {magic}")
    (properties_length,) = _SHORT.unpack_from(data, topic_end)
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
