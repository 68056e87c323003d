"""Runs a job: what all jobs share, a Spark session, and a failure told in one line."""

import logging
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Any

import click
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from rocketmq_tw.client.errors import ClientError
from rocketmq_tw.spark.cluster import SourceCluster
from rocketmq_tw.spark.errors import SparkSourceError
from rocketmq_tw.spark.options import canonical, source_options

#: The last line of a Python traceback that came back through Spark.
_OURS = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Failed)): (.+)$", re.MULTILINE)
#: What py4j says of an exception of Spark's that PySpark has no class for.
_JAVAS = re.compile(r"^: [\w.$]+: (.+)$", re.MULTILINE)
#: Columns of a terminal that no table needs.
_WIDEST = 10_000
#: Spark's own lines are for authors of jobs, except errors. A user with a Spark of his own has
#: settings for it, which are left alone.
_OWN_CONFIGURATION = {"SPARK_CONF_DIR", "SPARK_HOME"}
_QUIET = Path(__file__).with_name("log4j2.properties")


@dataclass(frozen=True)
class Job:
    """Where a job runs and which cluster of brokers it talks to."""

    name: str
    master: str | None
    settings: dict[str, str]
    options: dict[str, str]
    #: Whether Spark is to show its own on a terminal.
    progress_bar: bool = True

    @contextmanager
    def session(self) -> Iterator[Any]:
        """Yields a Spark session, stopped at the end unless it was there before; an error in it
        ends the command with one line."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.appName(f"rmqspark {self.name}")
        if self.master is not None:
            builder = builder.master(self.master)
        chosen = {
            "spark.sql.session.timeZone": "UTC",
            "spark.ui.showConsoleProgress": str(self.progress_bar and sys.stderr.isatty()).lower(),
        }
        if not _OWN_CONFIGURATION & os.environ.keys():
            chosen["spark.driver.extraJavaOptions"] = (
                f"-Dlog4j2.configurationFile={_QUIET.as_uri()}"
            )
        for key, value in (chosen | self.settings).items():
            builder = builder.config(key, value)
        there = SparkSession.getActiveSession()
        if there is None:
            click.echo("starting Spark", err=True)
        spark = builder.getOrCreate()
        if there is None:
            signal.signal(signal.SIGINT, _give_up)
        spark.sparkContext.setLogLevel("ERROR")
        try:
            yield spark
        except (PySparkException, Py4JJavaError) as error:
            raise click.ClickException(reason(error)) from error
        finally:
            if there is None:
                spark.stop()

    def check_source(self, topic: str, *, streaming: bool = False) -> None:
        """Asks for the topic, so that a mistake is said before Spark starts, which takes long."""
        with as_command_errors():
            options = source_options({"topic": topic, **self.options}, streaming=streaming)
            with SourceCluster(options) as cluster:
                cluster.queues()

    def reader(self, reader: Any, topic: str, **options: Any) -> Any:
        """Returns `spark.read` or `spark.readStream` with the job's options."""
        given = {"topic": topic, **self.options}
        given |= {name: value for name, value in options.items() if value is not None}
        return reader.format("rocketmq").options(**given)


def _give_up(number: int, frame: FrameType | None) -> None:
    """Ends the job on Ctrl-C, in place of PySpark's handler, which asks the JVM to cancel jobs in
    the middle of another question to it; what those then log says nothing to a user."""
    logging.disable(logging.CRITICAL)
    raise KeyboardInterrupt


@contextmanager
def interrupt_event() -> Iterator[Event]:
    """Yields an event that Ctrl-C sets, for a job that looks at it and then ends as it likes."""
    event = Event()
    before = signal.signal(signal.SIGINT, lambda number, frame: event.set())
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def as_command_errors() -> Iterator[None]:
    """Turns our own errors into the command's."""
    try:
        yield
    except (SparkSourceError, ClientError) as error:
        raise click.ClickException(str(error)) from error


def parse_pairs(pairs: tuple[str, ...], flag: str) -> dict[str, str]:
    """Returns `key=value` texts as a mapping; raises `click.BadParameter`."""
    parsed = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{flag} {pair}: give key=value")
        parsed[key] = value
    return parsed


def source_settings(name_servers: str | None, pairs: tuple[str, ...]) -> dict[str, str]:
    """Returns the options of the data source; raises `click.ClickException` for a mistake."""
    options = parse_pairs(pairs, "--option")
    if name_servers is not None:
        options["nameServers"] = name_servers
    with as_command_errors():
        settings = canonical(options)
    if "nameServers" not in settings:
        raise click.UsageError(
            "no name server is given: give --name-servers host:port, or set NAMESRV_ADDR"
        )
    return settings


def show_table(table: Table) -> None:
    """Prints it as wide as it is: a narrow terminal breaks its lines, and nothing is left out."""
    console = Console()
    wide = console.options.update(width=_WIDEST)
    console.width = max(console.width, Measurement.get(console, wide, table).maximum)
    console.print(table)


def reason(error: Exception) -> str:
    """Returns the line that says what to change, out of Spark's report."""
    text = str(error)
    found = _OURS.findall(text)
    if found:
        return str(found[-1][1]).strip()
    javas = _JAVAS.search(text)
    return javas[1].strip() if javas is not None else text.strip().split("\n")[0]
