"""Receipt handles in the form of stock's proxies."""

from __future__ import annotations

import pytest

from rocketmq_tw.proxy.messaging.receipt_handles import MAX_HANDLE, parse_receipt_handle

STOCK = "3 1700000000000 60000 4 1 broker-a 2 7 81920"


def test_it_reads_what_stocks_proxies_give() -> None:
    handle = parse_receipt_handle(STOCK)
    assert handle.info.start_offset == 3
    assert handle.info.broker_name == "broker-a"
    assert (handle.info.queue_id, handle.info.offset) == (2, 7)
    assert handle.log_offset == 81920
    assert handle.visible_at == 1700000060000


def test_it_writes_what_stocks_proxies_read() -> None:
    assert str(parse_receipt_handle(STOCK)) == STOCK


def test_an_extra_info_without_a_place_in_the_log_is_one() -> None:
    assert parse_receipt_handle(STOCK.rpartition(" ")[0]).log_offset == -1


@pytest.mark.parametrize(
    ("kind", "topic"), [("0", "Topic"), ("1", "%RETRY%G_Topic"), ("2", "%RETRY%G+Topic")]
)
def test_it_knows_the_topic_that_the_message_stands_in(kind: str, topic: str) -> None:
    handle = parse_receipt_handle(f"3 1 60000 4 {kind} broker-a 2 7 0")
    assert handle.topic("Topic", "G") == topic


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "1 2 3 4 0 broker-a 1",
        "x 1700000000000 60000 4 0 broker-a 2 7 1",
        "3 1700000000000 60000 4 0 broker-a 2 7 x",
        "3 1700000000000 60000 4 9 broker-a 2 7 1",
        "3 99999999999999999999999 60000 4 0 broker-a 2 7 1",
        "3 1700000000000 60000 4 0 broker-a 9999999999 7 1",
        "3 1700000000000 60000 4 0 broker-a 2 -7 1",
        "3 1 60000 4 0 " + "b" * MAX_HANDLE + " 2 7 1",
    ],
)
def test_nonsense_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="receipt handle"):
        parse_receipt_handle(text)
