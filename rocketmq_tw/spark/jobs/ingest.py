"""`rmqspark ingest`: a topic into partitioned Parquet, each message once over all restarts.

Spark's checkpoint says which offsets a batch has, and the log of its file sink which files belong
to it, so a batch that was cut off is done again under the same number. Messages whose body is
damaged or not what `--format` says go to a second query's output with the reason.
"""

from typing import Any

import rich_click as click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from rocketmq_tw.spark.columns import PROBLEM
from rocketmq_tw.spark.jobs.options import cluster_options, spark_options
from rocketmq_tw.spark.jobs.running import (
    Job,
    interrupt_event,
    parse_pairs,
    reason,
    source_settings,
)
from rocketmq_tw.spark.offsets import lag
from rocketmq_tw.spark.options import Damaged

_CORRUPT = "_corrupt"
#: Spark's name for "the day (hour) in which it was stored", as a directory.
_PERIODS = {"day": "yyyy-MM-dd", "hour": "yyyy-MM-dd-HH"}
_POLL_SECONDS = 0.5
#: Spark gives the process that finds a stream's offsets ten seconds to start, and a busy machine
#: may need more; the checkpoint makes another start safe.
_TOO_SLOW = "Python worker failed to connect back"
_STARTS = 5


@click.command()
@click.argument("topic")
@click.argument("output")
@click.option("--checkpoint", help="Where the progress is kept; OUTPUT.checkpoint by default.")
@click.option("--bad", help="Where bad messages go; OUTPUT.bad by default.")
@click.option(
    "--format",
    "body_format",
    type=click.Choice(["raw", "text", "json"]),
    default="raw",
    show_default=True,
    help="What bodies are: text and json add a column value.",
)
@click.option(
    "--schema", help="With --format json: the columns of a body, as in `a int, b string`."
)
@click.option(
    "--by", type=click.Choice(list(_PERIODS)), default="day", show_default=True,
    help="The period that partitions the output, of the time a message was stored.",
)  # fmt: skip
@click.option(
    "--every", type=click.FloatRange(0), help="Go on for ever, with a batch every so many seconds."
)
@click.option(
    "--max-per-batch", type=click.IntRange(1), help="At most so many messages in a batch."
)
@cluster_options
@spark_options
def ingest(
    topic: str,
    output: str,
    checkpoint: str | None,
    bad: str | None,
    body_format: str,
    schema: str | None,
    by: str,
    every: float | None,
    max_per_batch: int | None,
    name_servers: str | None,
    pairs: tuple[str, ...],
    master: str | None,
    confs: tuple[str, ...],
) -> None:
    """Write TOPIC to Parquet files under OUTPUT, each message exactly once.

    Stops when it has all that was there at the start, unless --every. Start it again to go on.
    """
    if (body_format == "json") != (schema is not None):
        raise click.UsageError("--format json and --schema belong together: give both or none")
    options = source_settings(name_servers, pairs)
    options.setdefault("startingOffsets", "earliest")
    job = Job("ingest", master, parse_pairs(confs, "--conf"), options, progress_bar=False)
    places = {
        "good": (output, f"{checkpoint or output + '.checkpoint'}/good"),
        "bad": (bad or f"{output}.bad", f"{checkpoint or output + '.checkpoint'}/bad"),
    }
    job.check_source(topic, streaming=True)
    with job.session() as spark:
        queries = []
        for name in places:
            wanted = name == "good"
            only_damaged = not wanted and body_format == "raw"
            source = job.reader(
                spark.readStream,
                topic,
                maxOffsetsPerTrigger=max_per_batch,
                damagedMessages=Damaged.ONLY if only_damaged else Damaged.KEEP,
                # A group is as far as what is written to OUTPUT.
                commitOffsets=None if wanted else False,
            )
            rows = _parsed(source.load(), body_format, schema, wanted=wanted)
            query = Ingestion(rows, name, *places[name], by, every, counts_all=not only_damaged)
            queries.append(query)
        _watch(spark, queries)


def _parsed(frame: Any, body_format: str, schema: str | None, *, wanted: bool) -> Any:
    """Returns the good rows with their value, or the bad ones with their reason."""
    from pyspark.sql import functions as f

    sound = f.col(PROBLEM.name).isNull()
    if body_format == "raw":
        if wanted:
            return frame.filter(sound).drop(PROBLEM.name)
        return frame.filter(~sound).withColumnRenamed(PROBLEM.name, "reason")
    text = sound & f.is_valid_utf8(f.col("body"))
    no_text = f.coalesce(PROBLEM.name, f.lit("the body is no UTF-8"))
    if body_format == "text":
        value = f.col("body").cast("string")
        if wanted:
            return frame.filter(text).withColumn("value", value).drop(PROBLEM.name)
        return frame.filter(~text).withColumn("reason", no_text).drop(PROBLEM.name)
    parsed = f.from_json(
        f.when(text, f.col("body").cast("string")),
        f"{schema}, {_CORRUPT} string",
        {"columnNameOfCorruptRecord": _CORRUPT, "mode": "PERMISSIVE"},
    )
    frame = frame.withColumn("value", parsed)
    good = text & f.col("value").isNotNull() & f.col(f"value.{_CORRUPT}").isNull()
    if wanted:
        frame = frame.filter(good).withColumn("value", f.col("value").dropFields(_CORRUPT))
        return frame.drop(PROBLEM.name)
    no_json = f.lit(f"the body is no JSON of {schema}")
    why = f.when(text, no_json).otherwise(no_text)
    return frame.filter(~good).withColumn("reason", why).drop("value", PROBLEM.name)


class Ingestion:
    """A streaming query into Parquet, how many messages it has read and how many it wrote."""

    def __init__(
        self,
        rows: Any,
        name: str,
        output: str,
        checkpoint: str,
        by: str,
        every: float | None,
        *,
        counts_all: bool,
    ) -> None:
        from pyspark.sql import functions as f

        trigger: dict[str, Any] = {"availableNow": True}
        if every is not None:
            trigger = {"processingTime": f"{every} seconds"}
        self.name = name
        self.output = output
        #: Whether `messages` has those as well that the query does not write.
        self.counts_all = counts_all
        self.messages = 0
        self.written = 0
        self.behind = 0
        self._writer = (
            rows.withColumn(by, f.date_format("storeTimestamp", _PERIODS[by]))
            .observe(name, f.count("*").alias("rows"))
            .writeStream.queryName(name)
            .format("parquet")
            .partitionBy("topic", by)
            .option("checkpointLocation", checkpoint)
            .option("path", output)
            .trigger(**trigger)
        )
        self._starts_left = _STARTS
        self._start()

    def _start(self) -> None:
        self._starts_left -= 1
        self._seen = -1
        self._query = self._writer.start()

    def stop(self) -> None:
        self._query.stop()

    def ended(self, seconds: float) -> bool:
        """Waits for so long; whether it has ended. Raises the command's error where it failed."""
        ended = bool(self._ended_within(seconds))
        for progress in self._query.recentProgress:
            self.behind = sum(lag(progress["sources"][0]).values())
            if progress["batchId"] > self._seen:
                self._seen = progress["batchId"]
                self.messages += progress["numInputRows"]
                observed = progress["observedMetrics"].get(self.name)
                self.written += 0 if observed is None else observed["rows"]
        error = self._query.exception() if ended else None
        if error is None:
            return ended
        if _TOO_SLOW not in str(error) or not self._starts_left:
            raise click.ClickException(reason(error))
        self._start()
        return False

    def _ended_within(self, seconds: float) -> bool:
        from pyspark.errors import StreamingQueryException

        try:
            return bool(self._query.awaitTermination(seconds))
        except StreamingQueryException:
            return True


def _watch(spark: Any, queries: list[Ingestion]) -> None:
    """Shows the progress until all queries ended; raises the first failure."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns) as bar, interrupt_event() as interrupted:
        tasks = {
            query: bar.add_task(query.name, total=None, visible=query.counts_all)
            for query in queries
        }
        while tasks and not interrupted.is_set():
            for query in list(tasks):
                ended = query.ended(_POLL_SECONDS)
                total = query.messages + query.behind
                bar.update(tasks[query], completed=query.messages, total=total or None)
                if ended:
                    del tasks[query]
    if tasks:
        # How a job with --every ends. A batch that this cuts off is done again, so what Spark
        # says about it is no error.
        spark.sparkContext.setLogLevel("OFF")
        for query in tasks:
            query.stop()
        click.echo("stopped; start the command again to go on", err=True)
    for query in queries:
        read = f"read {query.messages} messages, " if query.counts_all else ""
        click.echo(f"{query.name}: {read}wrote {query.written} to {query.output}")
