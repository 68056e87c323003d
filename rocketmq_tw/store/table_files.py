"""The JSON files below `config/` and their `.bak` (docs/formats/config-files.md).

Each is replaced as a whole (`files.atomic`): whatever the moment of a crash, the old content or
the new one is there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from rocketmq_tw.files.atomic import settle, write_atomic
from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.store.errors import DamagedStoreError

BACKUP_SUFFIX = ".bak"

T = TypeVar("T")


def write_table_file(files: IFiles, path: str, data: bytes) -> None:
    """Replaces `path` durably; its former content becomes `path`.bak, as stock keeps it."""
    try:
        former = files.read(path)
    except FileNotFoundError:
        former = b""
    if former == data:
        # Also where the write of it failed at its end.
        settle(files, path)
        return
    write_atomic(files, path, data, former=path + BACKUP_SUFFIX if former.strip() else None)


class CertainWrites:
    """Replaces a file's content by way of `write`, and knows whether the file has what was written
    last. A write may fail behind the moment when the file was replaced: then it may have either."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self.is_certain = True

    def write(self, data: bytes) -> None:
        """Writes `data`, in any thread; raises what `write` raises, `OSError` as a rule."""
        try:
            self._write(data)
        except BaseException:
            self.is_certain = False
            raise
        self.is_certain = True


def read_table_file(
    files: IFiles, path: str, decode: Callable[[bytes], T], report: Callable[[str], None]
) -> T | None:
    """Returns what `decode` makes of `path`, or of its `.bak` where it is missing, empty or
    damaged; None where neither file is there.

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
    if len(problems) == 1:
        raise DamagedStoreError(
            f"{problems[0]}, and there is no other copy: restore it, or remove it to begin without"
            " what was in it"
        )
    if problems:
        raise DamagedStoreError(
            f"{'; '.join(problems)}: restore one of them, or remove both to begin without what was"
            " in them"
        )
    return None
