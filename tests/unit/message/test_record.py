"""The stored record: struct on the hot path against its declaration, both ways, and damage."""

import sys
import zlib
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_tw.formats.record import RECORD
from rocketmq_tw.message import record as record_module
from rocketmq_tw.message.batch import Batch, BatchedMessage
from rocketmq_tw.message.layout import MAGIC_V1, MAGIC_V2, fields, physical_offset, store_timestamp
from rocketmq_tw.message.model import BORN_HOST_V6, STORE_HOST_V6, StoredMessage
from rocketmq_tw.message.record import (
    CRC_PROPERTY_LENGTH,
    RecordError,
    are_sound,
    body_crc,
    decode_record,
    decode_records,
    encode_batch_records,
    encode_record,
    heads_and_bodies,
    host_bytes,
    is_sound,
    parse_head,
)
from rocketmq_tw.structs import msgspec

V4, V6 = ("10.1.2.3", 10911), ("2001:db8::1", 65535)

hosts = st.tuples(
    st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).map(str), st.integers(0, 65535)
)
longs, ints = st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1)
messages = st.builds(
    StoredMessage,
    topic=st.text(st.characters(codec="utf-8"), max_size=300),
    queue_id=ints,
    body=st.binary(max_size=300),
    properties=st.binary(max_size=200),
    flag=ints,
    sys_flag=st.integers(0, 2**12).map(lambda f: f & ~(BORN_HOST_V6 | STORE_HOST_V6)),
    born_timestamp=longs,
    born_host=hosts,
    store_timestamp=longs,
    store_host=hosts,
    reconsume_times=ints,
    prepared_transaction_offset=longs,
    queue_offset=longs,
    physical_offset=longs,
)


@given(messages)
def test_struct_agrees_with_the_declaration(message: StoredMessage) -> None:
    data = encode_record(message)
    declared = RECORD.parse(data)
    assert declared.size == len(data)
    assert declared.topic == message.topic.encode()
    assert declared.magic == (MAGIC_V1 if len(declared.topic) <= 127 else MAGIC_V2)
    assert (declared.body, declared.properties) == (message.body, message.properties)
    assert declared.body_crc == body_crc(message.body)
    assert declared.born_ip == host_bytes(message.born_host[0])
    assert declared.store_port == message.store_host[1]
    for field in ("queue_id", "flag", "queue_offset", "physical_offset", "born_timestamp"):
        assert declared[field] == getattr(message, field), field
    for field in ("store_timestamp", "reconsume_times", "prepared_transaction_offset"):
        assert declared[field] == getattr(message, field), field
    assert RECORD.build(declared) == data
    assert physical_offset(data) == declared.physical_offset
    assert store_timestamp(data) == declared.store_timestamp


def test_a_field_that_is_not_there_in_that_order_is_refused() -> None:
    assert fields("queue_id", "queue_offset").format == ">4x4x4xi4xq"
    with pytest.raises(ValueError, match="queue_id"):
        fields("queue_offset", "queue_id")


@given(messages)
def test_decode_gives_back_what_was_encoded(message: StoredMessage) -> None:
    data = encode_record(message)
    decoded = decode_record(b"??" + data, 2)
    message.store_size = len(data)
    message.body_crc = body_crc(message.body)
    message.sys_flag |= BORN_HOST_V6 if ":" in message.born_host[0] else 0
    message.sys_flag |= STORE_HOST_V6 if ":" in message.store_host[0] else 0
    assert decoded == message
    assert is_sound(data, message.physical_offset)


@given(
    messages,
    st.lists(st.tuples(ints, st.binary(max_size=50), st.binary(max_size=50)), min_size=1),
    st.binary(max_size=50),
    st.booleans(),
    st.booleans(),
)
def test_a_batch_in_one_pass_is_what_its_messages_are_one_by_one(
    message: StoredMessage, parts: list[Any], common: bytes, in_queue: bool, crc_property: bool
) -> None:
    message.physical_offset >>= 2
    message.queue_offset >>= 2
    batch = Batch.of(BatchedMessage(*part) for part in parts)
    batch.common = common
    data, sizes = encode_batch_records(message, batch, in_queue=in_queue, crc_property=crc_property)
    ends = list(accumulate(sizes))
    assert ends[-1] == len(data)
    records = [data[end - size : end] for end, size in zip(ends, sizes, strict=True)]
    each = msgspec.structs.replace(message)
    for record, (flag, body, properties) in zip(records, parts, strict=True):
        each.flag, each.body, each.properties = flag, body, properties + common
        assert record == encode_record(each, crc_property=crc_property)
        each.physical_offset += len(record)
        each.queue_offset += in_queue


@given(messages)
def test_the_short_way_of_ipv4_is_the_general_one(message: StoredMessage) -> None:
    born, store = (
        record_module._host_part(message.born_host),
        record_module._host_part(message.store_host),
    )
    assert encode_record(message) == record_module._encode_any_record(message, born, store, False)


def test_a_known_record_byte_for_byte() -> None:
    message = StoredMessage(
        topic="T",
        queue_id=3,
        body=b"hi",
        properties=b"TAGS\x01a\x02",
        born_timestamp=1,
        born_host=V4,
        store_timestamp=2,
        store_host=("127.0.0.1", 10911),
        queue_offset=7,
        physical_offset=4096,
    )
    assert encode_record(message).hex(" ", -4) == (
        "00000065 daa320a7 58932aac 00000003 00000000 00000000 00000007 00000000 00001000 "
        "00000000 00000000 00000001 0a010203 00002a9f 00000000 00000002 7f000001 00002a9f "
        "00000000 00000000 00000000 00000002 68690154 00075441 47530161 02"
    )


@pytest.mark.parametrize("born", [V4, V6])
@pytest.mark.parametrize("store", [V4, V6])
def test_addresses_set_their_flags(born: tuple[str, int], store: tuple[str, int]) -> None:
    message = StoredMessage(topic="T", queue_id=0, body=b"", born_host=born, store_host=store)
    data = encode_record(message)
    decoded = decode_record(data)
    assert (decoded.born_host, decoded.store_host) == (born, store)
    assert bool(decoded.sys_flag & BORN_HOST_V6) == (born is V6)
    assert bool(decoded.sys_flag & STORE_HOST_V6) == (store is V6)


def test_the_crc_property_covers_the_whole_record() -> None:
    message = StoredMessage(topic="T", queue_id=0, body=b"body", properties=b"a\x01b")
    data = encode_record(message, crc_property=True)
    assert len(data) == int.from_bytes(data[:4], "big")
    properties = decode_record(data).properties
    assert properties.startswith(b"a\x01b\x02__CRC32#\x01") and properties.endswith(b"\x02")
    digits = properties[-11:-1].decode()[::-1]
    assert int(digits) == body_crc(data[:-CRC_PROPERTY_LENGTH])


@given(messages, st.data())
def test_a_flipped_bit_in_the_body_or_a_length_is_seen(message: StoredMessage, data) -> None:
    record = bytearray(encode_record(message))
    start = len(record) - len(message.body) - len(message.topic.encode()) - len(message.properties)
    fixed = start - 3 - (1 if len(message.topic.encode()) > 127 else 0)
    where = data.draw(
        st.sampled_from([0, 1, 2, 3, 4, 5, 6, 7, *range(fixed - 4, fixed + len(message.body))])
    )
    record[where] ^= 1 << data.draw(st.integers(0, 7))
    assert parse_head(record) is None or parse_head(record).size != len(record)
    assert not is_sound(record, message.physical_offset)


def test_a_body_is_compared_with_its_crc_where_that_is_asked_for() -> None:
    record = encode_record(
        StoredMessage(topic="T", queue_id=0, body=b"body", born_host=V4, store_host=V4)
    )
    spoilt = record.replace(b"body", b"bodz")
    assert is_sound(record, 0) and not is_sound(spoilt, 0)
    assert is_sound(spoilt, 0, check_body=False)
    assert are_sound(spoilt, 0, (0,), (len(record),), check_body=False)
    assert not are_sound(spoilt, 0, (0,), (len(record),))


@given(
    st.lists(st.tuples(messages, st.binary(max_size=40)), min_size=1, max_size=5),
    st.none() | st.tuples(st.floats(0, 1), st.integers(1, 255)),
    st.integers(0, 2**40),
    st.booleans(),
)
def test_many_records_are_sound_where_each_is(
    parts: list[tuple[StoredMessage, bytes]],
    damage: tuple[float, int] | None,
    start: int,
    check_body: bool,
) -> None:
    data = bytearray()
    positions, sizes = [], []
    for message, gap in parts:
        message.physical_offset = start + len(data)
        record = encode_record(message)
        positions.append(message.physical_offset)
        sizes.append(len(record))
        data += record + gap
    del data[positions[-1] + sizes[-1] - start :]
    if damage is not None:
        data[int(damage[0] * (len(data) - 1))] ^= damage[1]
    each = [
        is_sound(data[position - start : position - start + size], position, check_body=check_body)
        for position, size in zip(positions, sizes, strict=True)
    ]
    places = tuple(positions), tuple(sizes)
    assert are_sound(bytes(data), start, *places, check_body=check_body) is all(each)
    assert damage is not None or all(each)


def test_many_records_of_other_sizes_or_places_are_not_sound() -> None:
    record = encode_record(
        StoredMessage(
            topic="T", queue_id=0, body=b"body", born_host=V4, store_host=V4, physical_offset=7
        )
    )
    size = len(record)
    assert are_sound(record, 7, (7,), (size,))
    assert not are_sound(record, 8, (8,), (size,))
    assert not are_sound(record[:-1], 7, (7,), (size - 1,))
    assert not are_sound(record[:50], 7, (7,), (50,))


@given(messages, st.integers(0, 2000))
def test_a_cut_record_is_none(message: StoredMessage, length: int) -> None:
    record = encode_record(message)
    assert parse_head(record[: min(length, len(record) - 1)]) is None


@given(st.binary(max_size=400))
def test_random_bytes_never_raise_anything_else(data: bytes) -> None:
    parse_head(data)
    with pytest.raises(RecordError):
        decode_record(data)


def test_records_of_a_pull_response_one_after_the_other() -> None:
    records = [
        StoredMessage(topic="T", queue_id=0, body=bytes(n), queue_offset=n) for n in range(5)
    ]
    data = b"".join(map(encode_record, records))
    assert [m.queue_offset for m in decode_records(data)] == [0, 1, 2, 3, 4]
    with pytest.raises(RecordError):
        decode_records(data + b"\0")


@pytest.mark.parametrize(
    "message",
    [
        StoredMessage(topic="T", queue_id=0, body=b"", properties=bytes(32768)),
        StoredMessage(topic="T", queue_id=2**31, body=b""),
        StoredMessage(topic="T", queue_id=0, body=b"", born_host=("no address", 1)),
        StoredMessage(topic="T" * 40000, queue_id=0, body=b""),
    ],
    ids=["properties", "queue id", "host", "topic"],
)
def test_what_has_no_record_is_refused_with_the_reason(message: StoredMessage) -> None:
    with pytest.raises(RecordError, match=r"properties|number|address|topic"):
        encode_record(message)


@given(st.binary(max_size=3000), st.integers(0, 50))
def test_it_is_zlibs_for_any_bytes(data: bytes, start: int) -> None:
    for kind in (bytes, bytearray, memoryview):
        assert record_module._crc32(kind(data)[start:]) == zlib.crc32(data[start:])
    assert record_module._crc32(data[start:], record_module._crc32(data[:start])) == zlib.crc32(
        data
    )


def test_zlibs_own_does_where_there_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)
    namespace: dict[str, object] = {"__name__": "record_without_isal"}
    exec(Path(record_module.__file__).read_text(), namespace)
    assert namespace["_crc32"] is zlib.crc32


@given(st.lists(messages, max_size=4), st.binary(max_size=3), st.data())
def test_heads_and_bodies_are_those_of_whole_messages(
    stored: list[StoredMessage], rest: bytes, draw: st.DataObject
) -> None:
    data = bytearray(b"".join(map(encode_record, stored)) + rest)
    if data and draw.draw(st.booleans()):
        data[draw.draw(st.integers(0, len(data) - 1))] ^= draw.draw(st.integers(1, 255))
    try:
        expected = decode_records(bytes(data))
    except RecordError:
        with pytest.raises(RecordError):
            heads_and_bodies(bytes(data))
        return
    assert [
        (head.queue_offset, head.physical_offset, head.size, head.properties, body)
        for head, body in heads_and_bodies(bytes(data))
    ] == [
        (each.queue_offset, each.physical_offset, each.store_size, each.properties, each.body)
        for each in expected
    ]
