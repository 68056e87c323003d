"""Rows as messages, and what is said of a row that cannot be one."""

from datetime import UTC, datetime

import pytest
from pyspark.sql.types import StringType, StructType

from rocketmq_tw.spark.columns import SCHEMA
from rocketmq_tw.spark.errors import OptionError
from rocketmq_tw.spark.rows import BadRow, check_columns, is_kept_back, row_message


def test_all_columns() -> None:
    message = row_message(
        {
            "topic": "elsewhere",
            "body": "héllo",
            "keys": ["k1", "k2"],
            "tags": "red",
            "properties": {"a": "b", "TRAN_MSG": "true", "UNIQ_KEY": "ID", "TAGS": "old"},
            "flag": 4,
            "shardingKey": "s",
            "delayLevel": 3,
            "queueOffset": 17,
        },
        "t",
    )
    assert (message.topic, message.body) == ("t", "héllo".encode())
    assert (message.tags, message.flag) == ("red", 4)
    assert (list(message.keys), message.sharding_key, message.delay_level) == (["k1", "k2"], "s", 3)
    assert message.properties == {"a": "b", "UNIQ_KEY": "ID"}
    assert is_kept_back(message)


@pytest.mark.parametrize(
    "waited",
    [
        {"DELAY": "3"},
        {"TIMER_DELAY_MS": "5000", "TIMER_OUT_MS": "1700000005000", "TIMER_ENQUEUE_MS": "1"},
        {"TIMER_DELIVER_MS": "1700000000000", "TIMER_ROLL_TIMES": "1", "TIMER_DEQUEUE_MS": "2"},
    ],
)
def test_a_copy_of_a_message_that_has_waited_does_not_wait(waited: dict[str, str]) -> None:
    delivered = waited | {"a": "b", "REAL_TOPIC": "t", "REAL_QID": "0"}
    message = row_message({"body": b"x", "properties": delivered}, "t")
    assert message.properties == {"a": "b"}
    assert not is_kept_back(message)
    asked = row_message({"body": b"x", "properties": delivered, "delaySeconds": 5}, "t")
    assert asked.properties == {"a": "b", "TIMER_DELAY_SEC": "5"}
    assert is_kept_back(row_message({"body": b"x", "properties": waited}, "t"))


@pytest.mark.parametrize(
    ("column", "value", "name", "text"),
    [
        ("delaySeconds", 5, "TIMER_DELAY_SEC", "5"),
        ("delayMs", 1500, "TIMER_DELAY_MS", "1500"),
        ("deliverTimestamp", 1_700_000_000_000, "TIMER_DELIVER_MS", "1700000000000"),
        (
            "deliverTimestamp",
            datetime.fromtimestamp(1_700_000_000, UTC),
            "TIMER_DELIVER_MS",
            "1700000000000",
        ),
    ],
)
def test_timers_are_properties(column: str, value: object, name: str, text: str) -> None:
    message = row_message({"body": b"x", column: value}, "t")
    assert message.properties == {name: text}
    assert is_kept_back(message)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"body": None}, "body is null"),
        ({"body": b""}, "body is empty"),
        ({"body": b"x" * (4 * 1024 * 1024 + 1)}, "at most"),
        ({"body": b"x", "keys": ["a b"]}, "keys has"),
        ({"body": b"x", "properties": {"a": ""}}, "neither may be empty"),
        ({"body": b"x", "properties": {"a": "b\x02c"}}, "separate"),
        ({"body": b"x", "properties": {"a": "b" * 40000}}, "at most"),
        ({"body": b"x", "delayLevel": 19}, "0 to 18"),
        ({"body": b"x", "topic": "no topic"}, "illegal character"),
        ({"body": b"x", "topic": "SCHEDULE_TOPIC_XXXX"}, "own"),
    ],
)
def test_a_bad_row_says_why(row: dict[str, object], said: str) -> None:
    with pytest.raises(BadRow, match=said):
        row_message(row, None if "topic" in row else "t")


def test_what_was_read_can_be_written() -> None:
    check_columns(SCHEMA, None)


@pytest.mark.parametrize(
    ("schema", "topic", "said"),
    [
        (StructType().add("value", "string"), "t", "no column body"),
        (StructType().add("body", "binary"), None, "topic"),
        (StructType().add("body", "integer"), "t", "make it"),
        (StructType().add("body", "binary").add("price", StringType()), "t", "means nothing"),
    ],
)
def test_columns_are_checked(schema: StructType, topic: str | None, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        check_columns(schema, topic)
