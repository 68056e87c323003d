"""Counters, gauges and histograms, with labels.

What is counted anyway becomes a `counter` or a `gauge` when it is asked for, which costs nothing
before; `Counters` and a `Histogram` are told of each value. Names and labels follow RocketMQ
5.3.3's OpenTelemetry metrics where it has them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)

#: Keys of one figure that are told apart; what is counted for further ones is in one series, or
#: not shown. Peers may choose what becomes a key.
MAX_SERIES = 10_000
#: The same of a histogram, a series of which has a value for each bucket.
MAX_HISTOGRAM_SERIES = 1_000

_NO_LABELS: Mapping[str, str] = {}


class MetricType(Enum):
    """What the values of a figure mean."""

    #: Grows only, from 0 at the start of the process.
    COUNTER = "counter"
    #: A value at this moment.
    GAUGE = "gauge"
    #: How values are distributed.
    HISTOGRAM = "histogram"


class Distribution(NamedTuple):
    """How many values lie at or below each of `bounds`, but above the one before it; the last of
    `counts` has those above all bounds. `total` is the sum of the values."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float

    def __str__(self) -> str:
        count = sum(self.counts)
        return f"{count} of {self.total / max(count, 1):.1f} each"


class Metric(NamedTuple):
    """A figure with its labels; a histogram's value is a `Distribution`, others' a number. `unit`
    is of the value: `milliseconds`, `bytes`, or empty for numbers."""

    name: str
    type: MetricType
    value: float | Distribution
    labels: Mapping[str, str] = _NO_LABELS
    unit: str = ""

    @property
    def series(self) -> str:
        """Name and labels, which tell it from others."""
        labels = ",".join(f"{name}={value}" for name, value in self.labels.items())
        return f"{self.name}{{{labels}}}"

    def __str__(self) -> str:
        return f"{self.series} {self.value}"


def counter(
    name: str, value: float, labels: Mapping[str, str] = _NO_LABELS, unit: str = ""
) -> Metric:
    """Returns a figure that only grows."""
    return Metric(name, MetricType.COUNTER, value, labels, unit)


def gauge(
    name: str, value: float, labels: Mapping[str, str] = _NO_LABELS, unit: str = ""
) -> Metric:
    """Returns a figure of the moment."""
    return Metric(name, MetricType.GAUGE, value, labels, unit)


def labelled(metrics: Iterable[Metric], labels: Mapping[str, str]) -> Iterator[Metric]:
    """Yields `metrics` with `labels` beside their own, such as those that name the server."""
    for metric in metrics:
        yield metric._replace(labels={**labels, **metric.labels})


class _Series:
    __slots__ = ("counts", "total")

    def __init__(self, length: int) -> None:
        self.counts = [0] * length
        self.total = 0.0


def truth(value: bool) -> str:
    """Returns the label of what is so or is not, as stock writes it: `true` or `false`."""
    return str(value).lower()


def of_topic(topic: str | None) -> Mapping[str, str]:
    """Returns the labels of a figure of one topic; those of None, of all further topics, are
    empty."""
    return _NO_LABELS if topic is None else {"topic": topic}


class Counters(Generic[K]):
    """Counts, for each key, from 0; `labels_of` tells a key's labels, None being what keys beyond
    `most`, or `MAX_SERIES`, share."""

    def __init__(
        self, name: str, labels_of: Callable[[K | None], Mapping[str, str]], most: int | None = None
    ) -> None:
        self._name = name
        self._labels_of = labels_of
        self._most = MAX_SERIES if most is None else most
        self._counts: dict[K, int] = {}
        self._others = 0

    def add(self, key: K, number: int = 1) -> None:
        """Counts `number` more."""
        counts = self._counts
        if key in counts or len(counts) < self._most:
            counts[key] = counts.get(key, 0) + number
        else:
            self._others += number

    def forget(self, keys: Iterable[K]) -> None:
        """Ends the series of these keys; one that comes again counts from 0."""
        for key in keys:
            self._counts.pop(key, None)

    def forget_where(self, is_gone: Callable[[K], bool]) -> None:
        """Ends the series of the keys of which that is so; one that comes again counts from 0."""
        for key in [key for key in self._counts if is_gone(key)]:
            del self._counts[key]

    def metrics(self) -> Iterator[Metric]:
        """Yields what was counted, with labels; more may be counted in between."""
        for key, value in list(self._counts.items()):
            yield counter(self._name, value, self._labels_of(key))
        if self._others:
            yield counter(self._name, self._others, self._labels_of(None))


class Histogram(Generic[K]):
    """Counts values in buckets, for each key; `labels_of` tells a key's labels, None being what
    keys beyond `MAX_HISTOGRAM_SERIES` share. `counted_as` tells as which key a new one counts: keys
    that peers invent count as one, so that they use up no series."""

    def __init__(
        self,
        name: str,
        bounds: Sequence[float],
        labels_of: Callable[[K | None], Mapping[str, str]],
        counted_as: Callable[[K], K] = lambda key: key,
        unit: str = "",
    ) -> None:
        self._name = name
        self._unit = unit
        # Values are mostly floats, which compare faster with floats.
        self._bounds = tuple(map(float, bounds))
        self._labels_of = labels_of
        self._counted_as = counted_as
        self._series: dict[K | None, _Series] = {}

    def record(self, key: K, value: float) -> None:
        """Counts one value."""
        try:
            series = self._series[key]
        except KeyError:
            series = self._add(key)
        series.counts[bisect_left(self._bounds, value)] += 1
        series.total += value

    def forget(self, keys: Iterable[K]) -> None:
        """Ends the series of these keys; one that comes again counts from 0."""
        for key in keys:
            self._series.pop(key, None)

    def distributions(self) -> dict[K | None, Distribution]:
        """Returns what was recorded, by key."""
        return {
            key: Distribution(self._bounds, tuple(series.counts), series.total)
            for key, series in self._series.items()
        }

    def metrics(self) -> Iterator[Metric]:
        """Yields what was recorded, with labels."""
        for key, value in self.distributions().items():
            yield Metric(self._name, MetricType.HISTOGRAM, value, self._labels_of(key), self._unit)

    def _add(self, key: K) -> _Series:
        counted = self._counted_as(key)
        is_known = counted in self._series or len(self._series) < MAX_HISTOGRAM_SERIES
        known = counted if is_known else None
        return self._series.setdefault(known, _Series(len(self._bounds) + 1))
