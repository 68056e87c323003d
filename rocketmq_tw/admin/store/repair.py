"""`rmqadmin store repair`: a store that a broker starts with, out of a damaged one."""

from __future__ import annotations

import os

import rich_click as click

from rocketmq_tw.admin.options import ask_first, yes_option
from rocketmq_tw.admin.output import Report
from rocketmq_tw.admin.store.check import Checked, look_through
from rocketmq_tw.admin.store.opening import (
    config_option,
    directory_argument,
    open_store,
    progress,
    refuse_if_open,
)
from rocketmq_tw.admin.store.repairing import config_for, copy_store, differing_size, rebuild
from rocketmq_tw.admin.tool import Tool, fail
from rocketmq_tw.store.errors import StoreError
from rocketmq_tw.storecheck.layout import Store


@click.command("repair")
@directory_argument
@config_option
@click.option("--to", "target", metavar="DIR", type=click.Path(), help="Repair a copy there.")
@click.option("--cut", is_flag=True, help="End the log at its first damage, whatever follows.")
@yes_option
@click.pass_obj
def repair(
    tool: Tool, directory: str, config_file: str | None, target: str | None, cut: bool, yes: bool
) -> None:
    """Ends the log of the store in DIR behind its last whole record, and builds queues and index
    again from it, as the broker's recovery would. Then the store is checked again.

    What would lose whole records is refused, unless with --cut."""
    store, config = open_store(directory, config_file)
    refuse_if_open(store)
    if config is not None and (differing := differing_size(store, config)):
        raise click.UsageError(f"-c: {config_file} has {differing}")
    if target is not None and config is not None and config.store_path_commit_log:
        raise click.UsageError(
            "--to: the log is outside of the store (storePathCommitLog): copy both, or repair in"
            " place"
        )
    if target is not None and os.path.exists(target) and (
        not os.path.isdir(target) or os.listdir(target)
    ):  # fmt: skip
        raise click.UsageError(f"--to: {target} is there already: name a new directory")
    before = look_through(store)
    if not before.findings.count:
        tool.show(Report({"before": before.data(store.root), "after": None, "notes": []},
                         lines=["nothing is wrong, nothing is changed"]))  # fmt: skip
        return
    _refuse_what_loses(store, before, cut=cut, configured=config is not None)
    try:
        if target is None:
            ask_first(yes, f"Repair {store.root}? --to DIR would repair a copy.")
        else:
            with progress("copying", store.data_size) as advance:
                copy_store(store.root, target, advance)
            store, _ = open_store(target, config_file)
        settings = config_for(store, before.summary, config)
        notes = rebuild(settings, store.log, cut_at=before.summary.damaged_at)
    except StoreError as error:
        fail(f"the recovery refuses the store: {error}", error)
    except OSError as error:
        fail(f"the store cannot be repaired: {error}", error)
    again, _ = open_store(store.root, config_file)
    after = look_through(again)
    found = {"before": before.data(directory), "after": after.data(again.root), "notes": notes}
    count = before.findings.count
    things = "1 thing" if count == 1 else f"{count} things"
    lines = [f"found {things} before the repair", *notes, *after.lines]
    if after.findings.count:
        lines.append("what is left is not mended by a repair")
    tool.show(Report(found, lines=lines))
    if after.findings.count:
        raise SystemExit(1)


def _refuse_what_loses(store: Store, before: Checked, *, cut: bool, configured: bool) -> None:
    """Ends the command where a repair would lose records, or spoil what it does not know."""
    summary, kinds = before.summary, before.findings.kinds
    if store.member:
        fail(
            f"{store.root} belongs to a DLedger group: a member repairs itself when it starts, or"
            " copies the log from its leader (docs/raft.md)"
        )
    if kinds["index-size"] and not configured:
        raise click.UsageError(
            "files of the index have another size than stock's: give the broker's configuration"
            " with -c, so that new ones get that size"
        )
    if summary.passed_over:
        fail(f"{store.root} has topics with queues of another kind: {summary.passed_over[0]}")
    if not store.log.starts:
        fail(
            f"{store.root} has no log, from which all else is built: restore it, or give -c with"
            " its storePathCommitLog"
        )
    for start, size in store.log.sizes.items():
        if size > store.log.file_size:
            fail(f"{store.log.path(start)} is longer than the others: restore it from a replica")
    if cut:
        return
    if summary.damaged_at is not None:
        fail(
            f"the log is damaged at {summary.damaged_at}, and whole records follow: restore its"
            " file from a replica, or give --cut to lose all that follows"
        )
    if kinds["checkpoint-ahead"]:
        fail(
            f"the log has lost its end, which was safe: restore its last file from a replica, or"
            f" give --cut to go on from {summary.log_end}"
        )
