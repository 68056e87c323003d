"""Which half messages are due: settled ones that stand together are passed over together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketmq_tw.broker.transactions.book import HalfBook, State
from rocketmq_tw.broker.transactions.check_schedule import RETRY_CHECK, CheckSchedule, due_at

_WAIT_MS = 10
#: Offset, base in ms, and interval of what is added.
_ADDED = st.tuples(st.integers(0, 12), st.integers(0, 30), st.sampled_from([1, RETRY_CHECK]))


def plain_due(
    added: list[tuple[int, int, int]], now_ms: int, book: HalfBook
) -> tuple[list[int], int | None]:
    """The offsets that are due, each asked about by itself, and when to look again."""
    due: set[int] = set()
    looks = []
    for interval in {interval for _, _, interval in added}:
        for offset, base, own in added:
            if own != interval or not book.is_pending(offset):
                continue
            at = due_at(base, _WAIT_MS, now_ms)
            if at > now_ms:
                looks.append(at)
                break
            due.add(offset)
    return sorted(due), min(looks, default=None)


@given(
    st.lists(_ADDED, max_size=20),
    st.sets(st.integers(0, 12)),
    st.integers(0, 6),
    st.integers(0, 50),
)
def test_what_is_due(
    added: list[tuple[int, int, int]], settled: set[int], start: int, now_ms: int
) -> None:
    book = HalfBook(start)
    book.learn(13)
    for offset in settled:
        book.settle(offset, State.COMMITTED)
    schedule = CheckSchedule(lambda interval: _WAIT_MS)
    for offset, base, interval in added:
        schedule.add(offset, base, interval)
    assert schedule.take_due(now_ms, 100, book.next_pending) == plain_due(added, now_ms, book)
