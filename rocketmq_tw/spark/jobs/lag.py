"""`rmqspark lag`: how far groups are behind, once or over time. Needs no Spark."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from typing import NamedTuple

import rich_click as click
from rich.table import Table as Shown

from rocketmq_tw.client.errors import ClientError
from rocketmq_tw.spark.cluster import SourceCluster
from rocketmq_tw.spark.errors import SparkSourceError
from rocketmq_tw.spark.jobs.options import cluster_options, page_option
from rocketmq_tw.spark.jobs.page import Chart, Page, Table
from rocketmq_tw.spark.jobs.running import as_command_errors, show_table, source_settings
from rocketmq_tw.spark.options import source_options
from rocketmq_tw.wire.printable import printable

_COLUMNS = ("group", "topic", "broker", "queue", "committed", "newest", "lag")


class GroupQueue(NamedTuple):
    """A queue as a group sees it."""

    group: str
    topic: str
    broker: str
    queue: int


class Standing(NamedTuple):
    """Where the group and the queue's end are; `committed` is None where it committed nothing."""

    committed: int | None
    newest: int
    behind: int


class Sample(NamedTuple):
    """All standings at a time, which is in seconds since 1970."""

    time: float
    standings: dict[GroupQueue, Standing]

    @property
    def at(self) -> str:
        return _text(self.time)

    def totals(self) -> dict[tuple[str, str], int]:
        """Returns messages behind by group and topic."""
        totals: dict[tuple[str, str], int] = {}
        for place, standing in sorted(self.standings.items()):
            totals[place[:2]] = totals.get(place[:2], 0) + standing.behind
        return totals

    def rows(self) -> list[tuple[str | int, ...]]:
        return [
            (*place, "never" if standing.committed is None else standing.committed, *standing[1:])
            for place, standing in sorted(self.standings.items())
        ]


@click.command("lag")
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
def lag_command(
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

    A group that has committed nothing for a queue has all of it before it. Of several samples
    each is shown when it is taken; Ctrl-C ends them, and the rest is done with those there are.
    """
    options = source_settings(name_servers, pairs) | {"topic": topic}
    taken: list[Sample] = []
    with _until_interrupted():
        for sample in _samples(options, groups, samples, interval):
            taken.append(sample)
            if samples > 1 and not as_json:
                told = (f"{' of '.join(of)}: {behind:,}" for of, behind in sample.totals().items())
                click.echo(f"{sample.at}  {', '.join(told)}")
    if not taken:
        raise click.Abort
    if html is not None:
        html.write_text(_page(topic, taken).html(), encoding="utf-8")
        click.echo(f"wrote {html}", err=True)
    if as_json:
        click.echo(json.dumps([_as_json(sample) for sample in taken]))
        return
    show_table(_table(taken[-1]))


def _samples(
    options: dict[str, str], groups: tuple[str, ...], count: int, interval: float
) -> Iterator[Sample]:
    """Yields one sample after the other. The first has to succeed; a later one that does not is
    told and left out, since brokers restart."""
    with as_command_errors():
        yield _sample(options, groups)
    for _ in range(count - 1):
        sleep(interval)
        try:
            yield _sample(options, groups)
        except (SparkSourceError, ClientError) as error:
            click.echo(f"{_text(time.time())}  no sample: {printable(str(error))}", err=True)


@contextmanager
def _until_interrupted() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        click.echo("stopped", err=True)


def _sample(options: dict[str, str], groups: tuple[str, ...]) -> Sample:
    found: dict[GroupQueue, Standing] = {}
    for group in groups:
        with SourceCluster(source_options(options | {"group": group})) as cluster:
            for queue in cluster.queues():
                bounds = cluster.bounds(queue)
                done = cluster.committed(queue)
                start = bounds.earliest if done is None else max(done, bounds.earliest)
                place = GroupQueue(group, queue.topic, queue.broker_name, queue.queue_id)
                found[place] = Standing(done, bounds.latest, max(0, bounds.latest - start))
    return Sample(time.time(), found)


def _text(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _table(sample: Sample) -> Shown:
    shown = Shown(*_COLUMNS[:4], title=f"lag at {sample.at}")
    for name in _COLUMNS[4:]:
        shown.add_column(name, justify="right")
    for *names, committed, newest, behind in sample.rows():
        shown.add_row(*map(str, names), f"{committed}", f"{newest}", f"{behind:,}")
    shown.add_section()
    for (group, topic), behind in sample.totals().items():
        shown.add_row(group, topic, "all", "all", "", "", f"{behind:,}")
    return shown


def _as_json(sample: Sample) -> dict[str, object]:
    rows = [
        place._asdict()
        | {"committed": standing.committed, "newest": standing.newest, "lag": standing.behind}
        for place, standing in sorted(sample.standings.items())
    ]
    return {"time": sample.at, "queues": rows}


def _page(topic: str, taken: list[Sample]) -> Page:
    totals = [sample.totals() for sample in taken]
    sizes: dict[tuple[str, str], int] = {}
    for total in totals:
        for name, behind in total.items():
            sizes[name] = max(behind, sizes.get(name, 0))
    names = sorted(sizes, key=lambda name: (-sizes[name], name))
    lines = {" of ".join(name): [float(total.get(name, 0)) for total in totals] for name in names}
    labels = (taken[0].at, taken[-1].at)
    page = Page(f"Lag of {topic}", f"{len(taken)} samples from {labels[0]} to {labels[1]}.")
    times = [sample.time for sample in taken]
    page.parts.append(Chart("Messages behind", "of each group", times, labels, lines))
    page.parts.append(Table(f"At {taken[-1].at}", _COLUMNS, taken[-1].rows()))
    return page
