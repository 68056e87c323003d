"""Handles of messages to take back, as stock 5.3.3 answers and takes them."""

from base64 import urlsafe_b64encode

import pytest

from rocketmq_tw.message.recall import RecallHandle, decode_recall_handle

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
