"""Records become the messages that an application gets."""

import pytest

from rocketmq_tw.message.compression import CompressionType, compress, compression_flag
from rocketmq_tw.message.decode import decode_messages
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.record import encode_record


def record(**fields: object) -> StoredMessage:
    given = {"topic": "T", "queue_id": 2, "body": b"hello", "store_host": ("127.0.0.1", 10911)}
    return StoredMessage(**given | fields)  # type: ignore[arg-type]


def test_several_records() -> None:
    data = b"".join(
        encode_record(record(queue_offset=n, physical_offset=n * 100, body=b"%d" % n))
        for n in range(3)
    )
    messages = decode_messages(data)
    assert [(m.queue_offset, m.body) for m in messages] == [(0, b"0"), (1, b"1"), (2, b"2")]
    assert messages[1].offset_message_id == "7F00000100002A9F0000000000000064"
    assert messages[1].message_id == messages[1].offset_message_id


def test_properties_name_the_message() -> None:
    (message,) = decode_messages(
        encode_record(record(properties=b"UNIQ_KEY\x01U\x02TAGS\x01a\x02KEYS\x01k1 k2\x02"))
    )
    assert (message.message_id, message.tags, message.keys) == ("U", "a", ["k1", "k2"])


@pytest.mark.parametrize("kind", CompressionType)
def test_compressed_bodies_are_unpacked(kind: CompressionType) -> None:
    packed = compress(b"x" * 5000, kind)
    data = encode_record(record(body=packed, sys_flag=compression_flag(kind)))
    (message,) = decode_messages(data)
    assert message.body == b"x" * 5000
    assert not message.sys_flag & 1
    with pytest.raises(ValueError, match="more than 4999"):
        decode_messages(data, body_limit=4999)


def test_a_damaged_record_is_refused() -> None:
    data = bytearray(encode_record(record()))
    data[-8] ^= 1
    data[88] ^= 1
    with pytest.raises(ValueError, match="record"):
        decode_messages(bytes(data))
