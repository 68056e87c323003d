"""The page of charts is one file and shows names as they are."""

from xml.etree import ElementTree

import pytest

from rocketmq_tw.spark.jobs.page import Chart, Page, Table
from rocketmq_tw.spark.jobs.stats import Summed, _page


def test_a_page_is_well_formed_and_loads_nothing() -> None:
    page = Page("a < b & c", "2 > 1")
    lines = {"<tag>": [1.0, 4.0], "none": [0.0, 0.0]}
    page.parts.append(Chart("n", "ms", [10, 20], ("x", "<y>"), lines))
    page.parts.append(Chart("empty", "ms", [], ("", ""), {}))
    page.parts.append(Table("t", ("name", "count"), [("<script>", 1234), ("b", 0.25)]))
    text = well_formed(page)
    assert "<script" not in text
    assert "http" not in text
    assert "1,234" in text
    assert 'points="56.0,150.0 748.0,12.0"' in text


def test_what_is_missing_interrupts_a_line() -> None:
    page = Page("p")
    lines = {"a": [1.0, None, 2.0, 3.0]}
    page.parts.append(Chart("n", "ms", [0, 1, 2, 3], ("", ""), lines))
    assert well_formed(page).count("<polyline") == 2


def test_of_many_lines_the_first_are_drawn() -> None:
    page = Page("p")
    lines = {f"line {number}": [float(number)] for number in range(20)}
    page.parts.append(Chart("n", "ms", [0], ("", ""), lines))
    text = well_formed(page)
    assert text.count("<polyline") == 8
    assert "line 7" in text
    assert "line 8" not in text
    assert "and 12 more, not drawn" in text


@pytest.mark.parametrize(
    ("highest", "axis"),
    [(0, ["0", "1"]), (7, ["0", "2", "4", "6", "8"]), (34_000, ["0", "10k", "20k", "30k", "40k"])],
)
def test_an_axis_has_round_numbers(highest: float, axis: list[str]) -> None:
    page = Page("p", parts=[Chart("n", "ms", [0], ("", ""), {"a": [highest]})])
    body = ElementTree.fromstring(xml(page)).iter("text")
    assert [text.text for text in body if text.get("text-anchor") == "end"][1:] == axis


def test_a_gap_between_windows_is_empty_in_counts_and_no_latency() -> None:
    def row(start: int) -> Summed:
        return Summed("t", "", f"at {start}", 5, 50, 10.0, 1, 2, 3, start, start + 60)

    page = _page("t", [row(0), row(60), row(6000)], "1 minute", "UTC")
    counts, _, latency = (part for part in page.parts if isinstance(part, Chart))
    assert list(counts.times) == [0, 60, 120, 5940, 6000]
    assert counts.lines["t"] == [5, 5, 0, 0, 5]
    assert latency.lines["t"] == [2, 2, None, None, 2]
    assert "15 messages, 150 bytes" in well_formed(page)


def well_formed(page: Page) -> str:
    ElementTree.fromstring(xml(page))
    return page.html()


def xml(page: Page) -> str:
    return page.html().removeprefix("<!doctype html>").replace('<meta charset="utf-8">', "")
