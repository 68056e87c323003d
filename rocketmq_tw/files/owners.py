"""Gives files to the owner of their directory, where another user works in it: root, mostly."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.files.posix import PosixFile, PosixFiles


def give(path: str, old: os.stat_result, *, rights: bool = True) -> None:
    """Gives a file or directory the owner and the `rights` of `old`, where this process may; of a
    link itself, the owner. What is gone is passed over."""
    with suppress(PermissionError, FileNotFoundError):
        new = os.lstat(path)
        if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
            os.lchown(path, old.st_uid, old.st_gid)
            new = os.lstat(path)
        if rights and not stat.S_ISLNK(new.st_mode) and new.st_mode != old.st_mode:
            os.chmod(path, stat.S_IMODE(old.st_mode))


class _OwnedFiles(PosixFiles):
    """Gives what it makes away at once: a process that is killed cannot do it any more."""

    def __init__(self, before: Mapping[str, os.stat_result]) -> None:
        self._before = before

    def open(self, path: str, *, create: bool = False) -> PosixFile:
        is_new = create and not os.path.lexists(path)
        file = super().open(path, create=create)
        if is_new:
            _give_back(path, self._before)
        return file

    def make_dirs(self, path: str, *, durable: bool = True) -> None:
        missing = []
        while not os.path.lexists(path):
            missing.append(path)
            path = os.path.dirname(path) or "."
        super().make_dirs(missing[0] if missing else path, durable=durable)
        for directory in reversed(missing):
            _give_back(directory, self._before)


@contextmanager
def owners_kept(roots: Iterable[str]) -> Iterator[IFiles]:
    """Yields the files by which to work below `roots`: what is replaced there gets the owner and
    the rights that it had, what is new the owner of its directory, as soon as it is made. What was
    made in another way gets them at the end. Follows no links."""
    roots = list(roots)
    before = {path: os.lstat(path) for path in _below(roots)}
    try:
        yield _OwnedFiles(before)
    finally:
        # Directories stand in front of what is in them.
        for path in _below(roots):
            _give_back(path, before)


def _give_back(path: str, before: Mapping[str, os.stat_result]) -> None:
    """Gives a file or directory what it had `before`, or else the owner of its directory."""
    old = before.get(path)
    if old is not None and stat.S_IFMT(old.st_mode) == stat.S_IFMT(os.lstat(path).st_mode):
        give(path, old)
    else:
        give(path, os.stat(os.path.dirname(path) or "."), rights=False)


def _below(roots: Iterable[str]) -> Iterator[str]:
    """Yields the roots, and all that is below them."""
    for root in filter(os.path.lexists, roots):
        yield root
        for directory, below, names in os.walk(root):
            for name in (*below, *names):
                yield f"{directory}/{name}"
