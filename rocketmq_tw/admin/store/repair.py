"""`rmqadmin store repair`: a store that a broker starts with, out of a damaged one."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import nullcontext

import attrs
import click

from rocketmq_tw.admin.options import PathType, ask_first, yes_option
from rocketmq_tw.admin.output import Report, number_of
from rocketmq_tw.admin.store.looking import Checked, look_through
from rocketmq_tw.admin.store.opening import (
    Opened,
    config_option,
    directory_argument,
    log_option,
    open_store,
    progress,
    refuse_if_open,
)
from rocketmq_tw.admin.store.places import held, locked
from rocketmq_tw.admin.store.refusals import refuse_found, refuse_place
from rocketmq_tw.admin.store.repairing import (
    Loss,
    Rebuilding,
    config_for,
    copy_store,
    loss_of_cut,
    rebuild,
    rebuilding_of,
    room_of,
)
from rocketmq_tw.admin.store.tables import mend_tables, plan_of_tables
from rocketmq_tw.admin.tool import Tool, fail
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.files.owners import owners_kept
from rocketmq_tw.interrupted import interrupted_by_all
from rocketmq_tw.store.errors import StoreError
from rocketmq_tw.storecheck.check import Summary
from rocketmq_tw.storecheck.findings import Remedy
from rocketmq_tw.storecheck.layout import Store

#: Findings before a repair that its result repeats.
_MOST_LINES = 20


@click.command("repair")
@directory_argument
@config_option
@log_option
@click.option("--to", "target", metavar="DIR", type=PathType(), help="Repair a copy there.")
@click.option("--cut", is_flag=True, help="End the log at its first damage, whatever follows.")
@yes_option
@click.pass_obj
def repair(
    tool: Tool,
    directory: str,
    config_file: str | None,
    log: str | None,
    target: str | None,
    cut: bool,
    yes: bool,
) -> None:
    """Ends the log of the store in DIR behind its last whole record, and builds queues and index
    again from it, as the broker's recovery would. Epochs and offsets behind the ends of log and
    queues are put back there. Then the store is checked again.

    What would lose whole records is refused, unless with --cut."""
    opened = open_store(directory, config_file, log)
    refuse_if_open(opened)
    refuse_place(opened, target)
    if tool.dry_run:
        _repair(tool, opened, target, lambda: None, cut=cut, yes=yes)
        return
    # From the first look on: a broker that runs meanwhile would make another store of it.
    keep = locked if target is None else held
    with interrupted_by_all(), keep(opened.store.root, opened.owners) as release:
        _repair(tool, opened, target, release, cut=cut, yes=yes)


def _repair(
    tool: Tool,
    opened: Opened,
    target: str | None,
    release: Callable[[], None],
    *,
    cut: bool,
    yes: bool,
) -> None:
    """Looks at the store, and repairs it or its copy in `target`; `release` gives the lock of the
    store back."""
    store, config = opened.store, opened.config
    before = look_through(store)
    if not before.findings.count:
        lines = [opened.log_line, "nothing is wrong, nothing is changed"]
        tool.show(Report({"before": before.data, "after": None, "notes": []}, lines=lines))
        return
    loss = loss_of_cut(store.log, before.summary)
    refuse_found(opened, before, loss, cut=cut)
    rebuilding = rebuilding_of(store, before.findings, loss)
    if rebuilding is None and not before.summary.has_table_mends:
        lines = [opened.log_line, *before.lines, "a repair mends none of it: nothing is changed"]
        tool.show(Report({"before": before.data, "after": None, "notes": []}, lines=lines))
        raise SystemExit(1)
    if tool.dry_run:
        _show_plan(tool, opened, before, target, rebuilding, loss)
        return
    try:
        if target is None:
            cost = f"With --cut {loss.line}. " if loss is not None else ""
            ask_first(yes, f"{cost}Repair {store.root}? --to DIR would repair a copy.")
        else:
            with progress("copying", store.data_size) as advance:
                copy_store(store.root, target, advance)
            store = Store(target, store.sizes)
        notes = [] if loss is None else [loss.line]
        after = before
        if rebuilding is not None:
            notes += _rebuild(store, before.summary, rebuilding, config, release)
        # A recovery gives the lock back, and a copy has none yet.
        is_locked = rebuilding is None and target is None
        with nullcontext() if is_locked else locked(store.root, []):
            if rebuilding is not None:
                after = _look_again(store)
            if after.summary.has_table_mends:
                with owners_kept([store.root]) as files:
                    notes += mend_tables(files, store.root, after.summary)
                after = _look_again(store)
    except StoreError as error:
        fail(f"the recovery refuses the store: {error}", error)
    except OSError as error:
        where = "" if error.filename else f" in {store.root}"
        room = "" if target is None else _room(error, opened.store.root, target)
        fail(f"the store cannot be repaired{where}: {error}{room}", error)
    _show_done(tool, opened, before, after, loss, notes)


def _room(error: OSError, source: str, target: str) -> str:
    """Says how much room a copy takes, where a full disk has ended it."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return ""
    there = os.path.abspath(target)
    while not os.path.isdir(there):
        there = os.path.dirname(there)
    free = shutil.disk_usage(there).free
    return f"; a copy takes {room_of(source)} bytes, and {free} are free at {there}"


def _rebuild(
    store: Store,
    summary: Summary,
    rebuilding: Rebuilding,
    config: MessageStoreConfig | None,
    release: Callable[[], None],
) -> list[str]:
    """Builds again what is in `rebuilding`, with a progress bar at a terminal; returns notes."""
    settings = config_for(store, summary, config)
    # The broker mostly runs as a user who may not open what root makes.
    kept = owners_kept([store.root, settings.store_path_commit_log or store.log_path])
    with kept as files, progress("building again", store.data_size) as advance:
        return rebuild(
            settings,
            store.log,
            rebuilding,
            files=files,
            summary=summary,
            release=release,
            advance=advance,
        )


def _look_again(store: Store) -> Checked:
    """Looks at files that have changed."""
    log = "" if store.is_log_inside else store.log_path
    return look_through(Store(store.root, store.sizes, log))


def _show_done(
    tool: Tool,
    opened: Opened,
    before: Checked,
    after: Checked,
    loss: Loss | None,
    notes: list[str],
) -> None:
    """Shows what was found and done, and what is left, which ends the command."""
    found = {
        "before": before.data,
        "after": after.data,
        "lost": None if loss is None else attrs.asdict(loss),
        "notes": notes,
    }
    lines = [
        opened.log_line,
        f"found {number_of(before.findings.count, 'thing')} before the repair",
        *before.finding_lines(_MOST_LINES),
        *notes,
        *after.lines,
    ]
    if after.findings.count:
        is_left_to_start = after.findings.remedies.keys() == {Remedy.START}
        lines.append(
            "the broker makes what is left right at its next start"
            if is_left_to_start
            else "what is left is not mended by a repair"
        )
    tool.show(Report(found, lines=lines))
    if after.findings.count:
        raise SystemExit(1)


def _show_plan(
    tool: Tool,
    opened: Opened,
    before: Checked,
    target: str | None,
    rebuilding: Rebuilding | None,
    loss: Loss | None,
) -> None:
    """Shows what a repair would do: `--dry-run`."""
    store, summary = opened.store, before.summary
    where = store.root if target is None else f"a copy in {target}"
    end = summary.log_end
    built = ""
    if rebuilding is not None:
        what = "queues, index and checkpoint" if rebuilding.queues else "index and checkpoint"
        built = f", its {what} built again from the log"
    plan = [f"{where} would be repaired{built}"]
    if summary.mends:
        plan.append(
            f"{number_of(len(summary.mends), 'record')} would get the place that the units have"
        )
    if loss is not None:
        plan.append(f"with --cut {loss.line}")
    elif before.findings.kinds["log-torn"]:
        plan.append(
            f"the {store.log.files_end - end} bytes behind the log's end, {end}, become zeros"
        )
    is_cut = loss is not None or bool(before.findings.kinds["checkpoint-ahead"])
    plan += plan_of_tables(summary, is_cut=is_cut)
    tool.show(
        Report(
            {
                "dryRun": True,
                "before": before.data,
                "after": None,
                "lost": None if loss is None else attrs.asdict(loss),
                "notes": plan,
            },
            lines=[opened.log_line, *before.lines, *plan, "nothing is changed"],
        )
    )
