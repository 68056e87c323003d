"""What an answer to a pop says of its messages, read again."""

from __future__ import annotations

import pytest

from rocketmq_tw.message.extra_info import NORMAL, RETRY, RETRY_V2, OffsetInfos, PoppedOffsets
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
