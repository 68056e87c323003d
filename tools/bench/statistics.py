"""What several turns of runs say: medians, and the ratio of each turn with its spread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

OURS, STOCK, CEILING = "ours", "stock", "ceiling"


@dataclass(frozen=True)
class Metric:
    """A figure of a run. `goal` bounds ours / stock: from below where more is better."""

    key: str
    title: str
    unit: str
    more_is_better: bool = False
    goal: float | None = None


METRICS = (
    Metric("throughput", "throughput", "/s", more_is_better=True, goal=1.0),
    Metric("p50_us", "p50", "µs"),
    Metric("p99_us", "p99", "µs", goal=1.0),
    Metric("p999_us", "p99.9", "µs"),
    Metric("cpu_us", "CPU a message", "µs", goal=0.5),
    Metric("resident_mb", "resident memory", "MiB", goal=0.1),
    Metric("idle_cpu", "idle CPU", "%", goal=0.2),
    Metric("start_seconds", "start until the first send works", "s", goal=0.2),
    Metric("recovery_seconds", "start after kill -9 until the first send works", "s", goal=1.0),
)
METRIC_BY_KEY = {metric.key: metric for metric in METRICS}


@dataclass(frozen=True)
class Run:
    """One subject's figures for one case in one turn."""

    case: str
    subject: str
    turn: int
    figures: dict[str, float]


@dataclass(frozen=True)
class Row:
    """A case's metric: medians by subject, and the ratio ours / stock over the turns."""

    case: str
    metric: Metric
    medians: dict[str, float] = field(default_factory=dict)
    ratio: float | None = None
    lowest: float | None = None
    highest: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None where there is none or nothing to compare with."""
        if self.metric.goal is None or self.ratio is None:
            return None
        if self.metric.more_is_better:
            return self.ratio >= self.metric.goal
        return self.ratio <= self.metric.goal


def figures(result: dict[str, float], cpu_seconds: float) -> dict[str, float]:
    """A run's metrics from the generator's counts; `cpu_seconds` is the server's."""
    count, seconds = result["count"], result["seconds"]
    found = {key: float(result[key]) for key in METRIC_BY_KEY if key in result}
    found["failed"] = float(result.get("failed", 0))
    if count > 0 and seconds > 0:
        found["throughput"] = count / seconds
        found["cpu_us"] = cpu_seconds / count * 1e6
    return found


def summarise(runs: Sequence[Run]) -> list[Row]:
    """A row for each metric of each case, cases in the order of their first run."""
    rows = []
    for case in dict.fromkeys(run.case for run in runs):
        of_case = [run for run in runs if run.case == case]
        for metric in METRICS:
            row = _row(case, metric, of_case)
            if row.medians:
                rows.append(row)
    return rows


def _row(case: str, metric: Metric, runs: Iterable[Run]) -> Row:
    values: dict[str, dict[int, float]] = {}
    for run in runs:
        if metric.key in run.figures:
            values.setdefault(run.subject, {})[run.turn] = run.figures[metric.key]
    medians = {subject: median(by_turn.values()) for subject, by_turn in values.items()}
    ours, stock = values.get(OURS, {}), values.get(STOCK, {})
    ratios = [ours[turn] / stock[turn] for turn in ours if stock.get(turn)]
    if not ratios:
        return Row(case, metric, medians)
    return Row(case, metric, medians, median(ratios), min(ratios), max(ratios))
