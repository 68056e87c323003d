"""The report on a group's log names what stands twice, what is missing, and who wrote it."""

from __future__ import annotations

from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.record import encode_record
from rocketmq_tw.raft.core.entry import ENTRY_HEADER_SIZE, Entry
from tests.support.dledger_findings import Writers, parse_message_id, written

NAMES = {"10.0.0.1:10911": "n0-ours", "10.0.0.2:10911": "n1-stock"}


def entry(index: int, term: int, host: str, queue_offset: int, body: bytes) -> Entry:
    position = index * 1000
    record = encode_record(
        StoredMessage(
            topic="T",
            queue_id=2,
            body=body,
            sys_flag=0,
            born_timestamp=1,
            born_host=("10.0.0.9", 5),
            store_timestamp=2,
            store_host=(host, 10911),
            queue_offset=queue_offset,
            physical_offset=position + ENTRY_HEADER_SIZE,
        )
    )
    return Entry(index, term, position, record, 0, 0)


LOG = list(
    written(
        [
            entry(0, 1, "10.0.0.1", 0, b"a"),
            entry(1, 1, "10.0.0.1", 1, b"b"),
            entry(2, 3, "10.0.0.2", 1, b"c"),
        ]
    )
)


def test_messages_at_one_offset_are_said_with_their_writers() -> None:
    first, second = Writers(NAMES).doubled(LOG)
    assert first == "T/2 offset 1: entry 1 of term 1 at 1048, by n0-ours, body b'b'"
    assert second == "T/2 offset 1: entry 2 of term 3 at 2048, by n1-stock, body b'c'"


def test_a_lost_message_is_said_with_what_is_in_its_place() -> None:
    ids = {b"a": f"0A000001{10911:08X}{48:016X}", b"x": f"0A000001{10911:08X}{2048:016X}"}
    assert parse_message_id(ids[b"x"]) == ("10.0.0.1:10911", 2048)
    (line,) = Writers(NAMES).lost(LOG, ids)
    assert line.startswith("b'x', acknowledged by n0-ours at 2048; there is T/2 offset 1: entry 2")


def test_who_wrote_in_which_term() -> None:
    assert Writers(NAMES).terms(LOG) == [
        "term 1: entries 0 to 1 by n0-ours",
        "term 3: entries 2 to 2 by n1-stock",
    ]
