"""The JSON files below `config/` and their `.bak` (docs/formats/config-files.md).

A file is written aside, synced, renamed into place, and its directory synced: whatever the moment
of a crash, the old content or the new one is there, whole.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import TypeVar

from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.store.errors import DamagedStoreError

BACKUP_SUFFIX = ".bak"
_ASIDE_SUFFIX = ".tmp"

T = TypeVar("T")


def replace_file(files: IFiles, path: str, data: bytes) -> None:
    """Replaces the whole content of `path`, durably."""
    directory = posixpath.dirname(path) or "."
    files.make_dirs(directory)
    _write_aside(files, path, data)
    files.rename(path + _ASIDE_SUFFIX, path)
    files.sync_dir(directory)


def write_metadata(files: IFiles, path: str, data: bytes) -> None:
    """Replaces `path` durably; its former content becomes `path`.bak, as stock keeps it."""
    try:
        former = files.read(path)
    except FileNotFoundError:
        former = b""
    if former == data:
        return
    if former.strip():
        replace_file(files, path + BACKUP_SUFFIX, former)
    replace_file(files, path, data)


def read_metadata(
    files: IFiles, path: str, decode: Callable[[bytes], T], report: Callable[[str], None]
) -> T | None:
    """What `decode` makes of `path`, or of its `.bak` where it is missing, empty or damaged; None
    where neither file is there.

    `decode` raises `ValueError` for damaged content. `report` is told what the `.bak` stood in
    for. Raises `DamagedStoreError` where no file can be used although there is one, so that a
    broker never starts as if it had no topics.
    """
    problems = []
    for candidate in (path, path + BACKUP_SUFFIX):
        try:
            data = files.read(candidate)
        except FileNotFoundError:
            continue
        if not data.strip(b"\0 \t\r\n"):
            problems.append(f"{candidate} is empty")
            continue
        try:
            value = decode(data)
        except ValueError as error:
            problems.append(f"{candidate} is damaged: {error}")
            continue
        if candidate != path:
            report(f"{'; '.join(problems) or path + ' is missing'}: used {candidate} instead")
        return value
    if problems:
        raise DamagedStoreError(
            f"{'; '.join(problems)}: restore one of them, or remove them to begin anew"
        )
    return None


def _write_aside(files: IFiles, path: str, data: bytes) -> None:
    file = files.open(path + _ASIDE_SUFFIX, create=True)
    try:
        file.truncate(0)
        file.pwrite(data, 0)
        file.fsync()
    finally:
        file.close()
