"""What an answer to a pop says of its messages, read again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_tw.message.extra_info import (
    NORMAL,
    RETRY,
    RETRY_V2,
    ExtraInfo,
    OffsetInfos,
    PoppedOffsets,
    _parse_by_part,
    parse_extra_info,
)
from rocketmq_tw.wire.errors import RequestError


def test_what_is_written_is_read() -> None:
    infos = OffsetInfos()
    infos.add("Topic", 3, 10, [10, 12])
    infos.add("%RETRY%G_Topic", 0, 4, [5])
    infos.add("%RETRY%G+Topic", 0, 6, [6])
    infos.add_counts("Topic", 3, [(10, 2)])
    infos.add_least_count("Topic", 3, 1)
    offsets = PoppedOffsets(infos.starts, infos.counts)
    assert offsets.start(NORMAL, 3) == 10
    assert (offsets.start(RETRY, 0), offsets.start(RETRY_V2, 0)) == (4, 6)
    assert offsets.start(NORMAL, 4) is None
    assert offsets.consumed(NORMAL, 3, 10) == 2
    assert offsets.consumed(NORMAL, 3, 12) == 1
    assert offsets.consumed(NORMAL, 4, 12) == 0


def test_answers_of_old_brokers_say_nothing() -> None:
    assert PoppedOffsets(None, None).start(NORMAL, 0) is None


def test_a_damaged_answer_is_refused() -> None:
    with pytest.raises(RequestError, match="no number"):
        PoppedOffsets("0 1 x", None)


_PARTS = st.one_of(
    st.integers(-(1 << 64), 1 << 64).map(str),
    st.integers(0, 10**18).map(str),
    st.sampled_from(["0", "007", "+1", "-1", "", "broker-a", "1\n", "\u0663", "9" * 18, "9" * 19]),
)


def _read(read: Callable[[str], ExtraInfo], text: str) -> ExtraInfo | str:
    try:
        return read(text)
    except RequestError as error:
        return str(error)


@given(st.lists(_PARTS, min_size=5, max_size=10).map(" ".join))
def test_an_extra_info_is_read_at_once_as_part_by_part(text: str) -> None:
    assert _read(parse_extra_info, text) == _read(_parse_by_part, text)


_times = st.integers(0, (1 << 63) - 1)


@given(
    st.builds(
        ExtraInfo,
        _times,
        _times,
        _times,
        _times,
        st.sampled_from([NORMAL, RETRY, RETRY_V2]),
        st.text().filter(lambda name: " " not in name),
        _times,
        _times,
    )
)
def test_an_extra_info_is_read_as_it_was_written(info: ExtraInfo) -> None:
    assert parse_extra_info(str(info)) == info == _parse_by_part(str(info))
