"""Records become the messages that an application gets."""

import pytest

from rocketmq_tw.client.decoding import decode_messages
from rocketmq_tw.message.compression import CompressionType, compress, compression_flag
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.record import encode_record
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.errors import BodyError

QUEUE = MessageQueue(topic="T", broker_name="b", queue_id=2)


def record(**fields: object) -> StoredMessage:
    given = {"topic": "T", "queue_id": 2, "body": b"hello", "store_host": ("127.0.0.1", 10911)}
    return StoredMessage(**given | fields)  # type: ignore[arg-type]


def test_several_records() -> None:
    data = b"".join(
        encode_record(record(queue_offset=n, physical_offset=n * 100, body=b"%d" % n))
        for n in range(3)
    )
    messages = decode_messages(data, QUEUE)
    assert [(m.queue_offset, m.body) for m in messages] == [(0, b"0"), (1, b"1"), (2, b"2")]
    assert messages[1].offset_message_id == "7F00000100002A9F0000000000000064"
    assert messages[1].message_id == messages[1].offset_message_id


def test_properties_name_the_message() -> None:
    data = encode_record(record(properties=b"UNIQ_KEY\x01U\x02TAGS\x01a\x02KEYS\x01k1 k2\x02"))
    (message,) = decode_messages(data, QUEUE)
    assert (message.message_id, message.tags, message.keys) == ("U", "a", ["k1", "k2"])


@pytest.mark.parametrize("kind", CompressionType)
def test_compressed_bodies_are_unpacked(kind: CompressionType) -> None:
    packed = compress(b"x" * 5000, kind)
    data = encode_record(record(body=packed, sys_flag=compression_flag(kind)))
    (message,) = decode_messages(data, QUEUE)
    assert message.body == b"x" * 5000


def test_a_damaged_record_is_refused() -> None:
    data = bytearray(encode_record(record()))
    data[88] ^= 1
    with pytest.raises(BodyError, match="the CRC"):
        decode_messages(bytes(data), QUEUE)
    problems: dict[int, str] = {}
    assert len(decode_messages(bytes(data), QUEUE, problems)) == 1
    assert problems == {0: "the CRC is not its body's"}
