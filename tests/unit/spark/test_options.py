"""Options: both spellings, types, and what is said where one is wrong."""

import pickle
from operator import attrgetter

import pytest

from rocketmq_tw.spark.errors import OptionError
from rocketmq_tw.spark.options import _SPELLINGS, canonical, sink_options, source_options
from tests.support.jars import PROJECT

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
        (GIVEN | {"group": "g" * 300}, "the option group: the group has 300 characters"),
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


#: Option, a value that is not the default, and where it goes.
READ = [
    ("nameServers", "b:2", "connection.name_servers", ("b:2",)),
    ("topic", "a,b", "subscription.topics", ("a", "b")),
    ("topicPattern", "t.*", "subscription.pattern", "t.*"),
    ("group", "g", "group", "g"),
    ("expression", "a || b", "subscription.expression", "a || b"),
    ("expressionType", "sql92", "subscription.expression_type", "SQL92"),
    ("startingOffsets", "latest", "starting_offsets", "latest"),
    ("endingOffsets", "{}", "ending_offsets", "{}"),
    ("startingTimestamp", 5, "starting_timestamp", 5),
    ("endingTimestamp", 6, "ending_timestamp", 6),
    ("maxOffsetsPerTrigger", 7, "max_offsets_per_trigger", 7),
    ("minPartitions", 8, "min_partitions", 8),
    ("failOnDataLoss", False, "fail_on_data_loss", False),
    ("damagedMessages", "keep", "damaged", "keep"),
    ("includeSystem", True, "subscription.include_system", True),
    ("commitOffsets", True, "commit_offsets", True),
    ("pushFilters", True, "push_filters", True),
    ("pullBatchSize", 9, "pull_batch_size", 9),
    ("pullTimeoutMs", 1500, "pull_timeout", 1.5),
    ("brokerDownTimeoutMs", 2500, "broker_down_timeout", 2.5),
    ("connectTimeoutMs", 500, "connection.connect_timeout", 0.5),
    ("accessKey", "me", "connection.credentials.access_key", "me"),
    ("secretKey", "hush", "connection.credentials.secret_key", "hush"),
    ("securityToken", "token", "connection.credentials.security_token", "token"),
    ("useTls", True, "connection.tls", True),
    ("tlsCaFile", "ca.pem", "connection.tls_ca_file", "ca.pem"),
    ("tlsCertFile", "c.pem", "connection.tls_cert_file", "c.pem"),
    ("tlsKeyFile", "k.pem", "connection.tls_key_file", "k.pem"),
    ("tlsVerify", True, "connection.tls_verify", True),
]
WRITE = [
    ("producerGroup", "p", "group", "p"),
    ("sendTimeoutMs", 1500, "timeout", 1.5),
    ("sendRetries", 3, "retries", 3),
    ("sendBatchSize", 5, "batch_size", 5),
    ("maxMessagesPerSecond", 6, "max_messages_per_second", 6),
]
KEYS = {"accessKey": "a", "secretKey": "s"}


@pytest.mark.parametrize(("option", "value", "place", "expected"), READ)
def test_each_option_of_a_read(option: str, value: object, place: str, expected: object) -> None:
    given = {
        name: text for name, text in GIVEN.items() if option != "topicPattern" or name != "topic"
    }
    given |= KEYS if "credentials" in place else {}
    assert attrgetter(place)(source_options(given | {option: value})) == expected


@pytest.mark.parametrize(("option", "value", "place", "expected"), WRITE)
def test_each_option_of_a_write(option: str, value: object, place: str, expected: object) -> None:
    assert attrgetter(place)(sink_options(GIVEN | {option: value})) == expected


def test_every_option_and_spelling_is_described() -> None:
    options = {row[0] for row in READ + WRITE}
    assert options == set(_SPELLINGS)
    page = (PROJECT / "docs" / "spark.md").read_text()
    table = page[page.index("## Options") : page.index("Queues that the JSON")]
    spellings = {name for others in _SPELLINGS.values() for name in others}
    assert {name for name in options | spellings if f"`{name}`" not in table} == set()


def test_a_producer_group_is_checked_as_well() -> None:
    with pytest.raises(OptionError, match="the option producerGroup: the group 'a b' has"):
        sink_options(GIVEN | {"producerGroup": "a b"})
