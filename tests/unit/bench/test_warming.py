"""When a broker counts as warm, and how the report says so."""

import pytest

from tools.bench.report import warming_table
from tools.bench.statistics import STOCK
from tools.bench.warming import Warming, is_steady


@pytest.mark.parametrize(
    ("cpu_us", "steady"),
    [
        ([], False),
        ([50.0, 50.0], False),
        ([50.0, 50.0, 50.0], True),
        ([110.0, 72.0, 57.0], False),
        ([110.0, 50.0, 51.0, 51.4], True),
        ([110.0, 50.0, 51.0, 51.6], False),
        ([50.0, 50.0, 50.0, 48.0], False),
    ],
)
def test_three_windows_within_three_percent_are_steady(cpu_us: list[float], steady: bool) -> None:
    assert is_steady(cpu_us) is steady


def test_a_window_without_messages_does_not_count() -> None:
    warming = Warming("send", STOCK)
    for _ in range(3):
        warming.add({"failed": 5.0}, 10)
    assert warming.seconds == 30 and not warming.is_steady
    for _ in range(3):
        warming.add({"cpu_us": 50.0}, 10)
    assert warming.is_steady


def test_the_report_shows_the_cold_window_and_every_later_one() -> None:
    warming = Warming("send", STOCK)
    warming.add({"cpu_us": 110.0, "throughput": 9_000.0, "p99_us": 4_000.0}, 10)
    warming.add({"cpu_us": 57.0, "throughput": 15_000.0, "p99_us": 3_000.0}, 10)
    cells = [cell.strip() for cell in warming_table([warming]).splitlines()[2].split("|")[1:-1]]
    assert cells == ["send", "stock", "9,000", "110", "4,000", "20", "110 57", "no"]
