"""A batch's body, against what the stock jars made, and cut or bent."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_tw.message import batch as batch_module
from rocketmq_tw.message.batch import BatchedMessage, decode_batch, encode_batch
from rocketmq_tw.message.properties import parse_properties


def test_stocks_batch_reads_and_writes(golden: Any) -> None:
    data = bytes.fromhex(golden["batch"])
    messages = decode_batch(data)
    assert [(m.flag, m.body.decode(), parse_properties(m.properties)) for m in messages] == [
        (0, "first", {"TAGS": "a"}),
        (7, "zweite, größer", {"KEYS": "k1 k2"}),
        (-1, "3", {}),
    ]
    assert encode_batch(messages) == data


def test_an_empty_body_has_no_messages() -> None:
    assert list(decode_batch(b"")) == []


def test_every_cut_is_noticed() -> None:
    data = encode_batch([BatchedMessage(1, b"body", b"k\x01v\x02")])
    for length in range(1, len(data)):
        with pytest.raises(ValueError, match=r"batch|says"):
            decode_batch(data[:length])


@pytest.mark.parametrize(("at", "value"), [(0, 1000), (0, -1), (16, -5), (16, 1000)])
def test_a_length_that_lies_is_noticed(at: int, value: int) -> None:
    data = bytearray(encode_batch([BatchedMessage(1, b"body", b"k\x01v\x02")]))
    data[at : at + 4] = value.to_bytes(4, "big", signed=True)
    with pytest.raises(ValueError):
        decode_batch(bytes(data))


_PARTS = st.tuples(
    st.integers(-(1 << 31), (1 << 31) - 1), st.binary(max_size=3), st.binary(max_size=3)
)


@given(st.lists(_PARTS, min_size=1, max_size=8), st.booleans(), st.data())
def test_messages_of_one_layout_read_as_any_do(
    parts: list[tuple[int, bytes, bytes]], alike: bool, data: st.DataObject
) -> None:
    if alike:
        parts = [(flag, *parts[0][1:]) for flag, _, _ in parts]
    body = bytearray(encode_batch(BatchedMessage(*part) for part in parts))
    assert [(m.flag, m.body, m.properties) for m in decode_batch(bytes(body))] == parts
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] = data.draw(st.sampled_from([0, 1, 2, 23, 24, 255]))
    try:
        expected = list(batch_module._decode_any(bytes(body), 99))
    except ValueError:
        with pytest.raises(ValueError):
            decode_batch(bytes(body))
    else:
        assert list(decode_batch(bytes(body))) == expected


def test_properties_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="32767"):
        encode_batch([BatchedMessage(0, b"", b"x" * 32768)])


@pytest.mark.parametrize("first", [b"", b"x"], ids=["alike", "of different lengths"])
def test_of_too_many_none_behind_the_last_that_may_be_is_read(first: bytes) -> None:
    messages = [BatchedMessage(0, body, b"") for body in (first, *[b""] * 99)]
    data = encode_batch(messages)
    assert len(decode_batch(data, 100)) == 100
    # What follows is no message, and nobody sees that.
    for body in (data, data + bytes(22)):
        with pytest.raises(ValueError, match="more than 99 messages"):
            decode_batch(body, 99)
