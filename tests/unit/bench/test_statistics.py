"""Medians, ratios of pairs, and whether a goal is met."""

import pytest

from tools.bench.statistics import OURS, STOCK, Run, figures, summarise


def runs(case: str, key: str, ours: list[float], stock: list[float]) -> list[Run]:
    return [Run(case, OURS, pair, {key: value}) for pair, value in enumerate(ours)] + [
        Run(case, STOCK, pair, {key: value}) for pair, value in enumerate(stock)
    ]


def test_the_ratio_is_the_median_of_the_pairs_with_their_spread() -> None:
    (row,) = summarise(runs("send", "throughput", [10, 30, 20], [10, 10, 40]))
    assert row.medians == {OURS: 20, STOCK: 10}
    assert (row.lowest, row.ratio, row.highest) == (0.5, 1.0, 3.0)


def test_a_pair_that_lacks_one_side_gives_no_ratio() -> None:
    (row,) = summarise(runs("send", "throughput", [10, 30], [20]))
    assert (row.ratio, row.lowest, row.highest) == (0.5, 0.5, 0.5)
    (row,) = summarise(runs("send", "throughput", [10], []))
    assert row.ratio is None and row.met is None


@pytest.mark.parametrize(
    ("key", "ours", "met"),
    [
        ("throughput", 100, True),
        ("throughput", 99, False),
        ("cpu_us", 50, True),
        ("cpu_us", 51, False),
    ],
)
def test_more_throughput_and_less_cpu_meet_their_goals(key: str, ours: float, met: bool) -> None:
    (row,) = summarise(runs("send", key, [ours], [100]))
    assert row.met is met


def test_cases_keep_their_order_and_metrics_theirs() -> None:
    both = {"p99_us": 1.0, "throughput": 2.0}
    rows = summarise([Run("b", OURS, 0, both), Run("a", OURS, 0, both)])
    assert [(row.case, row.metric.key) for row in rows] == [
        ("b", "throughput"),
        ("b", "p99_us"),
        ("a", "throughput"),
        ("a", "p99_us"),
    ]


def test_figures_of_a_run() -> None:
    found = figures({"count": 1000, "failed": 3, "seconds": 2.0, "p50_us": 7, "max_us": 9}, 0.05)
    assert found == {"p50_us": 7.0, "failed": 3.0, "throughput": 500.0, "cpu_us": 50.0}


def test_nothing_done_has_no_rate() -> None:
    assert figures({"count": 0, "failed": 5, "seconds": 2.0}, 0.05) == {"failed": 5.0}
