"""Records as columns: the fast way gives what decoding one by one gives."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_tw.client.decoding import decode_messages
from rocketmq_tw.message.compression import CompressionType, compress, compression_flag
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.properties import join_properties
from rocketmq_tw.message.record import encode_record
from rocketmq_tw.message.tags import parse_tag_expression
from rocketmq_tw.spark.batches import BatchBuilder
from rocketmq_tw.spark.columnar import columnar
from rocketmq_tw.spark.columns import SCHEMA, arrow_schema, table_schema
from rocketmq_tw.spark.options import Damaged
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.errors import BodyError

QUEUE = MessageQueue(topic="t", broker_name="b", queue_id=3)
ALL = arrow_schema(SCHEMA)
names = st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "a", "ü", "long name"])
values = st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), min_size=1)


def stored(offset: int, **changes: object) -> StoredMessage:
    message = StoredMessage(
        topic="t",
        queue_id=3,
        body=b"body %d" % offset,
        flag=7,
        queue_offset=offset,
        physical_offset=1000 + offset,
        born_timestamp=1_700_000_000_000 + offset,
        store_timestamp=1_700_000_000_500 + offset,
        store_host=("10.1.2.3", 10911),
    )
    for name, value in changes.items():
        setattr(message, name, value)
    return message


def rows(records: bytes, end: int = 10**9, tags: str = "*") -> list[dict[str, object]]:
    builder = BatchBuilder(ALL, QUEUE, parse_tag_expression(tags))
    return builder.batch(records, end).to_pylist(maps_as_pydicts="strict")


def expected(records: bytes) -> list[dict[str, object]]:
    def at(milliseconds: int) -> datetime:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)

    return [
        {
            "topic": "t",
            "flag": message.flag,
            "body": message.body,
            "properties": message.properties,
            "brokerName": "b",
            "queueId": 3,
            "queueOffset": message.queue_offset,
            "bornTimestamp": at(message.born_timestamp),
            "storeTimestamp": at(message.store_timestamp),
            "keys": message.keys or None,
            "tags": message.tags,
            "msgId": message.message_id,
        }
        for message in decode_messages(records, QUEUE)
    ]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.binary(), st.dictionaries(names, values)), max_size=6))
def test_both_ways_agree(messages: list[tuple[bytes, dict[str, str]]]) -> None:
    records = b"".join(
        encode_record(stored(offset, body=body, properties=join_properties(properties)))
        for offset, (body, properties) in enumerate(messages)
    )
    assert rows(records) == expected(records)


@pytest.mark.parametrize("kind", CompressionType)
def test_compressed_bodies_are_unpacked(kind: CompressionType) -> None:
    packed = stored(1, body=compress(b"x" * 500, kind), sys_flag=compression_flag(kind))
    records = encode_record(stored(0)) + encode_record(packed)
    assert [row["body"] for row in rows(records)] == [b"body 0", b"x" * 500]
    assert columnar(records) is not None


@pytest.mark.parametrize(
    "unusual",
    [
        stored(1, store_host=("::1", 10911)),
        stored(1, topic="t" * 200),
        stored(1, properties=b"a\x01b\x02no separator\x02KEYS\x01k\x02"),
        stored(1, properties=b"a\x01\xff\x02"),
        stored(1, properties=b"a\x01x\x01y\x02"),
    ],
    ids=["ipv6", "long topic", "no separator", "no utf-8", "separator in a value"],
)
def test_unusual_records_go_the_slow_way(unusual: StoredMessage) -> None:
    records = encode_record(stored(0)) + encode_record(unusual)
    assert columnar(records) is None
    assert rows(records) == expected(records)


def test_the_last_of_a_property_that_stands_twice_counts() -> None:
    twice = stored(1, properties=b"a\x01first\x02TAGS\x01t\x02a\x01last\x02")
    records = encode_record(twice) + encode_record(stored(2, properties=b"a\x01b\x02"))
    assert columnar(records) is not None
    assert rows(records) == expected(records)


def test_the_last_separator_may_be_left_out() -> None:
    texts = [b"", b"a\x01b", b"", b"a\x01b\x02c\x01d", b"a\x01b\x02", b"\xc3\xbc\x01\xc3\xb6", b""]
    records = b"".join(
        encode_record(stored(offset, properties=text)) for offset, text in enumerate(texts)
    )
    assert columnar(records) is not None
    assert rows(records) == expected(records)


@pytest.mark.parametrize("twice", [b"", b"n3\x01again\x02"])
def test_each_message_may_have_names_of_its_own(twice: bytes) -> None:
    records = b"".join(
        encode_record(stored(n, properties=b"n%d\x01%d\x02" % (n, n) + twice)) for n in range(40)
    )
    assert columnar(records) is not None
    assert rows(records) == expected(records)


def test_damage_is_not_passed_on() -> None:
    good = encode_record(stored(0))
    at = good.index(b"body")
    flipped = bytearray(good + encode_record(stored(1)))
    flipped[at] ^= 1
    with pytest.raises(BodyError, match="offset 0 is damaged"):
        rows(bytes(flipped))
    with pytest.raises(BodyError):
        rows(good[:-1])
    with pytest.raises(BodyError):
        rows(good + b"\0" * 100)


def damaged_ones(unusual: bool) -> bytes:
    """Sound, a wrong CRC, sound, a body that is not packed and says so."""
    flipped = bytearray(encode_record(stored(1)))
    flipped[flipped.index(b"body")] ^= 1
    last = stored(3, sys_flag=compression_flag(CompressionType.ZLIB))
    others = [encode_record(stored(0)), bytes(flipped), encode_record(stored(2))]
    host = {"store_host": ("::1", 10911)} if unusual else {}
    return b"".join([*others, encode_record(last), encode_record(stored(4, **host))])


@pytest.mark.parametrize("unusual", [False, True])
def test_damaged_bodies_are_kept_with_what_is_wrong_where_asked(unusual: bool) -> None:
    schema = arrow_schema(table_schema(Damaged.KEEP))
    kept = BatchBuilder(schema, QUEUE, parse_tag_expression("*"), Damaged.KEEP)
    found = kept.batch(damaged_ones(unusual), 10).to_pylist()
    assert [row["body"] for row in found] == [b"body 0", b"cody 1", b"body 2", b"body 3", b"body 4"]
    problems = [row["problem"] for row in found]
    assert [problem is None for problem in problems] == [True, False, True, False, True]
    assert problems[1] == "the CRC is not its body's"
    assert problems[3].startswith("a ZLIB body that cannot be read")

    only = BatchBuilder(schema, QUEUE, parse_tag_expression("*"), Damaged.ONLY)
    rows = only.batch(damaged_ones(unusual), 3).to_pylist()
    assert [row["queueOffset"] for row in rows] == [1]
    assert only.batch(encode_record(stored(0)), 3).num_rows == 0
    assert only.seen == 4

    failing = BatchBuilder(ALL, QUEUE, parse_tag_expression("*"))
    with pytest.raises(BodyError):
        failing.batch(damaged_ones(unusual), 10)


def test_the_end_and_other_tags_are_left_out() -> None:
    # AaAa and BBBB have one hash code, so a broker sends both.
    tags = ["AaAa", "BBBB", "AaAa", "AaAa"]
    records = b"".join(
        encode_record(stored(offset, properties=join_properties({"TAGS": tag})))
        for offset, tag in enumerate(tags)
    )
    assert [row["queueOffset"] for row in rows(records, end=3, tags="AaAa")] == [0, 2]


def test_only_the_columns_that_were_chosen() -> None:
    schema = arrow_schema(type(SCHEMA)([SCHEMA["queueOffset"], SCHEMA["body"]]))
    builder = BatchBuilder(schema, QUEUE, parse_tag_expression("*"))
    assert builder.batch(encode_record(stored(4)), 9).to_pylist() == [
        {"queueOffset": 4, "body": b"body 4"}
    ]
