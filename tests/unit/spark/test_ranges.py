"""How much of each queue a batch takes, and how ranges become tasks."""

from hypothesis import given
from hypothesis import strategies as st

from rocketmq_tw.spark.ranges import OffsetRange, prorate, ranges_between, split
from rocketmq_tw.wire.bodies.queues import MessageQueue

QUEUES = [MessageQueue(topic="t", broker_name="b", queue_id=number) for number in range(8)]
sizes = st.lists(st.integers(0, 5000), min_size=1, max_size=8)


def test_shares_follow_the_sizes() -> None:
    start = dict.fromkeys(QUEUES[:3], 10)
    end = prorate(start, {QUEUES[0]: 910, QUEUES[1]: 110, QUEUES[2]: 10}, 100)
    assert end == {QUEUES[0]: 100, QUEUES[1]: 20, QUEUES[2]: 10}


def test_a_queue_with_one_message_does_not_starve() -> None:
    start = dict.fromkeys(QUEUES[:2], 0)
    assert prorate(start, {QUEUES[0]: 1_000_000, QUEUES[1]: 1}, 10) == {QUEUES[0]: 9, QUEUES[1]: 1}


@given(sizes, st.integers(1, 6000))
def test_a_limit_is_met_exactly_and_fairly(counts: list[int], limit: int) -> None:
    start = {queue: 7 for queue, _ in zip(QUEUES, counts, strict=False)}
    latest = {queue: 7 + count for queue, count in zip(QUEUES, counts, strict=False)}
    end = prorate(start, latest, limit)
    taken = {queue: end[queue] - 7 for queue in start}
    assert sum(taken.values()) == min(limit, sum(counts))
    assert all(0 <= taken[queue] <= latest[queue] - 7 for queue in start)
    waiting = [queue for queue in start if latest[queue] > 7]
    if limit >= len(waiting):
        assert all(taken[queue] for queue in waiting)


@given(sizes, st.integers(1, 40))
def test_a_split_has_the_same_messages(counts: list[int], wanted: int) -> None:
    start = {queue: 3 for queue, _ in zip(QUEUES, counts, strict=False)}
    end = {queue: 3 + count for queue, count in zip(QUEUES, counts, strict=False)}
    whole = ranges_between(start, end)
    parts = split(whole, wanted)
    assert _offsets(parts) == _offsets(whole)
    assert all(part.count > 0 for part in parts)
    assert len(parts) >= min(wanted, sum(counts))


def test_large_ranges_are_cut_and_small_ones_stay() -> None:
    small, large = OffsetRange("t", "b", 0, 0, 10), OffsetRange("t", "b", 1, 0, 990)
    parts = split([small, large], 4)
    assert parts[0] == small
    assert [(part.start, part.end) for part in parts[1:]] == [(0, 330), (330, 660), (660, 990)]
    assert split([small, large], None) == [small, large]


def _offsets(parts: list[OffsetRange]) -> list[tuple[int, int]]:
    return sorted((part.queue_id, offset) for part in parts for offset in range(*_ends(part)))


def _ends(part: OffsetRange) -> tuple[int, int]:
    return part.start, part.end
