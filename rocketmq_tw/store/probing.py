"""Tries whether the disk takes what a store needs next, before anything depends on it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from rocketmq_tw.files.interface import IFile, IFiles

#: The file that is written and removed in each directory that is tried.
PROBE = "probe"
_DATA = b"probe".ljust(4096, b"\0")


def try_to_write(files: IFiles, directories: Iterable[str], *, handles: int = 1) -> str:
    """Returns why a file cannot be made, written and made durable in one of `directories`, or not
    be opened `handles` times; empty where all of it works. Blocks."""
    for directory in dict.fromkeys(directories):
        try:
            _try(files, directory, handles)
        except OSError as error:
            return f"{directory} cannot be written: {error.strerror or error}"
    return ""


def _try(files: IFiles, directory: str, handles: int) -> None:
    opened: list[IFile] = []
    files.make_dirs(directory)
    path = f"{directory}/{PROBE}"
    try:
        for _ in range(handles):
            opened.append(files.open(path, create=True))
        opened[0].pwrite(_DATA, 0)
        opened[0].fsync()
    finally:
        for file in opened:
            file.close()
        with contextlib.suppress(FileNotFoundError):
            files.remove(path)


def try_to_open(files: IFiles, directory: str) -> str:
    """Returns why the last file of `directory`, which has files of a log, cannot be opened to be
    written; empty where it can, or there is none. Blocks."""
    try:
        names = files.list(directory)
        if names:
            files.open(f"{directory}/{names[-1]}").close()
    except OSError as error:
        return f"{directory} cannot be written: {error.strerror or error}"
    return ""
