"""The table and the page."""

from html.parser import HTMLParser

import pytest

from tools.bench.report import number, page, text_table
from tools.bench.statistics import CEILING, OURS, STOCK, Run, summarise

RUNS = [
    Run("send <16>", OURS, 0, {"throughput": 12_345.6, "p99_us": 900}),
    Run("send <16>", STOCK, 0, {"throughput": 10_000, "p99_us": 600}),
    Run("send <16>", CEILING, 0, {"throughput": 20_000}),
]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (12_345.6, "12,346"), (999.8, "1,000"), (1.2345, "1.23"), (0.04567, "0.0457")],
)
def test_numbers_are_short(value: float | None, text: str) -> None:
    assert number(value) == text


def test_the_table_shows_both_sides_the_ceiling_and_the_verdict() -> None:
    head, rule, throughput, p99 = text_table(summarise(RUNS)).splitlines()
    assert len({len(head), len(rule), len(throughput), len(p99)}) == 1
    assert [cell.strip() for cell in throughput.split("|")[1:-1]] == [
        "send <16>",
        "throughput (/s)",
        "12,346",
        "10,000",
        "20,000",
        "1.23",
        "1.23..1.23",
        "≥ 1 met",
    ]
    assert p99.rstrip("| ").endswith("≤ 1 missed")


class _Addresses(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.found += [name for name, _ in attrs if name in ("src", "href")]


def test_the_page_stands_alone_and_escapes_what_it_shows() -> None:
    text = page(summarise(RUNS), {"machine": "a & b"})
    parser = _Addresses()
    parser.feed(text)
    assert parser.found == []
    assert parser.tags.count("svg") == 2
    assert "send &lt;16&gt;" in text and "send <16>" not in text
    assert "a &amp; b" in text
