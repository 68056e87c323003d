"""Options that several commands take."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import rich_click as click

Command = Callable[..., Any]


def cluster_options(command: Command) -> Command:
    """Adds -n and --option: which brokers, and how to talk to them."""
    for option in (
        click.option(
            "--option",
            "-o",
            "pairs",
            multiple=True,
            metavar="KEY=VALUE",
            help="An option of the data source; may be given several times.",
        ),
        click.option(
            "--name-servers",
            "-n",
            envvar="NAMESRV_ADDR",
            help="Name servers as host:port;host:port, or in NAMESRV_ADDR.",
        ),
    ):
        command = option(command)
    return command


def spark_options(command: Command) -> Command:
    """Adds --master and --conf: where the job runs."""
    for option in (
        click.option(
            "--conf",
            "confs",
            multiple=True,
            metavar="KEY=VALUE",
            help="A setting of Spark; may be given several times.",
        ),
        click.option("--master", help="Spark's master: local[2], spark://host:7077, yarn, k8s://…"),
    ):
        command = option(command)
    return command


def page_option(command: Command) -> Command:
    """Adds --html: where a page of charts goes; a directory that is not there is said at once."""
    option = click.option(
        "--html",
        type=click.Path(dir_okay=False, path_type=Path),
        callback=_in_a_directory,
        help="Write a page of charts here.",
    )
    return option(command)


def _in_a_directory(
    context: click.Context, parameter: click.Parameter, path: Path | None
) -> Path | None:
    if path is not None and not path.name:
        raise click.BadParameter("it is empty: give a file", context, parameter)
    if path is not None and not path.parent.is_dir():
        raise click.BadParameter(f"there is no directory {path.parent}", context, parameter)
    return path
