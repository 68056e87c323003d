"""The tables of the page about whole runs."""

from tools.bench.statistics import OURS, STOCK, Run
from tools.bench.warming import Warming
from tools.bench.whole_report import tables

RUNS = [
    Run("oneway", OURS, 0, {"throughput": 12_000, "cpu_us": 20}),
    Run("oneway", STOCK, 0, {"throughput": 10_000, "cpu_us": 10}),
    Run("oneway", OURS, 1, {"throughput": 10_000, "cpu_us": 20}),
    Run("oneway", STOCK, 1, {"throughput": 10_000, "cpu_us": 10}),
    Run("recovery", OURS, 0, {"recovery_seconds": 1}),
    Run("recovery", STOCK, 0, {"recovery_seconds": 4}),
]
FRESH = {"throughput": 5_000, "cpu_us": 100, "p99_us": 10}


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")[1:-1]]


def test_each_case_has_a_row_in_one_of_the_tables() -> None:
    cases, others = tables(RUNS, []).split("\n\n")
    head, _, row = cases.splitlines()
    named = dict(zip(cells_of(head), cells_of(row), strict=True))
    assert named["case"] == "oneway, 16 threads"
    assert named["throughput"] == "1.10 (1.00..1.20)"
    assert named["CPU"] == "**2.00**", "ours is worse"
    assert named["p99"] == "-"
    figure, ratio = cells_of(others.splitlines()[2])[1], cells_of(others.splitlines()[2])[-1]
    assert (figure, ratio) == ("start after kill -9 until the first send works (s)", "0.25")


def test_the_last_table_has_the_cold_windows_of_brokers_that_had_just_started() -> None:
    warmings = [
        Warming("oneway", OURS, [FRESH | {"throughput": 10_000}, {}], 60),
        Warming("oneway", STOCK, [FRESH, {}], 60),
        Warming("batch", OURS, [FRESH], 12),
        Warming("batch", STOCK, [FRESH], 12),
    ]
    cold = tables(RUNS, warmings).split("\n\n")[-1].splitlines()
    assert [cells_of(line) for line in cold[2:]] == [
        ["oneway, 16 threads", "2.00", "100", "100", "1.00", "1.00"]
    ]
