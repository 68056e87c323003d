"""Large tables are read entry by entry, and come out as if they had been read in one go."""

from __future__ import annotations

import pytest

from rocketmq_tw.wire.bodies.base import Body, decode_body, decode_by_entry, encode_body
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig, SubscriptionGroupTable
from rocketmq_tw.wire.bodies.queues import ConsumerOffsetTable
from rocketmq_tw.wire.bodies.registration import (
    RegisterBrokerBody,
    decode_registration,
    encode_registration,
)
from rocketmq_tw.wire.bodies.topics import TopicConfig, TopicConfigTable, TopicQueueMappingInfo
from rocketmq_tw.wire.errors import BodyError

MANY = 5_000

TOPICS = TopicConfigTable(
    topic_config_table={
        f"T{n}": TopicConfig(topic_name=f"T{n}", attributes={"message.type": "FIFO"})
        for n in range(MANY)
    },
    topic_queue_mapping_info_map={"T1": TopicQueueMappingInfo(topic="T1", curr_id_map={0: 1})},
)
GROUPS = SubscriptionGroupTable(
    subscription_group_table={
        f"G{n}": SubscriptionGroupConfig(group_name=f"G{n}") for n in range(MANY)
    },
    forbidden_table={"G1": {"T1": 4}},
)
OFFSETS = ConsumerOffsetTable(
    offset_table={f"T{n}@G": dict.fromkeys(range(16), n) for n in range(MANY)}
)


@pytest.mark.parametrize(
    ("body", "table", "entry"),
    [
        (TOPICS, "topic_config_table", TopicConfig),
        (GROUPS, "subscription_group_table", SubscriptionGroupConfig),
        (OFFSETS, "offset_table", dict[int, int]),
    ],
)
def test_tables(body: Body, table: str, entry: type) -> None:
    data = encode_body(body)
    assert len(data) > 256 * 1024
    read = decode_by_entry(type(body), table, entry, data)
    assert type(read) is type(body) and read == body == decode_body(type(body), data)
    # fastjson's ways are read as always.
    loose = data.replace(b"{", b"{ 'no field': [1,], ", 1)
    assert decode_by_entry(type(body), table, entry, loose) == body


def test_what_is_wrong_is_refused_as_always() -> None:
    data = encode_body(TOPICS).replace(b'"perm":6', b'"perm":"x"', 1)
    with pytest.raises(BodyError):
        decode_by_entry(TopicConfigTable, "topic_config_table", TopicConfig, data)


def test_registrations() -> None:
    body = RegisterBrokerBody(
        topic_config_serialize_wrapper=TOPICS, filter_server_list=["10.0.0.1:1"]
    )
    data = encode_registration(body, compressed=False)
    assert decode_registration(data, compressed=False) == body
    with pytest.raises(BodyError):
        decode_registration(data.replace(b'"perm":6', b'"perm":"x"', 1), compressed=False)
    with pytest.raises(BodyError):
        decode_registration(data[:-1], compressed=False)
