"""Queues and index get of half and real messages what their stored properties say."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_tw.store.dispatch_entries import DispatchEntry, EntryMaker
from tests.support.broker import BrokerInMemory, ok
from tests.support.transactions import HALF, OP, begin, end

_NAMES = st.sampled_from(["TAGS", "KEYS", "XKEYS", "TRAN_PREPARED_QUEUE_OFFSET", "MSG_REGION"])
_VALUES = st.text(st.sampled_from("aKEYS \x01é7"), min_size=1, max_size=6)


@given(st.dictionaries(_NAMES, _VALUES))
@settings(max_examples=30)
def test_parsed_properties_mean_what_the_stored_ones_do(own: dict[str, str]) -> None:
    plain = EntryMaker.of_record
    parsed = {}

    def compared(maker: EntryMaker, *args: Any) -> DispatchEntry:
        entry = plain(maker, *args)
        assert entry == plain(maker, *args[:8])
        parsed[entry.topic] = args[8] is not None
        return entry

    with patch.object(EntryMaker, "of_record", compared):
        broker = BrokerInMemory()
        ok(end(broker, begin(broker, **own)))
    is_ascii = all(own.get(name, "").isascii() for name in ("TAGS", "KEYS", "XKEYS"))
    assert parsed == {HALF: is_ascii, "Topic": is_ascii, OP: True}
