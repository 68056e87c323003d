"""Reads with a filter that looks at the properties of messages."""

import pytest

from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.message.layout import properties_of
from rocketmq_tw.message.record import decode_records
from rocketmq_tw.store.interface import GetStatus, MessageFilter, QueueRead
from rocketmq_tw.store.message_store import MessageStore
from tests.support.stores import make_message, open_store, put


@pytest.fixture
def store() -> MessageStore:
    return open_store(
        MemoryFiles(),
        mapped_file_size_commit_log=1 << 18,
        mapped_file_size_consume_queue=20_000,
        max_message_size=1 << 17,
    )


def read(store: MessageStore, offset: int, topic: str = "Topic", **wanted: object) -> QueueRead:
    return store.read_queue(topic, 0, offset, 32, 1 << 20, MessageFilter(**wanted))  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [0, 3000, 20_000, 70_000])
@pytest.mark.parametrize("ip", ["10.0.0.1", "fe80::1"])
@pytest.mark.parametrize("topic", ["Topic", "T" * 200])
def test_it_is_asked_with_the_properties(
    store: MessageStore, size: int, ip: str, topic: str
) -> None:
    for number in range(6):
        message = make_message(
            b"%d" % number + bytes(size), topic=topic, properties=b"n\x01%d\x02" % number
        )
        message.born_host = (ip, 1)
        put(store, message, make_message(bytes(1000 * number), topic="Other"))
    asked = []

    def is_even(properties: bytes) -> bool:
        asked.append(properties)
        return int(properties[2:3]) % 2 == 0

    found = read(store, 1, topic, by_properties=is_even)
    assert [m.body[:1] for m in decode_records(found.data)] == [b"2", b"4"]
    assert asked == [b"n\x01%d\x02" % number for number in range(1, 6)]
    assert found.next_offset == 6


def test_nothing_matches(store: MessageStore) -> None:
    put(store, *[make_message(b"%d" % n) for n in range(5)])
    found = read(store, 0, by_properties=lambda properties: False)
    assert (found.status, found.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 5)


def test_the_tag_is_asked_first(store: MessageStore) -> None:
    put(store, *[make_message(b"%d" % n, tags="ab"[n % 2]) for n in range(6)])
    asked = []

    def note(properties: bytes) -> bool:
        asked.append(properties)
        return True

    found = read(store, 0, by_unit=lambda code: code == ord("b"), by_properties=note)
    assert [m.body for m in decode_records(found.data)] == [b"1", b"3", b"5"]
    assert asked == [b"TAGS\x01b\x02"] * 3


def test_one_read_looks_at_so_many_messages_at_most(store: MessageStore) -> None:
    put(store, *[make_message(b"%d" % n) for n in range(900)])
    found = read(store, 0, by_properties=lambda properties: False)
    assert (found.status, found.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 800)


def test_one_read_looks_at_fewer_where_that_takes_long(store: MessageStore) -> None:
    put(store, *[make_message(b"%d" % n) for n in range(900)])
    for weight, looked_at in [(4, 200), (1000, 32)]:
        found = read(store, 0, by_properties=lambda properties: False, weight=weight)
        assert (found.status, found.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, looked_at)


@pytest.mark.parametrize(("weight", "looked_at"), [(1, 69), (8, 8), (100, 1), (1000, 1)])
def test_one_read_looks_at_fewer_where_properties_are_long(
    store: MessageStore, weight: int, looked_at: int
) -> None:
    put(store, *[make_message(b"%d" % n, properties=b"n" * 30_000) for n in range(200)])
    asked = []
    found = read(store, 0, by_properties=asked.append, weight=weight)
    assert (found.status, found.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, looked_at)
    assert len(asked) == looked_at
    found = read(store, 199, by_properties=lambda properties: True, weight=weight)
    assert (found.status, found.next_offset) == (GetStatus.FOUND, 200)


def test_what_was_found_is_given_where_no_more_can_be_looked_at(store: MessageStore) -> None:
    put(store, *[make_message(b"%d" % n, properties=b"n" * 30_000) for n in range(200)])
    found = read(store, 0, by_properties=lambda properties: True, weight=25)
    assert (found.status, found.messages, found.next_offset) == (GetStatus.FOUND, 2, 2)


def test_properties_of_anything() -> None:
    store = open_store(MemoryFiles())
    (place,) = put(store, make_message(b"body", properties=b"a\x01b\x02"))
    record = store.record_at(place)
    assert record is not None
    assert properties_of(record, 0, len(record)) == b"a\x01b\x02"
    assert properties_of(bytes(3) + record, 3, len(record)) == b"a\x01b\x02"
    for length in range(len(record)):
        assert b"a\x01b\x02" not in properties_of(record[:length], 0, length)
    for place in range(len(record) - 6):
        # Any byte may be wrong.
        for byte in (0, 0x7F, 0xFF):
            damaged = record[:place] + bytes((byte,)) + record[place + 1 :]
            assert len(properties_of(damaged, 0, len(record))) <= len(record)
