"""Ids both ways, against what the stock jars made."""

from base64 import urlsafe_b64encode
from datetime import UTC, datetime
from typing import Any

import pytest

from rocketmq_tw.message.ids import (
    RecallHandle,
    UniqueIds,
    decode_recall_handle,
    offset_message_id,
    parse_offset_message_id,
)


def ms(*moment: int) -> int:
    return int(datetime(*moment, tzinfo=UTC).timestamp() * 1000)  # type: ignore[arg-type, misc]


def test_offset_ids_are_stocks_both_ways(golden: Any) -> None:
    assert golden["offset_ids"]
    for host, port, offset, text in golden["offset_ids"]:
        assert offset_message_id(host, port, offset) == text
        assert parse_offset_message_id(text) == (host, port, offset)
        assert parse_offset_message_id(text.lower()) == (host, port, offset)


@pytest.mark.parametrize("text", ["", "7F", "Z" * 32, "0" * 31, "0" * 33, "0" * 30 + "  "])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no offset message id"):
        parse_offset_message_id(text)


def test_unique_ids_have_stocks_shape(golden: Any) -> None:
    stock = golden["unique_id"]
    data = bytes.fromhex(stock)
    now = ms(2026, 11, 1) + int.from_bytes(data[22:26], "big")
    ids = UniqueIds(
        data[:16], golden["unique_id_process"], int.from_bytes(data[18:22], "big"), lambda: now, UTC
    )
    assert ids.next() == stock
    assert now == golden["unique_id_near_ms"]


def test_ids_of_one_millisecond_differ_by_the_counter() -> None:
    ids = UniqueIds(b"\x7f\0\0\1", 0x12345, 7, lambda: ms(2024, 2, 1) + 1, UTC)
    assert ids.next() == "7F000001234500000007000000010000"
    assert len({ids.next() for _ in range(65535)}) == 65535


def test_the_month_turns() -> None:
    now = ms(2024, 12, 31, 23, 59, 59)
    ids = UniqueIds(b"\0" * 4, 0, 0, lambda: now, UTC)
    assert int(ids.next()[20:28], 16) == now - ms(2024, 12, 1)
    now += 1000
    assert int(ids.next()[20:28], 16) == 0


#: What stock 5.3.3 answered.
TEXT = "djEgVDEgYnJva2VyLTUuMy4zIDE3OTUzNDEzNjAwMDEgdTE="
HANDLE = RecallHandle("T1", "broker-5.3.3", "1795341360001", "u1")


def test_stocks_handle() -> None:
    assert HANDLE.encode() == TEXT
    assert decode_recall_handle(TEXT) == HANDLE


def test_java_needs_no_padding() -> None:
    assert decode_recall_handle(TEXT.rstrip("=")) == HANDLE


@pytest.mark.parametrize(
    "text",
    [
        "",
        "!!!",
        TEXT + "!",
        "é",
        urlsafe_b64encode(b"v2 T1 broker-5.3.3 5 u1").decode(),
        urlsafe_b64encode(b"v1 T1 broker-5.3.3 5").decode(),
        urlsafe_b64encode(b"v1 T1 broker-5.3.3 5 ").decode(),
        urlsafe_b64encode(b"v1 T1 \xff 5 u").decode(),
    ],
)
def test_what_is_no_handle(text: str) -> None:
    with pytest.raises(ValueError, match="recall handle"):
        decode_recall_handle(text)
