"""Figures in Prometheus' text format.

Names are as stock 5.3.3's exporter writes them: a unit stands behind the name, and before `_total`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate

from prometheus_client import Metric as Family
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from rocketmq_tw.metrics.instruments import Distribution, Metric, MetricType

METRICS_CONTENT_TYPE = CONTENT_TYPE_LATEST
_TOTAL = "_total"


def exposition(metrics: Iterable[Metric]) -> bytes:
    """Returns `metrics` as one page of Prometheus' text format; series of one name stand
    together."""
    families: dict[str, Family] = {}
    for metric in metrics:
        name = metric.name.removesuffix(_TOTAL)
        if metric.unit and not name.endswith(metric.unit):
            name = f"{name}_{metric.unit}"
        family = families.get(name)
        if family is None:
            family = families[name] = Family(name, "", metric.type.value)
        _add(family, metric)
    return generate_latest(_Page(families.values()))


class _Page(Collector):
    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        return self._families


def _add(family: Family, metric: Metric) -> None:
    labels, value = dict(metric.labels), metric.value
    if isinstance(value, Distribution):
        for bound, count in _cumulative(value):
            family.add_sample(f"{family.name}_bucket", {**labels, "le": bound}, count)
        family.add_sample(f"{family.name}_count", labels, sum(value.counts))
        family.add_sample(f"{family.name}_sum", labels, value.total)
    else:
        suffix = _TOTAL if metric.type is MetricType.COUNTER else ""
        family.add_sample(family.name + suffix, labels, value)


def _cumulative(value: Distribution) -> Iterator[tuple[str, int]]:
    bounds = [floatToGoString(bound) for bound in value.bounds]
    return zip([*bounds, "+Inf"], accumulate(value.counts), strict=True)
