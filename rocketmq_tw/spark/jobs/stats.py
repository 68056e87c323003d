"""`rmqspark stats`: how many messages, how large and how late, by topic, tag and window."""

import json
from pathlib import Path
from typing import Any

import rich_click as click
from rich.table import Table as Shown

from rocketmq_tw.spark.jobs.options import cluster_options, page_option, spark_options
from rocketmq_tw.spark.jobs.page import Chart, Page, Table
from rocketmq_tw.spark.jobs.running import Job, parse_pairs, show_table, source_settings

_READ = "topic string, body binary, bornTimestamp timestamp, storeTimestamp timestamp, tags string"
_HEADER = (
    "topic", "tag", "window", "messages", "bytes", "mean bytes", "p50 ms", "p99 ms", "most ms",
)  # fmt: skip


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

    The latency is the broker's store time less the producer's time of birth.
    """
    job = Job("stats", master, parse_pairs(confs, "--conf"), source_settings(name_servers, pairs))
    job.check_source(topic)
    with job.session() as spark:
        frame = job.reader(spark.read, topic).schema(_READ).load()
        rows = [list(row) for row in _summed(frame, window).collect()]
    if html is not None:
        html.write_text(_page(topic, rows).html(), encoding="utf-8")
    if as_json:
        click.echo(json.dumps([dict(zip(_HEADER, row, strict=True)) for row in rows]))
        return
    shown = Shown(*_HEADER, title=f"messages of {topic}")
    for row in rows:
        shown.add_row(*(f"{cell:.1f}" if isinstance(cell, float) else str(cell) for cell in row))
    show_table(shown)


def _summed(frame: Any, window: str) -> Any:
    from pyspark.sql import functions as f

    latency = f.unix_millis("storeTimestamp") - f.unix_millis("bornTimestamp")
    start = f.date_format(f.window("storeTimestamp", window).start, "yyyy-MM-dd HH:mm:ss")
    size = f.octet_length("body")
    return (
        frame.groupBy("topic", f.coalesce("tags", f.lit("")).alias("tag"), start.alias("window"))
        .agg(
            f.count("*"),
            f.sum(size),
            f.avg(size),
            f.percentile_approx(latency, 0.5),
            f.percentile_approx(latency, 0.99),
            f.max(latency),
        )
        .orderBy("window", "topic", "tag")
    )


def _page(topic: str, rows: list[list[Any]]) -> Page:
    windows = sorted({row[2] for row in rows})
    page = Page(f"Messages of {topic}")
    for title, unit, column in (
        ("Messages by window", "messages", 3),
        ("Bytes by window", "bytes", 4),
        ("Latency, 99 of 100", "ms", 7),
    ):
        lines: dict[str, list[float]] = {}
        for row in rows:
            name = f"{row[0]} {row[1]}".strip()
            line = lines.setdefault(name, [0.0] * len(windows))
            line[windows.index(row[2])] = float(row[column])
        page.parts.append(Chart(title, unit, windows, lines))
    page.parts.append(Table("All windows", _HEADER, rows))
    return page
