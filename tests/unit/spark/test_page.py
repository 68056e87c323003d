"""The page of charts is one file and shows names as they are."""

from xml.etree import ElementTree

from rocketmq_tw.spark.jobs.page import Chart, Page, Table


def test_a_page_is_well_formed_and_loads_nothing() -> None:
    page = Page("a < b & c")
    page.parts.append(Chart("n", "ms", ["x", "<y>"], {"<tag>": [1.0, 3.0], "none": [0.0, 0.0]}))
    page.parts.append(Chart("empty", "ms", [], {}))
    page.parts.append(Table("t", ("name", "count"), [("<script>", 1234), ("b", 0.25)]))
    text = page.html()
    ElementTree.fromstring(
        text.removeprefix("<!doctype html>").replace('<meta charset="utf-8">', "")
    )
    assert "<script" not in text
    assert "http" not in text
    assert "1,234" in text
    assert 'points="64.0,134.0 750.0,10.0"' in text
