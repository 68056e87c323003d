"""What headers have beyond the golden cases: booleans, and one record for all sends."""

import pytest

from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.errors import HeaderError
from rocketmq_tw.wire.headers.base import header_to_fields, read_header
from rocketmq_tw.wire.headers.offsets import GetMaxOffsetRequestHeader
from rocketmq_tw.wire.headers.send import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    read_send_header,
)

SEND = {
    "producer_group": "group",
    "topic": "topic",
    "default_topic": "TBW102",
    "default_topic_queue_nums": 4,
    "queue_id": 1,
    "sys_flag": 0,
    "born_timestamp": 1_700_000_000_000,
    "flag": 0,
    "properties": "TAGS\x01a\x02",
    "reconsume_times": 0,
    "max_reconsume_times": 16,
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True), ("True", True), ("TRUE", True),
        ("false", False), ("", False), ("null", False), ("yes", False),
    ],
)  # fmt: skip
def test_booleans_are_read_as_java_does(text, value):
    fields = {"topic": "t", "queueId": "0", "committed": text}
    assert read_header(GetMaxOffsetRequestHeader, fields).committed is value


def test_boolean_that_is_no_boolean_hides_no_other_mistake():
    fields = {"topic": "t", "queueId": "", "committed": "yes"}
    with pytest.raises(HeaderError, match=r"\$\.queueId"):
        read_header(GetMaxOffsetRequestHeader, fields)


@pytest.mark.parametrize("text", ["2147483648", "-2147483649"])
def test_integer_beyond_32_bits_is_refused(text):
    with pytest.raises(HeaderError, match=r"\$\.queueId"):
        read_header(GetMaxOffsetRequestHeader, {"topic": "t", "queueId": text})


def test_text_that_reads_null_stays_text():
    fields = header_to_fields(SendMessageRequestHeader(**SEND)) | {"properties": "null"}
    assert read_send_header(RequestCode.SEND_MESSAGE, fields).properties == "null"


@pytest.mark.parametrize(
    ("code", "header_type"),
    [
        (RequestCode.SEND_MESSAGE, SendMessageRequestHeader),
        (RequestCode.SEND_REPLY_MESSAGE, SendMessageRequestHeader),
        (RequestCode.SEND_MESSAGE_V2, SendMessageRequestHeaderV2),
        (RequestCode.SEND_BATCH_MESSAGE, SendMessageRequestHeaderV2),
        (RequestCode.SEND_REPLY_MESSAGE_V2, SendMessageRequestHeaderV2),
    ],
)
def test_all_sends_are_one_record(code, header_type):
    header = read_send_header(code, header_to_fields(header_type(**SEND)))
    assert isinstance(header, SendMessageRequestHeader)
    assert {name: getattr(header, name) for name in SEND} == SEND


def test_short_names():
    fields = header_to_fields(SendMessageRequestHeaderV2(**SEND, broker_name="b", batch=True))
    assert fields == {
        "a": "group", "b": "topic", "c": "TBW102", "d": "4", "e": "1", "f": "0",
        "g": "1700000000000", "h": "0", "i": "TAGS\x01a\x02", "j": "0", "k": "false", "l": "16",
        "m": "true", "n": "b",
    }  # fmt: skip


def test_none_is_not_written():
    header = SendMessageResponseHeader(msg_id="A", queue_id=0, queue_offset=7)
    assert header_to_fields(header) == {"msgId": "A", "queueId": "0", "queueOffset": "7"}
