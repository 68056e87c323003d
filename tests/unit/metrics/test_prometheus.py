"""Figures as Prometheus reads them; its own parser is the judge."""

from prometheus_client.parser import text_string_to_metric_families

from rocketmq_tw.metrics.instruments import Histogram, Metric, counter, gauge
from rocketmq_tw.metrics.prometheus import exposition


def _samples(*metrics: Metric) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    page = exposition(metrics).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def test_a_unit_stands_behind_the_name_and_before_total() -> None:
    assert _samples(
        gauge("rocketmq_storage_size", 7, unit="bytes"),
        gauge("rocketmq_flush_behind_bytes", 8, unit="bytes"),
        counter("rocketmq_messages_in_total", 9),
        counter("rocketmq_waited_total", 10, unit="milliseconds"),
    ) == {
        ("rocketmq_storage_size_bytes", ()): 7,
        ("rocketmq_flush_behind_bytes", ()): 8,
        ("rocketmq_messages_in_total", ()): 9,
        ("rocketmq_waited_milliseconds_total", ()): 10,
    }


def test_a_histogram_counts_all_values_up_to_each_bound() -> None:
    histogram: Histogram[str] = Histogram(
        "rocketmq_rpc_latency", (1, 10), lambda key: {"code": str(key)}, unit="milliseconds"
    )
    for value in (0.5, 5, 7, 100):
        histogram.record("send", value)
    samples = _samples(*histogram.metrics())
    name, code = "rocketmq_rpc_latency_milliseconds", ("code", "send")
    assert samples == {
        (f"{name}_bucket", (code, ("le", "1.0"))): 1,
        (f"{name}_bucket", (code, ("le", "10.0"))): 3,
        (f"{name}_bucket", (code, ("le", "+Inf"))): 4,
        (f"{name}_count", (code,)): 4,
        (f"{name}_sum", (code,)): 112.5,
    }


def test_series_of_one_name_stand_together_whatever_their_labels_hold() -> None:
    odd = 'a"b\\c\nd'
    figures = [
        gauge("lag", 1, {"group": odd}),
        gauge("topics", 2),
        gauge("lag", 3, {"group": "b", "retry": "true"}),
    ]
    assert _samples(*figures) == {
        ("lag", (("group", odd),)): 1,
        ("topics", ()): 2,
        ("lag", (("group", "b"), ("retry", "true"))): 3,
    }
    assert exposition(figures).count(b"# TYPE lag gauge") == 1
