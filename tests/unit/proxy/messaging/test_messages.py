import gzip
from hashlib import md5

import pytest

from rocketmq_tw.message import properties as props
from rocketmq_tw.message.model import COMPRESSED, StoredMessage
from rocketmq_tw.message.properties import join_properties
from rocketmq_tw.proxy.messaging.messages import (
    duration_ms,
    duration_of,
    message_of,
    milliseconds,
    sent_properties,
    timestamp_of,
    user_properties,
)
from rocketmq_tw.proxy.proto.messages import (
    DigestType,
    Encoding,
    Message,
    MessageType,
    Resource,
    SystemProperties,
    Timestamp,
)


def stored(body: bytes = b"hello", **fields: object) -> StoredMessage:
    properties = fields.pop("properties", {})
    values = {
        "topic": "T",
        "queue_id": 3,
        "properties": join_properties(properties),
        "born_timestamp": 1_790_000_000_123,
        "born_host": ("10.0.0.7", 1234),
        "store_timestamp": 1_790_000_000_456,
        "store_host": ("10.0.0.8", 10911),
        "queue_offset": 77,
        "physical_offset": 4096,
    }
    return StoredMessage(body=body, **(values | fields))


def test_times_and_durations_are_milliseconds() -> None:
    assert milliseconds(timestamp_of(1_790_000_000_123)) == 1_790_000_000_123
    assert milliseconds(Timestamp(seconds=-1, nanos=999_999_999)) == -1
    assert duration_ms(duration_of(61_002)) == 61_002
    for wrong in (Timestamp(seconds=1 << 40), Timestamp(nanos=-1), Timestamp(nanos=10**9)):
        with pytest.raises(ValueError, match="1 to 9999"):
            milliseconds(wrong)


def test_a_sent_message_has_its_properties() -> None:
    message = Message(
        topic=Resource(name="T"),
        user_properties={"colour": "red", "empty": ""},
        system_properties=SystemProperties(
            tag="a",
            keys=["k1", "k2", ""],
            message_id="ID",
            born_timestamp=timestamp_of(1_790_000_000_123),
            born_host="producer.example",
            message_group="g",
            trace_context="00-1-2-3",
            message_type=MessageType.FIFO,
        ),
    )
    own = user_properties(message)
    assert sent_properties(message.system_properties, own, "T", "10.0.0.9") == {
        "colour": "red",
        "UNIQ_KEY": "ID",
        "TAGS": "a",
        "KEYS": "k1 k2",
        "RECONSUME_TIME": "0",
        "PGROUP": "T",
        "__SHARDINGKEY": "g",
        "TRACE_CONTEXT": "00-1-2-3",
        "__BORNHOST": "producer.example",
        "BORN_TIMESTAMP": "1790000000123",
    }


def test_a_half_message_has_the_properties_of_its_transaction() -> None:
    system = SystemProperties(message_id="ID", message_type=MessageType.TRANSACTION)
    system.orphaned_transaction_recovery_duration.CopyFrom(duration_of(45_900))
    properties = sent_properties(system, {}, "T", "10.0.0.9")
    assert properties[props.TRAN_MSG] == "true"
    assert properties[props.CHECK_IMMUNITY_TIME_IN_SECONDS] == "45"
    assert properties[props.BORN_HOST] == "10.0.0.9"


def test_a_stored_message_is_shown_to_its_consumer() -> None:
    properties = {
        "colour": "red",
        "UNIQ_KEY": "ID",
        "TAGS": "a",
        "KEYS": "k1 k2",
        "PGROUP": "T",
        "__SHARDINGKEY": "g",
        "TRACE_CONTEXT": "00-1-2-3",
        "__BORNHOST": "producer.example",
        "POP_CK": "handle",
        "DLQ_ORIGIN_TOPIC": "Other",
        "DLQ_ORIGIN_MESSAGE_ID": "OTHER-ID",
    }
    shown = message_of(stored(properties=properties, reconsume_times=2), topic="ns%T")
    system = shown.system_properties
    assert shown.topic == Resource(name="ns%T")
    # Stock's proxy also shows the properties that these fields come from.
    assert dict(shown.user_properties) == {
        "colour": "red",
        "__SHARDINGKEY": "g",
        "TRACE_CONTEXT": "00-1-2-3",
    }
    assert shown.body == b"hello"
    assert (system.message_id, system.tag, list(system.keys)) == ("ID", "a", ["k1", "k2"])
    assert (system.queue_id, system.queue_offset, system.delivery_attempt) == (3, 77, 3)
    assert milliseconds(system.born_timestamp) == 1_790_000_000_123
    assert milliseconds(system.store_timestamp) == 1_790_000_000_456
    assert (system.born_host, system.store_host) == ("producer.example", "10.0.0.8:10911")
    assert (system.message_group, system.trace_context) == ("g", "00-1-2-3")
    assert system.receipt_handle == "handle"
    assert system.message_type == MessageType.FIFO
    assert system.body_encoding == Encoding.IDENTITY
    assert system.body_digest.type == DigestType.MD5
    assert system.body_digest.checksum == "5D41402ABC4B2A76B9719D911017C592"
    assert system.dead_letter_queue.topic == "Other"
    assert system.dead_letter_queue.message_id == "OTHER-ID"
    assert not system.HasField("delivery_timestamp")


def test_a_message_may_have_been_tried_as_often_as_numbers_go() -> None:
    """Producers say how often; one that says nonsense would end all pulls of its queue."""
    shown = message_of(stored(reconsume_times=(1 << 31) - 1))
    assert shown.system_properties.delivery_attempt == (1 << 31) - 1


def test_a_message_of_an_old_producer_has_no_unique_id() -> None:
    system = message_of(stored()).system_properties
    assert system.message_id == "0A00000800002A9F0000000000001000"
    assert system.born_host == "10.0.0.7"
    assert system.message_type == MessageType.NORMAL
    assert not system.HasField("tag")


@pytest.mark.parametrize(
    ("properties", "kind", "delivery"),
    [
        ({"TRAN_MSG": "true", "DELAY": "1"}, MessageType.TRANSACTION, 0),
        ({"DELAY": "3"}, MessageType.DELAY, 0),
        ({"TIMER_DELIVER_MS": "1790000001000"}, MessageType.DELAY, 1_790_000_001_000),
        ({"TIMER_DELAY_SEC": "5"}, MessageType.DELAY, 1_790_000_005_123),
        ({"TIMER_DELIVER_MS": "9" * 19}, MessageType.DELAY, 0),
        ({"TIMER_DELIVER_MS": "soon"}, MessageType.DELAY, 0),
    ],
)
def test_properties_say_the_type(properties: dict[str, str], kind: int, delivery: int) -> None:
    system = message_of(stored(properties=properties)).system_properties
    assert system.message_type == kind
    assert milliseconds(system.delivery_timestamp) == delivery


@pytest.mark.parametrize(
    "packed",
    [
        pytest.param(gzip.compress(b"hello"), id="gzip, as stock's proxies store it"),
        pytest.param(b"no zlib at all", id="damaged"),
    ],
)
def test_what_was_not_unpacked_is_shown_as_it_is(packed: bytes) -> None:
    shown = message_of(stored(packed, sys_flag=COMPRESSED))
    assert shown.body == packed
    assert shown.system_properties.body_encoding == Encoding.GZIP
    assert shown.system_properties.body_digest.checksum == md5(packed).hexdigest().upper()
