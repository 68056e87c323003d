"""The deflated body of 103: lengths that lie, and what old brokers leave out."""

import zlib

import pytest

from rocketmq_tw.wire.bodies import registration
from rocketmq_tw.wire.bodies.base import DataVersion
from rocketmq_tw.wire.bodies.registration import (
    RegisterBrokerBody,
    decode_registration,
    decode_topic_line,
    encode_registration,
    encode_topic_line,
)
from rocketmq_tw.wire.bodies.topics import TopicConfig, TopicConfigTable, TopicQueueMappingInfo
from rocketmq_tw.wire.errors import BodyError


def body(mappings: dict[str, TopicQueueMappingInfo] | None) -> RegisterBrokerBody:
    return RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigTable(
            data_version=DataVersion(counter=3, timestamp=5),
            topic_config_table={
                "t": TopicConfig(topic_name="t", attributes={"+a": "b"}),
                "old": TopicConfig(topic_name="old", perm=4),
            },
            topic_queue_mapping_info_map=mappings,
        ),
        filter_server_list=["10.0.0.1:5"],
    )


@pytest.mark.parametrize("mappings", [None, {}, {"t": TopicQueueMappingInfo(topic="t")}])
def test_both_versions_forms(mappings):
    data = encode_registration(body(mappings), compressed=True)
    assert decode_registration(data, compressed=True) == body(mappings)


def test_cut_anywhere():
    inflated = zlib.decompress(encode_registration(body({}), compressed=True))
    whole_without_mappings = len(inflated) - 4
    for end in range(len(inflated)):
        data = zlib.compress(inflated[:end])
        if end == whole_without_mappings:
            assert decode_registration(data, compressed=True) == body(None)
            continue
        with pytest.raises(BodyError):
            decode_registration(data, compressed=True)


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 1000])
def test_length_beyond_the_data(length):
    data = length.to_bytes(4, "big", signed=True) + bytes(20)
    with pytest.raises(BodyError, match=f"length of {length} "):
        decode_registration(zlib.compress(data), compressed=True)


@pytest.mark.parametrize("data", [b"", b"not deflated", b"{}"])
def test_not_deflated(data):
    with pytest.raises(BodyError):
        decode_registration(data, compressed=True)


def test_deflated_stream_that_is_cut():
    data = encode_registration(body({}), compressed=True)
    with pytest.raises(BodyError, match="cut short"):
        decode_registration(data[:-1], compressed=True)


def test_what_inflates_without_bound_is_refused(monkeypatch):
    monkeypatch.setattr(registration, "MAX_INFLATED", 1000)
    with pytest.raises(BodyError, match="beyond 1000 bytes"):
        decode_registration(zlib.compress(bytes(100_000)), compressed=True)


@pytest.mark.parametrize("line", ["", "t 1 2 3", "t one 2 3 SINGLE_TAG", "t 1 2 x SINGLE_TAG"])
def test_broken_topic_line(line):
    with pytest.raises(BodyError, match="registered topic"):
        decode_topic_line(line)


def test_topic_without_attributes_has_the_five_words_that_old_name_servers_read():
    config = TopicConfig(topic_name="t", read_queue_nums=1, write_queue_nums=2)
    assert encode_topic_line(config) == "t 1 2 6 SINGLE_TAG"
    assert decode_topic_line("t 1 2 6 SINGLE_TAG") == config
    assert decode_topic_line("t 1 2 6 SINGLE_TAG {}") == config


def test_attributes_that_cannot_be_read_are_left_empty():
    assert decode_topic_line("t 1 2 6 SINGLE_TAG {oops").attributes == {}


def test_ten_thousand_topics_register_in_every_form():
    mapping = TopicQueueMappingInfo(topic="t", curr_id_map={0: 1, 1: 0})
    registered = body({"t": mapping})
    table = registered.topic_config_serialize_wrapper.topic_config_table
    for number in range(10_000):
        table[f"topic-{number}"] = TopicConfig(topic_name=f"topic-{number}", read_queue_nums=8)
    for compressed in (False, True):
        data = encode_registration(registered, compressed=compressed)
        assert decode_registration(data, compressed=compressed) == registered


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(
    ("limit", "refusal"), [("MAX_TOPICS", "2 topics"), ("MAX_MAPPINGS", "2 mappings of topics")]
)
def test_more_topics_than_a_broker_has_are_refused(monkeypatch, limit, refusal, compressed):
    mappings = {topic: TopicQueueMappingInfo(topic=topic) for topic in ("t", "old")}
    data = encode_registration(body(mappings), compressed=compressed)
    monkeypatch.setattr(registration, limit, 2)
    assert decode_registration(data, compressed=compressed) == body(mappings)
    monkeypatch.setattr(registration, limit, 1)
    with pytest.raises(BodyError, match=refusal):
        decode_registration(data, compressed=compressed)


def test_mappings_that_need_the_slow_reader_are_bounded_together(monkeypatch):
    monkeypatch.setattr(registration, "DIALECT_REQUEST_BYTES", 1000)
    inflated = zlib.decompress(encode_registration(body({}), compressed=True))[:-4]
    chunk = b"{'topic':'" + b"t" * 600 + b"'}"
    part = len(chunk).to_bytes(4, "big") + chunk
    for count, is_read in ((1, True), (2, False)):
        data = zlib.compress(inflated + count.to_bytes(4, "big") + part * count)
        if is_read:
            assert decode_registration(data, compressed=True)
        else:
            with pytest.raises(BodyError, match="strict JSON"):
                decode_registration(data, compressed=True)
