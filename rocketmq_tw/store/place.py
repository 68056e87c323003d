"""Looks whether open files are still where they were opened.

What is removed, moved or replaced below a process goes on in its open files, which nobody finds
again.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from rocketmq_tw.files.interface import IFile, IFiles


class OpenedAt(NamedTuple):
    """An open file that belongs at `path`; None: it is closed, and any file there will do. `beside`
    is what no other process makes anew in its directory: where that is there, the directory is;
    empty: nothing is known of it."""

    file: IFile | None
    path: str
    beside: str = ""


def why_gone(files: IFiles, places: Iterable[OpenedAt]) -> str:
    """Returns what is not there any more and what to do; empty where all is in its place. Raises
    `OSError` where that cannot be known. Blocks, in any thread."""
    for file, path, beside in places:
        if files.exists(path) if file is None else file.is_at(path):
            continue
        directory = posixpath.dirname(path)
        if beside and files.exists(beside) and not files.exists(path):
            return (
                f"{path} was removed while it was in use, so that another process may open"
                f" {directory} too: restart"
            )
        return (
            f"{directory} was removed, moved or replaced while it was in use: put back what was"
            " there, or restart"
        )
    return ""


class PlaceFound(NamedTuple):
    """What a look at `places` has found: why they are gone, if they are."""

    places: Sequence[OpenedAt]
    why: str


class PlaceWatch:
    """Keeps in `gone` why what is written now would be lost, although it can be; empty while that
    is not so. `places` gives the files that are open now, and touches no disk."""

    def __init__(self, files: IFiles, places: Callable[[], Sequence[OpenedAt]]) -> None:
        self.gone = ""
        self._files = files
        self._places = places

    def prepare(self) -> Callable[[], PlaceFound]:
        """Returns what looks, in any thread: it blocks, and raises `OSError` where nothing can be
        known."""
        files, places = self._files, self._places()
        return lambda: PlaceFound(places, why_gone(files, places))

    def take(self, found: PlaceFound) -> None:
        """Takes in what a look has found. It says nothing of files that were closed meanwhile."""
        if not found.why or found.places == self._places():
            self.gone = found.why
