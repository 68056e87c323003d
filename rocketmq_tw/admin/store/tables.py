"""Putting tables and epochs right by what a check found in them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from rocketmq_tw.admin.output import number_of
from rocketmq_tw.admin.store.repairing import most_of
from rocketmq_tw.files.atomic import write_atomic
from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.replication.auto_switch.epoch_file import (
    EpochFile,
    EpochFileError,
    decode_epochs,
)
from rocketmq_tw.replication.auto_switch.epochs import EpochTable
from rocketmq_tw.store.table_files import BACKUP_SUFFIX, read_table_file, write_table_file
from rocketmq_tw.storecheck.check import Summary
from rocketmq_tw.storecheck.marks import EPOCHS
from rocketmq_tw.storecheck.tables import OffsetAhead
from rocketmq_tw.wire import fastjson


def plan_of_tables(summary: Summary, *, is_cut: bool) -> list[str]:
    """Returns what `mend_tables` would do, in lines; `is_cut`: the log would end earlier."""
    plan = [f"{name} would be restored from its {BACKUP_SUFFIX}" for name in summary.with_copy]
    if is_cut:
        # Only what is left will tell which ones.
        return [
            *plan,
            "epochs behind the end of what is left would go, and offsets become the ends of queues",
        ]
    if summary.epochs_ahead:
        plan.append(f"epochs that start behind the log's end, {summary.log_end}, would go")
    if summary.offsets_ahead:
        count = number_of(len(summary.offsets_ahead), "offset")
        plan.append(f"{count} would become the ends of their queues")
    return plan


def mend_tables(files: IFiles, root: str, summary: Summary) -> list[str]:
    """Puts right what `summary` has found in the tables and the epoch file of the store at `root`.
    Returns notes of what was changed. Raises `OSError`."""
    notes = []
    for name in summary.with_copy:
        path = f"{root}/{name}"
        write_atomic(files, path, files.read(path + BACKUP_SUFFIX))
        notes.append(f"{name}: it is restored from its {BACKUP_SUFFIX}")
    if summary.epochs_ahead:
        notes.append(_cut_epochs(files, root, summary.log_end))
    for name, offsets in groupby(summary.offsets_ahead, key=lambda each: each.file):
        notes += _set_offsets(files, f"{root}/config/{name}", name, offsets)
    return notes


def _cut_epochs(files: IFiles, root: str, log_end: int) -> str:
    file = EpochFile(files, f"{root}/{EPOCHS}")
    try:
        table = file.load()
    except EpochFileError as error:
        return f"{EPOCHS}: it is left as it is: {error}"
    before = table.entries
    # As a broker does that truncates the log.
    table.truncate_suffix_by_offset(log_end + 1)
    gone = ", ".join(f"{each.epoch} from {each.start}" for each in before[len(table.entries) :])
    told = f"{EPOCHS}: epochs are gone that started behind the log's end, {log_end}: {gone}"
    if not table.entries:
        # The log that is left may be that of the epochs of before.
        table = _former_epochs(files, f"{root}/{EPOCHS}{BACKUP_SUFFIX}")
        table.truncate_suffix_by_offset(log_end + 1)
        if table.entries:
            told += f"; it has those of its {BACKUP_SUFFIX}"
    file.save(table)
    return told


def _former_epochs(files: IFiles, path: str) -> EpochTable:
    """Returns the epochs of the copy at `path`; none where it cannot be read."""
    try:
        return decode_epochs(files.read(path))
    except (FileNotFoundError, ValueError, TypeError):
        return EpochTable()


def _set_offsets(files: IFiles, path: str, name: str, offsets: Iterable[OffsetAhead]) -> list[str]:
    """Writes the ends of their queues into a table, which keeps all else that it has."""
    table: Any = read_table_file(files, path, _decode, lambda report: None)
    notes = []
    for each in offsets:
        entries = table
        *above, last = each.keys
        for key in above:
            entries = entries[_keys_in(entries, key)[0]]
        for key in _keys_in(entries, last):
            if entries[key] > each.end:
                notes.append(
                    f"config/{name}: {' '.join(each.keys[1:])} is at {each.end}, not {entries[key]}"
                )
                entries[key] = each.end
    write_table_file(files, path, fastjson.dumps(table))
    return most_of(notes, "offsets")


def _decode(data: bytes) -> Any:
    return fastjson.loads(data, max_values=len(data))


def _keys_in(entries: dict[Any, Any], text: str) -> list[Any]:
    """Returns the keys that are written so, with quotes or without: stock's tables have numbers
    without. A table may have both, of which the last one counts."""
    both = [text, int(text)] if text.isdecimal() else [text]
    return [key for key in both if key in entries]
