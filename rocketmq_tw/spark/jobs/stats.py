"""`rmqspark stats`: how many messages, how large and how late, by topic, tag and window."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import rich_click as click
from rich.table import Table as Shown

from rocketmq_tw.spark.jobs.options import cluster_options, page_option, spark_options
from rocketmq_tw.spark.jobs.page import Chart, Page, Table, number_text
from rocketmq_tw.spark.jobs.running import Job, parse_pairs, show_table, source_settings
from rocketmq_tw.spark.options import Damaged

_READ = "topic string, body binary, bornTimestamp timestamp, storeTimestamp timestamp, tags string"
_HEADER = (
    "topic", "tag", "window", "messages", "bytes", "mean bytes", "p50 ms", "p99 ms", "most ms",
)  # fmt: skip
_TEXTS = 3


class Summed(NamedTuple):
    """The messages of a topic with a tag in a window; `start` and `end` are seconds since 1970,
    latencies milliseconds."""

    topic: str
    tag: str
    window: str
    messages: int
    bytes: int
    mean_bytes: float
    p50: int
    p99: int
    most: int
    start: int
    end: int

    @property
    def name(self) -> str:
        return f"{self.topic} {self.tag}".strip()

    def cells(self) -> Sequence[Any]:
        """Returns what stands below `_HEADER`."""
        return self[: len(_HEADER)]


@click.command()
@click.argument("topic")
@click.option("--window", default="1 minute", show_default=True, help="As in `10 seconds`.")
@page_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON in place of a table.")
@cluster_options
@spark_options
def stats(
    topic: str,
    window: str,
    html: Path | None,
    as_json: bool,
    name_servers: str | None,
    pairs: tuple[str, ...],
    master: str | None,
    confs: tuple[str, ...],
) -> None:
    """Count the messages of TOPIC (several with commas) by tag and window of their store time.

    The latency is the broker's store time less the producer's time of birth. Times are UTC,
    unless --conf spark.sql.session.timeZone says otherwise.
    """
    job = Job("stats", master, parse_pairs(confs, "--conf"), source_settings(name_servers, pairs))
    job.check_source(topic)
    with job.session() as spark:
        zone = spark.conf.get("spark.sql.session.timeZone")
        # What a damaged message is and when it came is known all the same.
        frame = job.reader(spark.read, topic, damagedMessages=Damaged.KEEP).schema(_READ).load()
        rows = [Summed(*row) for row in _summed(frame, window).collect()]
    if html is not None:
        html.write_text(_page(topic, rows, window, zone).html(), encoding="utf-8")
        click.echo(f"wrote {html}", err=True)
    if as_json:
        click.echo(json.dumps([dict(zip(_HEADER, row.cells(), strict=True)) for row in rows]))
        return
    shown = Shown(*_HEADER[:_TEXTS], title=f"messages of {topic}, windows of {window}, {zone}")
    for name in _HEADER[_TEXTS:]:
        shown.add_column(name, justify="right")
    for row in rows:
        shown.add_row(*map(number_text, row.cells()))
    show_table(shown)


def _summed(frame: Any, window: str) -> Any:
    from pyspark.sql import functions as f

    latency = f.unix_millis("storeTimestamp") - f.unix_millis("bornTimestamp")
    size = f.octet_length("body")
    span = f.window("storeTimestamp", window)
    return (
        frame.groupBy("topic", f.coalesce("tags", f.lit("")).alias("tag"), span.alias("window"))
        .agg(
            f.count("*").alias("messages"),
            f.sum(size).alias("bytes"),
            f.avg(size).alias("mean"),
            f.percentile_approx(latency, 0.5).alias("p50"),
            f.percentile_approx(latency, 0.99).alias("p99"),
            f.max(latency).alias("most"),
        )
        .orderBy("window.start", "topic", "tag")
        .select(
            "topic",
            "tag",
            f.date_format("window.start", "yyyy-MM-dd HH:mm:ss"),
            *("messages", "bytes", "mean", "p50", "p99", "most"),
            f.unix_seconds("window.start"),
            f.unix_seconds("window.end"),
        )
    )


def _page(topic: str, rows: Sequence[Summed], window: str, zone: str) -> Page:
    total = f"{sum(row.messages for row in rows):,} messages, {sum(row.bytes for row in rows):,}"
    page = Page(f"Messages of {topic}", f"{total} bytes. Windows of {window}, times in {zone}.")
    times = _times(rows)
    sizes: dict[str, int] = {}
    for row in rows:
        sizes[row.name] = sizes.get(row.name, 0) + row.messages
    names = sorted(sizes, key=lambda name: (-sizes[name], name))
    labels = (rows[0].window, rows[-1].window) if rows else ("", "")
    for title, unit, column, absent in (
        ("Messages", "in each window", "messages", 0),
        ("Bytes", "in each window", "bytes", 0),
        ("Latency", "ms from birth to store that 99 of 100 messages keep within", "p99", None),
    ):
        values = {(row.name, row.start): getattr(row, column) for row in rows}
        lines = {name: [values.get((name, time), absent) for time in times] for name in names}
        page.parts.append(Chart(title, unit, times, labels, lines))
    page.parts.append(Table("All windows", _HEADER, [row.cells() for row in rows]))
    return page


def _times(rows: Sequence[Summed]) -> list[int]:
    """Returns the windows, and an empty one on each side of a gap, so that charts fall to zero
    there."""
    windows = sorted({(row.start, row.end - row.start) for row in rows})
    if not windows:
        return []
    beside = {at for start, length in windows for at in (start - length, start, start + length)}
    return [at for at in sorted(beside) if windows[0][0] <= at <= windows[-1][0]]
