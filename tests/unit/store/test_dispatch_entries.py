"""The short ways to what a record means to queues and index say what the plain one says."""

from collections.abc import Iterator
from itertools import accumulate
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_tw.message.batch import Batch
from rocketmq_tw.message.model import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, StoredMessage
from rocketmq_tw.message.names import SCHEDULE_TOPIC
from rocketmq_tw.message.properties import parse_properties, rejoin_properties
from rocketmq_tw.store import dispatch_entries
from rocketmq_tw.store.dispatch_entries import (
    MOST_BATCH_KEYS,
    BatchEntry,
    DispatchEntry,
    EntryMaker,
)

_ASCII = st.text(st.sampled_from("aKEYS \x01\x02"), max_size=6)
_NAMES = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "XKEYS", "DELAY", "WAIT", "", "1"])
_ENTRIES = st.lists(st.tuples(_NAMES, st.sampled_from(["\x01", ""]), _ASCII), max_size=6)
_TOPICS = st.sampled_from(["Topic", SCHEDULE_TOPIC])
_FLAGS = st.sampled_from([0, 1, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK])


def _text(entries: list[tuple[str, str, str]], end: str) -> str:
    return "\x02".join("".join(entry) for entry in entries) + end


@given(_ENTRIES, st.sampled_from(["", "\x02"]), _TOPICS, _FLAGS, st.booleans())
def test_parsed_properties_mean_what_the_stored_ones_do(
    entries: list[tuple[str, str, str]], end: str, topic: str, flags: int, index: bool
) -> None:
    parsed = parse_properties(_text(entries, end))
    stored = rejoin_properties(_text(entries, end), parsed) + b"MSG_REGION\x01DefaultRegion\x02"
    maker = EntryMaker((1000,), index=index)
    plain = maker.of_record(topic, 1, 2, 3, 400, flags, 5, stored)
    assert maker.of_record(topic, 1, 2, 3, 400, flags, 5, stored, parsed) == plain


def _one_by_one(entries: list[DispatchEntry] | list[BatchEntry]) -> list[DispatchEntry]:
    return [
        one
        for entry in entries
        for one in (entry.one_by_one() if isinstance(entry, BatchEntry) else (entry,))
    ]


#: Unique ids between properties that are the same for all.
_ALIKE = st.builds(
    lambda front, ids, back, end: [
        _text([*front, ("UNIQ_KEY", "\x01", i), *back], end) for i in ids
    ],
    _ENTRIES,
    st.lists(_ASCII | st.text("aK", min_size=2, max_size=2), min_size=1, max_size=4),
    _ENTRIES,
    st.sampled_from(["", "\x02"]),
)
_DIFFERENT = st.lists(st.builds(_text, _ENTRIES, st.just("\x02")), min_size=1, max_size=4)
#: The same names for all, each with a value of its own.
_LIKE_NAMES = st.lists(_NAMES, max_size=4).flatmap(
    lambda names: st.lists(
        st.builds(
            lambda values: _text(
                [(name, "\x01", value) for name, value in zip(names, values, strict=True)], "\x02"
            ),
            st.lists(_ASCII, min_size=len(names), max_size=len(names)),
        ),
        min_size=1,
        max_size=4,
    )
)


@given(_ALIKE | _DIFFERENT | _LIKE_NAMES, _ENTRIES, _TOPICS, _FLAGS, st.booleans(), st.booleans())
def test_a_batch_is_dispatched_as_its_records_are(
    texts: list[str],
    common: list[tuple[str, str, str]],
    topic: str,
    flags: int,
    index: bool,
    is_pypy: bool,
) -> None:
    batch = Batch([0] * len(texts), [b""] * len(texts), [text.encode() for text in texts])
    if all(text[-1:] in ("", "\x02") for text in texts):
        batch.common = _text(common, "\x02").encode()
    properties = [each + batch.common for each in batch.properties]
    sizes = [91 + len(each) for each in properties]
    offsets = list(accumulate(sizes[:-1], initial=100))
    message = StoredMessage(
        topic=topic,
        queue_id=1,
        body=b"",
        sys_flag=flags,
        queue_offset=7,
        physical_offset=100,
        store_timestamp=5,
    )
    maker = EntryMaker((1000,), index=index)
    plain = [
        maker.of_record(topic, 1, 7 + number, offsets[number], sizes[number], flags, 5, each)
        for number, each in enumerate(properties)
    ]
    with patch.object(dispatch_entries, "IS_PYPY", is_pypy):
        entries = maker.of_batch(message, batch, offsets, sizes)
    assert _one_by_one(entries) == plain
    assert sum(entry.size for entry in entries) == sum(sizes)
    assert sum(entry.count for entry in entries) == len(plain)
    assert [code for entry in entries for code in entry.tags_codes] == [
        each.tags_code for each in plain
    ]


@pytest.fixture(params=[False, True], ids=["with expressions", "in a loop"])
def each_way(request: pytest.FixtureRequest) -> Iterator[None]:
    """CPython's way and PyPy's."""
    with patch.object(dispatch_entries, "IS_PYPY", request.param):
        yield


@pytest.mark.usefixtures("each_way")
def test_a_batch_of_one_producer_is_one_entry() -> None:
    properties = [b"TAGS\x01a\x02UNIQ_KEY\x01u%d\x02WAIT\x01true\x02" % n for n in range(3)]
    message = StoredMessage(topic="T", queue_id=0, body=b"")
    batch = Batch([0] * 3, [b""] * 3, properties, b"MSG_REGION\x01DefaultRegion\x02")
    (entry,) = EntryMaker((), index=True).of_batch(message, batch, [0, 200, 400], [200] * 3)
    assert isinstance(entry, BatchEntry)
    assert (entry.tags_codes, entry.keys) == ([97] * 3, [b"u0", b"u1", b"u2"])


@pytest.mark.usefixtures("each_way")
def test_a_batch_of_messages_that_differ_is_one_entry() -> None:
    properties = [
        b"KEYS\x01k l\x02UNIQ_KEY\x01u\x02",
        b"TAGS\x01a\x02",
        b"KEYS\x01m\x02TAGS\x01b\x02",
    ]
    message = StoredMessage(topic="T", queue_id=0, body=b"")
    batch = Batch([0] * 3, [b""] * 3, properties)
    (entry,) = EntryMaker((), index=True).of_batch(message, batch, [0, 200, 400], [200] * 3)
    assert isinstance(entry, BatchEntry)
    assert (entry.tags_codes, entry.keys) == ([0, 97, 98], [b"u", b"k", b"l", b"m"])
    assert entry.key_offsets == [0, 0, 0, 400]


@pytest.mark.usefixtures("each_way")
def test_messages_of_a_batch_with_very_many_keys_are_dispatched_one_by_one() -> None:
    keys = b" ".join([b"k"] * (MOST_BATCH_KEYS // 2 + 1))
    batch = Batch([0] * 2, [b""] * 2, [b"KEYS\x01" + keys + b"\x02"] * 2)
    message = StoredMessage(topic="T", queue_id=0, body=b"")
    entries = EntryMaker((), index=True).of_batch(message, batch, [0, 9000], [9000] * 2)
    assert [len(entry.keys) for entry in entries] == [MOST_BATCH_KEYS // 2 + 1] * 2


@pytest.mark.parametrize("text", ["TAGS\x01a\x02UNIQ_KEY\x01u\x02KEYS\x01k l\x02"])
def test_what_is_parsed_is_used(text: str) -> None:
    entry = EntryMaker((), index=True).of_record("T", 0, 0, 0, 9, 0, 0, b"", parse_properties(text))
    assert (entry.tags_code, entry.keys) == (97, (b"u", b"k", b"l"))
