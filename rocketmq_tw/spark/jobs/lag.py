"""`rmqspark lag`: how far groups are behind, once or over time. Needs no Spark."""

import json
import time
from pathlib import Path

import rich_click as click
from rich.table import Table as Shown

from rocketmq_tw.spark.cluster import Cluster
from rocketmq_tw.spark.jobs.options import cluster_options, page_option
from rocketmq_tw.spark.jobs.page import Chart, Page, Table
from rocketmq_tw.spark.jobs.running import show_table, source_settings, told_plainly
from rocketmq_tw.spark.options import source_options

#: Group, topic, broker, queue: messages behind.
Sample = dict[tuple[str, str, str, int], int]


@click.command()
@click.argument("topic")
@click.option("--group", "-g", "groups", multiple=True, required=True, help="May be repeated.")
@click.option("--samples", type=click.IntRange(1), default=1, show_default=True)
@click.option(
    "--interval",
    type=click.FloatRange(0),
    default=5.0,
    show_default=True,
    help="Seconds between samples.",
)
@page_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON in place of a table.")
@cluster_options
def lag(
    topic: str,
    groups: tuple[str, ...],
    samples: int,
    interval: float,
    html: Path | None,
    as_json: bool,
    name_servers: str | None,
    pairs: tuple[str, ...],
) -> None:
    """Show how many messages of TOPIC (several with commas) each group has before it.

    A group that has committed nothing for a queue has all of it before it.
    """
    options = source_settings(name_servers, pairs) | {"topic": topic}
    taken: list[tuple[str, Sample]] = []
    with told_plainly():
        for number in range(samples):
            if number:
                time.sleep(interval)
            sample: Sample = {}
            for group in groups:
                sample |= _sample(options, group)
            taken.append((time.strftime("%H:%M:%S"), sample))
    if html is not None:
        html.write_text(_page(topic, taken).html(), encoding="utf-8")
    if as_json:
        click.echo(json.dumps([_as_json(at, sample) for at, sample in taken]))
        return
    shown = Shown("group", "topic", "broker", "queue", *(at for at, _ in taken))
    for key in sorted(taken[-1][1]):
        shown.add_row(*map(str, key), *(str(sample.get(key, "")) for _, sample in taken))
    show_table(shown)


def _sample(options: dict[str, str], group: str) -> Sample:
    with Cluster(source_options(options | {"group": group})) as cluster:
        found = {}
        for queue in cluster.queues():
            bounds = cluster.bounds(queue)
            done = cluster.committed(queue)
            start = bounds.earliest if done is None else max(done, bounds.earliest)
            key = (group, queue.topic, queue.broker_name, queue.queue_id)
            found[key] = max(0, bounds.latest - start)
        return found


def _as_json(at: str, sample: Sample) -> dict[str, object]:
    names = ("group", "topic", "broker", "queue")
    rows = [dict(zip(names, key, strict=True)) | {"lag": sample[key]} for key in sorted(sample)]
    return {"time": at, "queues": rows}


def _page(topic: str, taken: list[tuple[str, Sample]]) -> Page:
    lines: dict[str, list[float]] = {}
    for index, (_, sample) in enumerate(taken):
        for (group, name, _broker, _queue), behind in sample.items():
            line = lines.setdefault(f"{group} of {name}", [0.0] * len(taken))
            line[index] += behind
    rows = [(*key, behind) for key, behind in sorted(taken[-1][1].items())]
    page = Page(f"Lag of {topic}")
    page.parts.append(Chart("Messages behind", "messages", [at for at, _ in taken], lines))
    page.parts.append(Table("Now", ("group", "topic", "broker", "queue", "lag"), rows))
    return page
