"""`rmqspark COMMAND`: the group of the ready jobs, and how failures are told."""

import sys
from collections.abc import Sequence
from typing import NoReturn

import rich_click as click

from rocketmq_tw.interrupted import INTERRUPTED
from rocketmq_tw.spark.jobs.ingest import ingest
from rocketmq_tw.spark.jobs.lag import lag_command
from rocketmq_tw.spark.jobs.replay import replay
from rocketmq_tw.spark.jobs.stats import stats
from rocketmq_tw.wire.printable import printable


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Move messages between RocketMQ and Spark, and look at them."""


for command in (ingest, replay, stats, lag_command):
    cli.add_command(command)


def run(arguments: Sequence[str] | None) -> NoReturn:
    """Runs a command (of the process's arguments where none is given) and exits: a failure is told
    in one line on stderr and has status 1, a wrong call 2, Ctrl-C 130."""
    status = 0
    try:
        cli.main(arguments, "rmqspark", standalone_mode=False)
    except click.ClickException as error:
        said = " ".join(error.format_message().split())
        if isinstance(error, click.UsageError) and error.ctx is not None:
            said += f" ({error.ctx.command_path} -h shows the options)"
        click.echo(f"rmqspark: {printable(said)}", err=True)
        status = error.exit_code
    except click.Abort:
        click.echo("rmqspark: stopped", err=True)
        status = INTERRUPTED
    sys.exit(status)
