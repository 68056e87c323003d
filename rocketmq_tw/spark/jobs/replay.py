"""`rmqspark replay`: Parquet back into a topic, at a rate, or only as a plan."""

from typing import Any

import rich_click as click

from rocketmq_tw.spark.errors import OptionError
from rocketmq_tw.spark.jobs.options import cluster_options, spark_options
from rocketmq_tw.spark.jobs.running import Job, as_command_errors, parse_pairs, source_settings
from rocketmq_tw.spark.options import sink_options
from rocketmq_tw.spark.rows import BadRow, check_columns, row_message, written_columns
from rocketmq_tw.spark.sink import check_target
from rocketmq_tw.wire.printable import printable


@click.command()
@click.argument("source")
@click.option("--topic", help="The topic to send to; by default each row's own.")
@click.option("--where", help="Which rows, as an SQL condition.")
@click.option("--rate", type=click.IntRange(1), help="At most so many messages a second.")
@click.option("--bad", help="Where rows go that cannot be sent; SOURCE.bad by default.")
@click.option("--dry-run", is_flag=True, help="Say what would be sent, and send nothing.")
@cluster_options
@spark_options
def replay(
    source: str,
    topic: str | None,
    where: str | None,
    rate: int | None,
    bad: str | None,
    dry_run: bool,
    name_servers: str | None,
    pairs: tuple[str, ...],
    master: str | None,
    confs: tuple[str, ...],
) -> None:
    """Send the rows of the Parquet files under SOURCE as messages.

    Rows that cannot be messages are written aside with the reason, and the rest is sent. What
    a task sent before it failed is sent again when Spark runs it again.
    """
    options = source_settings(name_servers, pairs)
    job = Job("replay", master, parse_pairs(confs, "--conf"), options)
    with as_command_errors():
        check_target(sink_options(options | ({} if topic is None else {"topic": topic})))
    with job.session() as spark:
        rows = spark.read.parquet(source)
        if where is not None:
            rows = rows.filter(where)
        rows = rows.select(*written_columns(rows.columns))
        with as_command_errors():
            _check(rows, topic)
        checked = _with_reason(rows, topic)
        refused = checked.filter("reason is not null")
        sendable = checked.filter("reason is null").drop("reason")
        planned = _describe(checked, topic, rate)
        if dry_run:
            click.echo("dry run: nothing was sent")
            return
        if planned.refused:
            place = bad or f"{source.rstrip('/')}.bad"
            refused.write.mode("append").parquet(place)
            click.echo(f"wrote {planned.refused} bad rows to {place}", err=True)
        if planned.messages:
            _send(spark, job, sendable, topic, rate)
        click.echo(f"sent {planned.messages} messages")


class _Plan:
    def __init__(self, messages: int, refused: int) -> None:
        self.messages = messages
        self.refused = refused


def _check(rows: Any, topic: str | None) -> None:
    try:
        check_columns(rows.schema, topic)
    except OptionError as error:
        raise OptionError(f"these files are no messages: {error}") from error


def _with_reason(rows: Any, topic: str | None) -> Any:
    """Returns the rows with a column `reason`: why one cannot be sent, null where it can."""
    from pyspark.sql import functions as f

    # Without type hints, by which Spark would take it for a function of whole columns.
    judge = f.udf(lambda row: _why_not(row.asDict(), topic), "string")
    return rows.withColumn("reason", judge(f.struct(*rows.columns)))


def _why_not(row: dict[str, Any], topic: str | None) -> str | None:
    try:
        row_message(row, topic)
    except BadRow as error:
        return str(error)
    return None


def _describe(checked: Any, topic: str | None, rate: int | None) -> _Plan:
    """Tells what is to be sent and what is not, out of one look at all rows."""
    from pyspark.sql import functions as f

    target = f.lit(topic) if topic is not None else f.col("topic")
    found = (
        checked.groupBy(target.alias("target"), "reason")
        .agg(f.count("*").alias("messages"), f.sum(f.octet_length("body")).alias("size"))
        .orderBy("target", "reason")
        .collect()
    )
    good = [row for row in found if row.reason is None]
    bad = [row for row in found if row.reason is not None]
    for row in good:
        click.echo(f"{printable(row.target)}: {row.messages} messages, {row.size} bytes")
    messages = sum(row.messages for row in good)
    if rate is not None:
        click.echo(f"at least {messages / rate:.0f} s at {rate} messages a second")
    for row in bad:
        click.echo(f"bad: {row.messages} rows: {printable(row.reason)}")
    return _Plan(messages, sum(row.messages for row in bad))


def _send(spark: Any, job: Job, rows: Any, topic: str | None, rate: int | None) -> None:
    tasks = min(rows.rdd.getNumPartitions(), spark.sparkContext.defaultParallelism)
    options = dict(job.options)
    if topic is not None:
        options["topic"] = topic
    if rate is not None:
        # Each task keeps its share of the rate, so there are no more tasks than run at once.
        tasks = min(tasks, rate)
        rows = rows.coalesce(tasks)
        options["maxMessagesPerSecond"] = str(rate // tasks)
    rows.write.format("rocketmq").options(**options).mode("append").save()
