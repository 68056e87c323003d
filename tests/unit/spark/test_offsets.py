"""Offsets as JSON, both ways."""

import json

import pytest

from rocketmq_tw.spark.errors import OffsetError
from rocketmq_tw.spark.offsets import EARLIEST, LATEST, from_json, lag, parse_offsets, to_json
from rocketmq_tw.wire.bodies.queues import MessageQueue


def queue(number: int, topic: str = "t", broker: str = "b") -> MessageQueue:
    return MessageQueue(topic=topic, broker_name=broker, queue_id=number)


def test_the_json_of_rocketmq_spark() -> None:
    text = '{"t": {"b": {"0": -2, "1": -1, "2": 70}}}'
    offsets = parse_offsets(text, "startingOffsets")
    assert offsets == {queue(0): EARLIEST, queue(1): LATEST, queue(2): 70}


def test_both_ways() -> None:
    offsets = {queue(10): 1, queue(2): 5, queue(0, "u", "c"): 0}
    nested = to_json(offsets)
    assert nested == {"t": {"b": {"2": 5, "10": 1}}, "u": {"c": {"0": 0}}}
    assert from_json(json.loads(json.dumps(nested))) == offsets
    assert json.dumps(to_json(dict(reversed(offsets.items())))) == json.dumps(nested)


@pytest.mark.parametrize(
    "text",
    ["soonest", "[]", '{"t": 5}', '{"t": {"b": {"x": 5}}}', '{"t": {"b": {"0": "5"}}}',
     '{"t": {"b": {"0": true}}}', '{"t": {"b": {"0": -3}}}'],
)  # fmt: skip
def test_what_is_no_offsets_names_the_option(text: str) -> None:
    with pytest.raises(OffsetError, match="startingOffsets"):
        parse_offsets(text, "startingOffsets")


def test_the_lag_in_a_querys_progress() -> None:
    progress = {
        "endOffset": '{"t": {"b": {"0": 5, "1": 9}}}',
        "latestOffset": {"t": {"b": {"0": 7, "1": 9}}, "new": {"b": {"0": 4}}},
    }
    assert lag(progress) == {"new": 4, "t": 2}
    assert lag({"endOffset": None, "latestOffset": None}) == {}
