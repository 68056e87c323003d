"""The short ways to what a record means to queues and index say what the plain one says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_tw.message.names import SCHEDULE_TOPIC
from rocketmq_tw.message.properties import parse_properties, rejoin_properties
from rocketmq_tw.message.sysflags import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from rocketmq_tw.store.dispatch import Dispatch, Dispatcher

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
    dispatcher = Dispatcher((1000,), index=index)
    plain = dispatcher.dispatch(topic, 1, 2, 3, 400, flags, 5, stored)
    assert dispatcher.dispatch(topic, 1, 2, 3, 400, flags, 5, stored, parsed) == plain


@given(st.lists(_ENTRIES, min_size=1, max_size=4), _TOPICS, _FLAGS, st.booleans())
def test_a_batch_is_dispatched_as_its_records_are(
    batch: list[list[tuple[str, str, str]]], topic: str, flags: int, index: bool
) -> None:
    properties = [_text(entries, "\x02").encode() for entries in batch]
    records = [b"record" + each for each in properties]
    dispatcher = Dispatcher((1000,), index=index)
    plain: list[Dispatch] = []
    offset = 100
    for number, (record, each) in enumerate(zip(records, properties, strict=True)):
        plain.append(dispatcher.dispatch(topic, 1, 7 + number, offset, len(record), flags, 5, each))
        offset += len(record)
    data = b"".join(records)
    assert plain == dispatcher.dispatch_batch(topic, 1, 7, 100, records, data, flags, 5, properties)


@pytest.mark.parametrize("text", ["TAGS\x01a\x02UNIQ_KEY\x01u\x02KEYS\x01k l\x02"])
def test_what_is_parsed_is_used(text: str) -> None:
    entry = Dispatcher((), index=True).dispatch("T", 0, 0, 0, 9, 0, 0, b"", parse_properties(text))
    assert (entry.tags_code, entry.keys) == (97, (b"u", b"k", b"l"))
