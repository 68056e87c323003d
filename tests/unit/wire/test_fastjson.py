"""The dialect's reader and writer; what is taken and refused is what stock's fastjson does."""

import contextlib
import json
import sys
from collections.abc import Iterator
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_tw.wire import fastjson, fastjson_reader
from rocketmq_tw.wire.bodies.base import (
    DIALECT_REQUEST_BYTES,
    REQUEST_BARE_KEYS,
    TOLERANT_REQUEST_BYTES,
    decode_body,
    decode_request,
    encode_body,
)
from rocketmq_tw.wire.bodies.clients import HeartbeatData
from rocketmq_tw.wire.bodies.pop import AckMsg, BatchAckMsg
from rocketmq_tw.wire.bodies.queues import (
    ConsumerOffsetTable,
    ConsumerStatusBody,
    LockBatchRequestBody,
    MessageQueue,
)
from rocketmq_tw.wire.errors import BodyError, WireError
from rocketmq_tw.wire.object_keys import ObjectKey

QUEUE = {"brokerName": "b", "queueId": 1, "topic": "T"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{0:"a",-1:"b"}', {0: "a", -1: "b"}),
        ("{1.5:1}", {1.5: 1}),
        ('{{"topic":"x"}:1}', {ObjectKey(topic="x"): 1}),
        ("{'a':'b'}", {"a": "b"}),
        ("{a:1,$b:2}", {"a": 1, "$b": 2}),
        ("{true:1,null:2}", {"true": 1, "null": 2}),
        ("{a:1,,}", {"a": 1}),
        ("[1,2,]", [1, 2]),
        ("{a:null,b:undefined,c:NaN}", {"a": None, "b": None, "c": None}),
        ("{a:+5,b:01,c:-2.5e3}", {"a": 5, "b": 1, "c": -2500.0}),
        ("{a:1L,b:2.5D}", {"a": 1, "b": 2.5}),
        (r"{a:'\x41\v\0\'\"\/'}", {"a": "A\v\0'\"/"}),
        (r'{a:"\uD83D\uDE00 \ud83d"}', {"a": "\U0001f600 \ufffd"}),
        ('{a:"two\nlines"}', {"a": "two\nlines"}),
        ("{'a':{},'b':[]}", {"a": {}, "b": []}),
        (" \r\n\t{ a : 1 } ", {"a": 1}),
    ],
)
def test_dialect_is_read(text, value):
    assert fastjson.loads(text.encode()) == value


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "{a:1}x", "{a:.5}", "{a b:1}", "{a:1 b:2}", "{a:TRUE}", "{a:x}", "{a:}", "{:1}",
        "{a", "{a:", "{a:1", "[1", "[1 2]", "{a:'b}", r"{a:'\q'}", r"{a:'\u12'}", "{a:'\\", "]",
        "{a:[}", "{[:1}",
    ],
)  # fmt: skip
def test_what_fastjson_refuses_is_refused(text):
    with pytest.raises(WireError, match="cannot be read"):
        fastjson.loads(text.encode())


def of_one_hash(count: int) -> Iterator[int]:
    """Yields numbers whose Python hashes are 0, whatever the process."""
    return (number * sys.hash_info.modulus for number in range(2, count + 2))


@pytest.mark.parametrize(
    "text",
    [
        "{[1]:2}",
        "{{a:[1]}:2}",
        "{{{a:1}:2}:3}",
        f"{{{2**64}:1}}",
        f"{{{{a:{2**63}}}:1}}",
        "{" + ",".join(f"{number}:1" for number in of_one_hash(10_000)) + "}",
        "{" + ",".join(f"{{a:{number}}}:1" for number in of_one_hash(8_000)) + "}",
        "{" * 60 + ",".join(f"{number}:1" for number in range(30_000)) + "}" + ":1}" * 59,
    ],
    ids=lambda text: text[:20],
)
def test_keys_that_are_slow_to_hash_are_refused(text):
    began = process_time()
    with pytest.raises(BodyError, match=r"as (a key|keys)|strict JSON"):
        decode_request(ConsumerStatusBody, text.encode())
    assert process_time() - began < 0.5


def test_references_that_lead_nowhere_cost_the_same_in_a_large_object():
    members = ",".join(f"k{number}:1" for number in range(60_000))
    text = f"{{{members},r:[" + ",".join(['{"$ref":"$.z"}'] * 30_000) + "]}"
    began = process_time()
    assert fastjson.loads(text.encode())["r"] == [None] * 30_000
    assert process_time() - began < 5


@pytest.mark.parametrize("opening", [b"[", b"{a:", b"{[", b'{"a":'])
def test_deep_nesting_is_refused(opening):
    with pytest.raises(WireError, match="64 levels"):
        fastjson.loads(opening * 100_000)


def test_deep_nesting_in_strict_json_is_no_body():
    with pytest.raises(BodyError):
        decode_body(ConsumerStatusBody, b'{"x":' * 990 + b"1" + b"}" * 990 + b",")


def test_text_that_is_not_utf_8_is_refused():
    with pytest.raises(WireError, match="UTF-8"):
        fastjson.loads(b"{a:'\xff'}")


def test_long_number_is_refused():
    with pytest.raises(WireError):
        fastjson.loads(b"{a:" + b"9" * 5000 + b"}")


def test_shared_values_are_resolved(dialect):
    assert fastjson.loads(dialect["shared values"]) == {
        "a.b": QUEUE,
        "again": QUEUE,
        "%RETRY%g": {0: "x", -5: "y"},
        "map": {0: "x", -5: "y"},
        "list": [QUEUE, QUEUE],
    }


def test_shared_keys_are_resolved(dialect):
    offsets = {ObjectKey(brokerName="b", queueId=2, topic="T"): 7}
    assert fastjson.loads(dialect["shared keys"]) == dict.fromkeys(
        ("first", "second", "third"), offsets
    )


@pytest.mark.parametrize("path", ["@", "$", "..", "$.self", "$.nowhere", "$.a[0].b", "x", "$.a"])
def test_reference_that_is_a_circle_or_leads_nowhere_is_null(path):
    text = json.dumps({"a": {"self": {"$ref": path}}}).encode()
    assert fastjson.loads(text) == {"a": {"self": None}}


def test_circle_of_stock_is_null(dialect):
    assert fastjson.loads(dialect["circle"]) == {"self": None}


def test_references_that_multiply_are_refused():
    levels = {"a0": [0] * 10}
    for level in range(1, 30):
        levels[f"a{level}"] = [{"$ref": f"$.a{level - 1}"}] * 10
    with pytest.raises(WireError, match="stand for too much"):
        fastjson.loads(json.dumps(levels).encode())


@pytest.mark.parametrize(
    ("first", "last"), [("1", "1"), ('{"$ref":"$.r"}', "1"), ("1", '{"$ref":"$.r"}')]
)
@pytest.mark.parametrize("nesting", [1, 60])
def test_references_cost_no_more_than_their_text(nesting, first, last, monkeypatch):
    looked_at = []
    is_reference = fastjson_reader._is_reference
    monkeypatch.setattr(
        fastjson_reader, "_is_reference", lambda each: looked_at.append(1) or is_reference(each)
    )
    ones = "[" * nesting + f"{first}," + "1," * 900 + last + "]" * nesting
    text = '{"r":[' + ",".join(['{"$ref":"$.a"}'] * 95) + f'],"a":{ones}}}'
    found = []
    with contextlib.suppress(WireError):
        found = fastjson.loads(text.encode())["r"]
    assert found in ([], [None] * 95, [json.loads(ones)] * 95)
    assert len(looked_at) < 6 * len(text)


@pytest.mark.parametrize("item", [b"[],", b"{},", b"0,", b'"",'])
def test_more_values_than_any_body_has_are_refused_before_they_are_made(item):
    data = b'{"producerDataSet":[' + item * 1_500_001 + b"]}"
    with pytest.raises(BodyError, match="more than 1500000 values"):
        decode_body(HeartbeatData, data)


def test_escapes_of_stock(dialect):
    text = "a/<b>(c)'\"\\\x01\x7f\x85\xe9\u6f22\u2028\U0001f600\n"
    assert fastjson.loads(dialect["escapes"]) == {"s": text}
    assert fastjson.loads(dialect["browser escapes"]) == {"s": text}
    assert fastjson.loads(fastjson.dumps({"s": text})) == {"s": text}


def test_object_keys_are_written_bare_or_as_text():
    body = ConsumerStatusBody(
        message_queue_table={MessageQueue(topic="T", broker_name="b", queue_id=1): 5}
    )
    assert encode_body(body) == (
        b'{"consumerTable":{},"messageQueueTable":{{"brokerName":"b","queueId":1,"topic":"T"}:5}}'
    )
    standard = encode_body(body, standard_json=True)
    assert list(json.loads(standard)["messageQueueTable"]) == [
        '{"brokerName":"b","queueId":1,"topic":"T"}'
    ]
    assert decode_body(ConsumerStatusBody, standard) == body


def test_standard_maps_are_sorted():
    assert fastjson.dumps({10: "a", 9: "b", 0: None}, standard=True) == b'{"9":"b","10":"a"}'


keys = st.text(max_size=5) | st.integers(-(2**63), 2**63 - 1)
values = st.recursive(
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=20,
)


def holds_reference(value: object) -> bool:
    if isinstance(value, dict):
        return "$ref" in value or any(map(holds_reference, value.values()))
    return isinstance(value, list) and any(map(holds_reference, value))


@given(values.filter(lambda value: not holds_reference(value)))
def test_what_is_written_is_read(value):
    assert fastjson.loads(fastjson.dumps(value)) == value


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        (b'{0:"a",-1 :{2:[1,2]}, 3:4}', b'{"0":"a","-1" :{"2":[1,2]}, "3":4}'),
        (b'{"a":"{1:2,3:4}","b\\"":",5:"}', b'{"a":"{1:2,3:4}","b\\"":",5:"}'),
        (b"[1,2,3]", b"[1,2,3]"),
        (b'{"a\\\\",1:2}', b'{"a\\\\","1":2}'),
        (b'"{1:\\', b'"{1:\\'),
        (b'{"a\\n\\\\\\"{1:":{2:1}}', b'{"a\\n\\\\\\"{1:":{"2":1}}'),
    ],
)
def test_bare_numbers_are_quoted_outside_of_strings(text, quoted):
    assert fastjson.quote_bare_keys(text) == quoted


@given(st.binary())
def test_quoting_changes_nothing_but_quotes(data):
    assert fastjson.quote_bare_keys(data).replace(b'"', b"") == data.replace(b'"', b"")


def test_quotes_without_end_take_no_time():
    data = b'"' + b'\\"' * 1_000_000
    assert fastjson.quote_bare_keys(data) == data


def test_strings_are_not_looked_at_one_by_one():
    def took(data):
        times = []
        for _ in range(3):
            began = process_time()
            assert fastjson.quote_bare_keys(data) is data
            times.append(process_time() - began)
        return min(times)

    assert took(b'""' * 500_000) < 3 * took(b"," * 1_000_000)


def test_a_request_with_nulls_may_be_longer_than_one_in_the_dialect():
    name = "x" * DIALECT_REQUEST_BYTES
    text = json.dumps({"clientID": name, "consumerDataSet": None}).encode()
    assert decode_request(HeartbeatData, text).client_id == name
    with pytest.raises(BodyError, match="need to be strict JSON"):
        decode_request(HeartbeatData, text + b" " * TOLERANT_REQUEST_BYTES)
    with pytest.raises(BodyError, match="need to be strict JSON"):
        decode_request(HeartbeatData, text.replace(b'"', b"'"))


def test_a_list_that_is_too_long_is_refused_unread():
    text = b'{"mqSet":[' + b"{}," * 5_000 + b"{}]}"
    assert len(decode_request(LockBatchRequestBody, text).mq_set) == 5_001
    for refused in (text, b"[" * 20_000, text[:-3]):
        with pytest.raises(BodyError, match="more than 10000 values"):
            decode_request(LockBatchRequestBody, refused, max_values=10_000)


def test_a_request_has_no_more_numbers_as_keys_than_any_needs():
    text = b"{x:[" + b"{1:1}," * (REQUEST_BARE_KEYS + 1) + b"]}"
    with pytest.raises(BodyError, match="numbers as keys"):
        decode_request(HeartbeatData, text)


@pytest.mark.parametrize("step", ["\u00b2", "--5", "-", "5" * 5_000])
def test_a_reference_by_what_is_no_number_leads_nowhere(step):
    text = json.dumps({"a": {"$ref": f"$.{step}"}}, ensure_ascii=False).encode()
    assert fastjson.loads(text) == {"a": None}
    with pytest.raises(BodyError):
        decode_request(HeartbeatData, b'{"clientID":[' + text + b"]}")


def test_a_large_request_may_have_numbers_as_keys():
    offsets = {f"{n:0>300}@group": dict.fromkeys(range(16), n) for n in range(1_000)}
    body = encode_body(ConsumerOffsetTable(offset_table=offsets))
    assert len(body) > TOLERANT_REQUEST_BYTES
    assert decode_request(ConsumerOffsetTable, body).offset_table == offsets


def test_what_needs_the_slow_reader_is_bounded_in_a_request():
    dialect = b"{consumerDataSet:[],'clientID':'" + b"\\n" * DIALECT_REQUEST_BYTES + b"'}"
    with pytest.raises(BodyError, match="need to be strict JSON"):
        decode_request(HeartbeatData, dialect)
    assert decode_body(HeartbeatData, dialect).client_id.startswith("\n\n")


_TEXTS = st.none() | st.text()
_LONGS = st.integers(-(1 << 63), (1 << 63) - 1)


@given(_TEXTS, _TEXTS, _TEXTS, _LONGS, _LONGS, st.none() | st.lists(_LONGS))
def test_a_flat_struct_is_written_as_the_map_of_its_members(
    name, group, topic, offset, time, offsets
):
    members = {"ao": offset, "bn": name, "c": group, "pt": time, "q": 1, "so": 2, "t": topic}
    ack = AckMsg if offsets is None else BatchAckMsg
    body = ack(
        ack_offset=offset,
        broker_name=name,
        group=group,
        pop_time=time,
        queue_id=1,
        start_offset=2,
        topic=topic,
    )
    if offsets is not None:
        body.ack_offsets = members["aol"] = offsets
    assert fastjson.dumps(body) == fastjson.dumps(dict(sorted(members.items())))
