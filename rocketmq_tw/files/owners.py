"""Whose the files of a directory are, where another user works in it: root, mostly."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress


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


@contextmanager
def owners_kept(roots: Iterable[str]) -> Iterator[None]:
    """Gives, at the end, what was replaced below `roots` the owner and the rights that it had, and
    what is new the owner of its directory. Follows no links."""
    roots = list(roots)
    before = {path: os.lstat(path) for path in _below(roots)}
    try:
        yield
    finally:
        # Directories stand in front of what is in them.
        for path in _below(roots):
            old = before.get(path)
            if old is not None and stat.S_IFMT(old.st_mode) == stat.S_IFMT(os.lstat(path).st_mode):
                give(path, old)
            else:
                give(path, os.stat(os.path.dirname(path)), rights=False)


def _below(roots: Iterable[str]) -> Iterator[str]:
    """Yields the roots, and all that is below them."""
    for root in filter(os.path.lexists, roots):
        yield root
        for directory, below, names in os.walk(root):
            for name in (*below, *names):
                yield f"{directory}/{name}"
