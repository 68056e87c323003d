"""Refuses repairs that would lose records, or spoil what they do not know."""

from __future__ import annotations

import os

import click

from rocketmq_tw.admin.store.looking import Checked
from rocketmq_tw.admin.store.opening import Opened
from rocketmq_tw.admin.store.places import is_inside, refuse_shared
from rocketmq_tw.admin.store.repairing import (
    UNFINISHED,
    Loss,
    differing_queues,
    differing_size,
    loss_of_cut,
    stray_files,
)
from rocketmq_tw.admin.tool import fail


def why_not_repaired(opened: Opened, checked: Checked) -> str:
    """Returns why a repair in place, without --cut, would change nothing for now; empty where it
    would mend something."""
    try:
        refuse_place(opened, None)
        refuse_found(opened, checked, loss_of_cut(opened.store.log, checked.summary), cut=False)
    except click.ClickException as error:
        return error.message
    return ""


def refuse_place(opened: Opened, target: str | None) -> None:
    """Ends the command where a repair, of a copy in `target` where there is one, cannot be made,
    whatever is wrong with the store."""
    config = opened.config
    if config is not None and (differing := differing_size(opened.store, config)):
        raise click.UsageError(f"-c has {differing}")
    if target is None:
        refuse_shared(opened.store, opened.place)
    else:
        _refuse_target(opened, target)


def _refuse_target(opened: Opened, target: str) -> None:
    """Ends the command where no copy can be made in `target`."""
    if not opened.store.is_log_inside:
        raise click.UsageError(
            f"--to: the log is outside of the store, in {opened.store.log_path}: copy both, or"
            " repair in place"
        )
    if is_inside(target, opened.store.root):
        raise click.UsageError(f"--to: {target} is inside of the store: name another place")
    if os.path.exists(os.path.join(target, UNFINISHED)):
        raise click.UsageError(
            f"--to: {target} has what a repair that was killed has left: remove it, or name a new"
            " directory"
        )
    if os.path.exists(target) and (not os.path.isdir(target) or os.listdir(target)):
        raise click.UsageError(f"--to: {target} is there already: name a new directory")


def refuse_found(opened: Opened, found: Checked, loss: Loss | None, *, cut: bool) -> None:
    """Ends the command where a repair of what was found would lose records, or spoil what it does
    not know."""
    store, config = opened.store, opened.config
    summary, kinds = found.summary, found.findings.kinds
    if store.member:
        fail(
            f"{store.root} belongs to a DLedger group: a member repairs itself when it starts, or"
            " copies the log from its leader (docs/raft.md)"
        )
    if kinds["file-kind"]:
        told = next((each.line for each in found.told if each.kind == "file-kind"), "")
        fail(f"{store.root} has something else where a file or a directory belongs: {told}")
    for kind, whose in (("index-size", "the index"), ("queue-size", "queues")):
        if kinds[kind] and config is None:
            raise click.UsageError(
                f"files of {whose} have another size than stock's: give the broker's configuration"
                " with -c, so that new ones get its size"
            )
    if summary.passed_over:
        fail(f"{store.root} has topics with queues of another kind: {summary.passed_over[0]}")
    if not store.log.starts:
        fail(
            f"{store.root} has no log, from which all else is built: restore it, or say with"
            " --log where it is"
        )
    for start, size in store.log.sizes.items():
        if size > store.log.file_size:
            fail(f"{store.log.path(start)} is longer than the others: restore it from a replica")
    for path in stray_files(store.log, loss)[:1]:
        fail(f"{path} does not follow the file before it: move it away")
    differing = "" if config is None else differing_queues(store, config, found.findings)
    if differing:
        raise click.UsageError(f"-c has {differing}")
    if cut:
        return
    if loss is not None:
        fail(
            f"the log is damaged at {loss.at}, and whole records follow: restore its file from a"
            f" replica, or give --cut, and {loss.line}"
        )
    if kinds["checkpoint-ahead"]:
        fail(
            f"the log has lost its end, which was safe: restore its last file from a replica, or"
            f" give --cut to go on from {summary.log_end}"
        )
