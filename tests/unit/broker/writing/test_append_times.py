"""How long appends took, as runtime info shows it."""

from __future__ import annotations

import pytest

from rocketmq_tw.broker.writing.append_times import AppendTimes


def counts(times: AppendTimes) -> dict[str, int]:
    words = times.distribution().split()
    return {name.strip("[]"): int(count) for name, count in (word.split(":") for word in words)}


def test_the_counts_are_by_ranges_of_milliseconds() -> None:
    times = AppendTimes()
    for milliseconds in (0, 0.9, 1, 9, 10, 49, 50, 999, 1000, 9999, 10_000, 60_000):
        times.count(1, milliseconds / 1000 + 1e-9)
    times.count(4, 0.1505)
    assert counts(times) == {
        "<=0ms": 2,
        "0~10ms": 2,
        "10~50ms": 2,
        "50~100ms": 1,
        "100~200ms": 4,
        "200~500ms": 0,
        "500ms~1s": 1,
        "1~2s": 1,
        "2~3s": 0,
        "3~4s": 0,
        "4~5s": 0,
        "5~10s": 1,
        "10s~": 2,
    }
    assert times.longest_ms == 60_000


def test_a_clock_that_was_set_back_counts_as_no_time() -> None:
    times = AppendTimes()
    times.count(1, -5.0)
    assert counts(times)["<=0ms"] == 1 and times.longest_ms == 0


@pytest.mark.parametrize(
    ("milliseconds", "share", "shown"),
    [
        ([], 0.99, "0.00"),
        ([0] * 100, 0.99, "0.99"),
        ([0] * 100 + [150] * 100, 0.99, "149.80"),
        ([0] * 100 + [150] * 100, 0.5, "1.00"),
        ([0] * 99 + [20_000], 0.99, "1.00"),
        ([500], 0.99, "500.00"),
        ([20_000] * 10, 0.99, "10000.00"),
    ],
)
def test_percentiles_spread_evenly_between_bounds(
    milliseconds: list[int], share: float, shown: str
) -> None:
    times = AppendTimes()
    for each in milliseconds:
        times.count(1, each / 1000 + 1e-9)
    assert times.percentile(share) == shown


def test_the_last_whole_minute_is_shown_once_there_is_one() -> None:
    times = AppendTimes()
    times.count(3, 0.0)
    assert counts(times)["<=0ms"] == 3
    times.begin_minute()
    times.count(5, 0.02)
    assert counts(times)["<=0ms"] == 3 and counts(times)["10~50ms"] == 0
    times.begin_minute()
    assert counts(times)["<=0ms"] == 0 and counts(times)["10~50ms"] == 5
    assert float(times.percentile(0.99)) > 19
