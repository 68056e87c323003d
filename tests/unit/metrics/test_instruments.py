"""Figures with a type and labels."""

import pytest

from rocketmq_tw.metrics import instruments
from rocketmq_tw.metrics.instruments import (
    Counters,
    Distribution,
    Histogram,
    Metric,
    MetricType,
    counter,
    gauge,
    labelled,
)


def make_histogram() -> Histogram[str]:
    return Histogram("latency", (1, 10), lambda key: {} if key is None else {"topic": key})


def test_a_value_is_in_the_bucket_whose_bound_it_does_not_exceed() -> None:
    histogram = make_histogram()
    for value in (0, 1, 1.5, 10, 11, 1000):
        histogram.record("T", value)
    histogram.record("another", 3)
    assert list(histogram.metrics()) == [
        Metric(
            "latency",
            MetricType.HISTOGRAM,
            Distribution((1, 10), (2, 2, 2), 1023.5),
            {"topic": "T"},
        ),
        Metric(
            "latency",
            MetricType.HISTOGRAM,
            Distribution((1, 10), (0, 1, 0), 3),
            {"topic": "another"},
        ),
    ]


def test_a_figure_that_was_given_out_stays_as_it_was() -> None:
    histogram = make_histogram()
    histogram.record("T", 1)
    (before,) = histogram.metrics()
    histogram.record("T", 1)
    assert before.value == Distribution((1, 10), (1, 0, 0), 1)


def test_keys_of_a_histogram_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instruments, "MAX_HISTOGRAM_SERIES", 2)
    histogram = make_histogram()
    for key in ("a", "b", "c", "d", "c", "a"):
        histogram.record(key, 1)
    counts = {key: sum(found.counts) for key, found in histogram.distributions().items()}
    assert counts == {"a": 2, "b": 1, None: 3}


def test_keys_that_count_as_one_use_up_no_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instruments, "MAX_HISTOGRAM_SERIES", 2)
    histogram: Histogram[str] = Histogram(
        "latency", (1,), lambda key: {}, lambda key: key if key in "ab" else "other"
    )
    for key in ("x", "y", "z", "a", "b", "w"):
        histogram.record(key, 1)
    counts = {key: sum(found.counts) for key, found in histogram.distributions().items()}
    assert counts == {"other": 4, "a": 1, None: 1}


def test_labels_of_a_server_stand_beside_those_of_a_figure() -> None:
    figures = [counter("sent", 3), gauge("waiting", 1, {"topic": "T"})]
    assert list(labelled(figures, {"node_id": "a"})) == [
        Metric("sent", MetricType.COUNTER, 3, {"node_id": "a"}),
        Metric("waiting", MetricType.GAUGE, 1, {"node_id": "a", "topic": "T"}),
    ]


def test_figures_as_text() -> None:
    histogram = make_histogram()
    histogram.record("T", 1)
    histogram.record("T", 4)
    assert [str(figure) for figure in (counter("sent", 3), *histogram.metrics())] == [
        "sent{} 3",
        "latency{topic=T} 2 of 2.5 each",
    ]


def test_what_is_counted_by_key_is_told_with_labels_and_bounded() -> None:
    counters: Counters[str] = Counters("n", lambda key: {} if key is None else {"k": key}, most=2)
    for key in ("a", "b", "c", "a", "d"):
        counters.add(key)
    counters.add("b", 5)
    assert list(counters.metrics()) == [
        counter("n", 2, {"k": "a"}),
        counter("n", 6, {"k": "b"}),
        counter("n", 2),
    ]


def test_a_key_that_was_forgotten_counts_anew() -> None:
    counters: Counters[str] = Counters("n", lambda key: {} if key is None else {"k": key}, most=1)
    for key in ("a", "b"):
        counters.add(key)
    counters.forget_where(lambda key: True)
    assert list(counters.metrics()) == [counter("n", 1)]
    counters.add("b")
    assert counter("n", 1) in counters.metrics()
