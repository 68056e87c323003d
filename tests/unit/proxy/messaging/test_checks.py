from typing import Any

import pytest

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.message.properties import RESERVED
from rocketmq_tw.proxy.messaging.checks import MessageChecks, client_group, client_topic
from rocketmq_tw.proxy.messaging.messages import duration_of, timestamp_of, user_properties
from rocketmq_tw.proxy.messaging.statuses import StatusError
from rocketmq_tw.proxy.proto.messages import (
    Code,
    Message,
    MessageType,
    Resource,
    SystemProperties,
)

NOW = 1_790_000_000_000
DAY = 24 * 3_600_000


def message(
    body: bytes = b"hello", properties: dict[str, str] | None = None, **system: Any
) -> Message:
    return Message(
        topic=Resource(name="T"),
        body=body,
        user_properties=properties or {},
        system_properties=SystemProperties(**({"message_id": "ID"} | system)),
    )


def code_of(sent: Message, **config: Any) -> tuple[int, str]:
    """The code and the sentence of the refusal; OK where there is none."""
    try:
        MessageChecks(ProxyConfig(**config), lambda: NOW).check(sent, user_properties(sent))
    except StatusError as error:
        return error.code, error.message
    return Code.OK, ""


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("", "blank"),
        ("  ", "blank"),
        ("T" * 128, "128 characters"),
        ("a b", "illegal character"),
        ("SCHEDULE_TOPIC_XXXX", "topic of the servers"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", "topic of the servers"),
        ("rmq_sys_wheel_timer", "topic of the servers"),
        ("TBW102", "topic of the servers"),
    ],
)
def test_illegal_topics(name: str, word: str) -> None:
    with pytest.raises(StatusError, match=word) as refused:
        client_topic(Resource(name=name))
    assert refused.value.code == Code.ILLEGAL_TOPIC


@pytest.mark.parametrize("name", ["T", "T" * 127, "%RETRY%G", "a-b_c|d%1"])
def test_legal_topics(name: str) -> None:
    assert client_topic(Resource(name=name)) == name


def test_namespaces_are_passed_over() -> None:
    """As stock's proxies do: clients that name one share topics and groups with all others."""
    assert client_topic(Resource(resource_namespace="ns", name="T")) == "T"
    assert client_group(Resource(resource_namespace="ns", name="G")) == "G"
    for check in (client_topic, client_group):
        with pytest.raises(StatusError, match="a namespace of 256 characters"):
            check(Resource(resource_namespace="n" * 256, name="T"))


@pytest.mark.parametrize("name", ["", " ", "G" * 249, "a b", "CID_RMQ_SYS_TRANS"])
def test_illegal_groups(name: str) -> None:
    with pytest.raises(StatusError) as refused:
        client_group(Resource(name=name))
    assert refused.value.code == Code.ILLEGAL_CONSUMER_GROUP


def test_bodies() -> None:
    most = 4 * 1024 * 1024
    assert code_of(message(bytes(most))) == (Code.OK, "")
    assert code_of(message(bytes(most + 1)))[0] == Code.MESSAGE_BODY_TOO_LARGE
    assert code_of(message(bytes(most + 1)), max_message_size=0)[0] == Code.OK
    assert code_of(message(b""))[0] == Code.MESSAGE_BODY_EMPTY
    assert code_of(message(b""), enable_message_body_empty_check=False)[0] == Code.OK
    assert code_of(message(body_encoding=3))[0] == Code.NOT_IMPLEMENTED


def test_user_properties() -> None:
    def code(properties: dict[str, str], **others: Any) -> int:
        return code_of(message(properties=properties, **others))[0]

    assert code({f"n{i}": "v" for i in range(128)}) == Code.OK
    assert code({f"n{i}": "v" for i in range(129)}) == Code.MESSAGE_PROPERTIES_TOO_LARGE
    # 16 KiB of names and values; an umlaut has two bytes. Tag and keys count too.
    assert code({"n": "\u00e4" * 8191 + "v"}) == Code.OK
    assert code({"n": "\u00e4" * 8192}) == Code.MESSAGE_PROPERTIES_TOO_LARGE
    assert code({"n": "v" * 16380}, tag="t", keys=["k", "l"]) == Code.OK
    assert code({"n": "v" * 16381}, tag="t", keys=["k", "l"]) == Code.MESSAGE_PROPERTIES_TOO_LARGE
    assert code({"": "v"}) == Code.ILLEGAL_MESSAGE_PROPERTY_KEY
    assert code({"n": ""}) == Code.OK


@pytest.mark.parametrize(
    ("properties", "key", "limit"),
    [
        ({"a": "1", "b": "2"}, "user_property_max_num", 2),
        ({"name": "value"}, "max_user_property_size", 9),
    ],
)
def test_the_limits_of_user_properties_are_keys(
    properties: dict[str, str], key: str, limit: int
) -> None:
    def code(most: int) -> int:
        return code_of(message(properties=properties), **{key: most})[0]

    assert code(limit) == Code.OK
    assert code(limit - 1) == Code.MESSAGE_PROPERTIES_TOO_LARGE
    assert code(0) == Code.OK


@pytest.mark.parametrize("character", ["\x00", "\x01", "\x02", "\x1f", "\x7f", "\x9f"])
def test_control_characters_are_nowhere(character: str) -> None:
    text = f"a{character}b"
    for sent, code in [
        (message(properties={text: "v"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (message(properties={"n": text}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (message(tag=text), Code.ILLEGAL_MESSAGE_TAG),
        (message(keys=["k", text]), Code.ILLEGAL_MESSAGE_KEY),
        (message(message_group=text), Code.ILLEGAL_MESSAGE_GROUP),
        (message(message_id=text), Code.ILLEGAL_MESSAGE_ID),
        (message(trace_context=text), Code.BAD_REQUEST),
        (message(born_host=text), Code.BAD_REQUEST),
    ]:
        found, sentence = code_of(sent)
        assert (found, "control character" in sentence) == (code, True)


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_properties_of_the_servers_are_refused(name: str) -> None:
    code, sentence = code_of(message(properties={name: "1"}))
    assert code == Code.ILLEGAL_MESSAGE_PROPERTY_KEY
    assert name in sentence


@pytest.mark.parametrize(
    "name",
    [
        "__SHARDINGKEY",
        "TRACE_CONTEXT",
        "__transactionId__",
        "CHECK_IMMUNITY_TIME_IN_SECONDS",
        "TRANSACTION_CHECK_TIMES",
    ],
)
def test_properties_that_stocks_proxy_takes(name: str) -> None:
    """It also shows them, so a client may send what it received."""
    assert code_of(message(properties={name: "1"}))[0] == Code.OK


def test_tags_keys_and_ids() -> None:
    assert code_of(message(tag="a b"))[0] == Code.OK
    assert code_of(message(tag=" \t"))[0] == Code.ILLEGAL_MESSAGE_TAG
    assert code_of(message(tag="a|b"))[0] == Code.ILLEGAL_MESSAGE_TAG
    assert code_of(message(keys=["k", ""]))[0] == Code.OK
    assert code_of(message(keys=["k", "  "]))[0] == Code.ILLEGAL_MESSAGE_KEY
    assert code_of(message(keys=[""] * 20_000))[0] == Code.MESSAGE_PROPERTIES_TOO_LARGE
    assert code_of(message(message_id=""))[0] == Code.ILLEGAL_MESSAGE_ID
    assert code_of(message(message_id="  "))[0] == Code.ILLEGAL_MESSAGE_ID
    assert code_of(message(message_id="a" * 256)) == (
        Code.ILLEGAL_MESSAGE_ID,
        "a message id of 256 characters: give at most 255",
    )


def test_message_groups_have_less_than_64_bytes() -> None:
    assert code_of(message(message_group="g" * 63))[0] == Code.OK
    assert code_of(message(message_group="g" * 64))[0] == Code.ILLEGAL_MESSAGE_GROUP
    assert code_of(message(message_group="\u00e4" * 32))[0] == Code.ILLEGAL_MESSAGE_GROUP
    assert code_of(message(message_group="g" * 64), max_message_group_size=0)[0] == Code.OK
    assert code_of(message(message_group="  "))[0] == Code.ILLEGAL_MESSAGE_GROUP


def test_times_of_delivery_are_a_day_ahead_at_most() -> None:
    def code(time_ms: int, **config: Any) -> int:
        return code_of(message(delivery_timestamp=timestamp_of(time_ms)), **config)[0]

    assert code(NOW - DAY) == Code.OK
    assert code(NOW + DAY) == Code.OK
    assert code(NOW + DAY + 1) == Code.ILLEGAL_DELIVERY_TIME
    assert code(NOW + DAY + 1, max_delay_time_mills=0) == Code.OK
    no_time = timestamp_of(0)
    no_time.seconds = 1 << 50
    assert code_of(message(delivery_timestamp=no_time))[0] == Code.ILLEGAL_DELIVERY_TIME
    assert code_of(message(born_timestamp=no_time))[0] == Code.BAD_REQUEST


def test_orphans_are_asked_about_within_an_hour() -> None:
    def code(duration_ms: int, kind: int = MessageType.TRANSACTION, **config: Any) -> int:
        sent = message(message_type=kind)
        duration = duration_of(abs(duration_ms))
        duration.seconds *= -1 if duration_ms < 0 else 1
        sent.system_properties.orphaned_transaction_recovery_duration.CopyFrom(duration)
        return code_of(sent, **config)[0]

    assert code(3_600_999) == Code.OK
    assert code(3_601_000) == Code.BAD_REQUEST
    assert code(-1000) == Code.BAD_REQUEST
    assert code(3_601_000, max_transaction_recovery_second=0) == Code.OK
    assert code(3_601_000, MessageType.NORMAL) == Code.OK


def test_types_of_newer_clients_are_not_served() -> None:
    for kind, word in ((5, "lite"), (6, "priorities"), (7, "not known")):
        code, sentence = code_of(message(message_type=kind))
        assert (code, word in sentence) == (Code.NOT_IMPLEMENTED, True)
    for kind in MessageType.values():
        assert code_of(message(message_type=kind))[0] == Code.OK
