"""A batch's body, against what the stock jars made, and cut or bent."""

from typing import Any

import pytest

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
    assert decode_batch(b"") == []


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


def test_properties_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="32767"):
        encode_batch([BatchedMessage(0, b"", b"x" * 32768)])
