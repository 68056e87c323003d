"""Options: both spellings, types, and what is said where one is wrong."""

import pickle

import pytest

from rocketmq_tw.spark.errors import OptionError
from rocketmq_tw.spark.options import canonical, sink_options, source_options

GIVEN = {"nameServers": "10.0.0.1:9876;10.0.0.2:9876", "topic": "orders"}


@pytest.mark.parametrize(
    ("spelling", "value", "name"),
    [
        ("NAMESERVER.ADDR", "a:1", "nameServers"),
        ("consumer.topic", "t", "topic"),
        ("subscribePattern", "t.*", "topicPattern"),
        ("consumer.group", "g", "group"),
        ("subExpression", "a || b", "expression"),
        ("pull.max.batch.size", 32, "pullBatchSize"),
        ("pull.timeout.ms", "3000", "pullTimeoutMs"),
        ("consumer.offset.reset.to", "earliest", "startingOffsets"),
    ],
)
def test_the_spellings_of_rocketmq_spark(spelling: str, value: object, name: str) -> None:
    assert canonical({spelling: value}) == {name: str(value)}


def test_a_read_has_defaults_and_travels() -> None:
    options = source_options(GIVEN | {"accessKey": "me", "secretKey": "hush"}, streaming=False)
    assert options.connection.name_servers == ("10.0.0.1:9876", "10.0.0.2:9876")
    assert options.subscription.topics == ("orders",)
    assert (options.starting_offsets, options.ending_offsets) == ("earliest", "latest")
    assert options.fail_on_data_loss
    assert pickle.loads(pickle.dumps(options)) == options
    assert "hush" not in repr(options)


def test_a_stream_starts_at_the_latest_offsets() -> None:
    assert source_options(GIVEN, streaming=True).starting_offsets == "latest"


def test_offsets_are_committed_where_a_group_is_named() -> None:
    assert not source_options(GIVEN).commit_offsets
    assert source_options(GIVEN | {"group": "g"}).commit_offsets


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topic": "t"}, "no name server is given"),
        ({"nameServers": "nowhere", "topic": "t"}, "give host:port"),
        ({"nameServers": "a:1"}, "no topic is given"),
        (GIVEN | {"topicPattern": "t.*"}, "contradict"),
        ({"nameServers": "a:1", "topicPattern": "("}, "no regular expression"),
        ({"nameServers": "a:1", "topic": "../etc"}, "no topic has"),
        (GIVEN | {"minPartitions": "many"}, "whole number"),
        (GIVEN | {"minPartitions": 0}, "at least 1"),
        (GIVEN | {"failOnDataLoss": "perhaps"}, "true or false"),
        (GIVEN | {"maxOfsetsPerTrigger": 5}, "did you mean maxOffsetsPerTrigger"),
        (GIVEN | {"expression": "||"}, "names no tag"),
        (GIVEN | {"expressionType": "regex"}, "TAG or SQL92"),
        (GIVEN | {"accessKey": "me"}, "belong together"),
        (GIVEN | {"group": "no group"}, "the option group"),
        (GIVEN | {"startingOffsets": "earliest", "startingTimestamp": 5}, "contradict"),
        (GIVEN | {"endingOffsets": "earliest"}, "before every row"),
        (GIVEN | {"topic": "a", "subscribe": "b"}, "given twice"),
        (GIVEN | {"group": object()}, "cannot travel"),
        (GIVEN | {"group": str(object())}, "cannot travel"),
    ],
)
def test_a_mistake_says_what_to_change(options: dict[str, object], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        source_options(options)


@pytest.mark.parametrize(
    ("option", "streaming"), [("endingOffsets", True), ("startingOffsets", False)]
)
def test_offsets_that_a_kind_of_read_cannot_have(option: str, streaming: bool) -> None:
    with pytest.raises(OptionError):
        source_options(GIVEN | {option: "latest"}, streaming=streaming)


def test_a_write() -> None:
    options = sink_options(GIVEN | {"producer.timeout": 500, "sendRetries": 0})
    assert (options.topic, options.timeout, options.retries) == ("orders", 0.5, 0)
    assert sink_options({"nameServers": "a:1"}).topic is None
