"""`rmqadmin store check`: what is wrong with a store."""

from __future__ import annotations

import attrs
import click

from rocketmq_tw.admin.output import Report
from rocketmq_tw.admin.store.looking import look_through
from rocketmq_tw.admin.store.opening import (
    config_option,
    directory_argument,
    log_option,
    open_store,
    refuse_if_open,
)
from rocketmq_tw.admin.store.refusals import why_not_repaired
from rocketmq_tw.admin.tool import Tool
from rocketmq_tw.storecheck.findings import Remedy


@click.command("check")
@directory_argument
@config_option
@log_option
@click.pass_obj
def check(tool: Tool, directory: str, config_file: str | None, log: str | None) -> None:
    """Compares log, queues, index and all else of the store in DIR with each other.

    Each finding is a line with file, byte, and what mends it in brackets. The exit status is 1
    where something is wrong. Nothing is written."""
    opened = open_store(directory, config_file, log)
    refuse_if_open(opened)
    checked = look_through(opened.store)
    # It holds no lock, which would keep a broker from starting: then what changed is no damage.
    refuse_if_open(opened)
    if checked.findings.remedies[Remedy.REPAIR]:
        checked = attrs.evolve(checked, refusal=why_not_repaired(opened, checked))
    tool.show(Report(checked.data, lines=[opened.log_line, *checked.lines]))
    if checked.findings.count:
        raise SystemExit(1)
