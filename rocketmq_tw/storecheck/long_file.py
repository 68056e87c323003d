"""A directory of files that make one long file, each named by the offset of its first byte."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

from rocketmq_tw.files.posix import SEEK_DATA
from rocketmq_tw.storecheck.findings import Findings, Remedy

_DIGITS = 20


class LongFile:
    """The files in `root`/`directory`. All have `file_size` bytes: without it, the size that most
    of them have. Reads only."""

    def __init__(
        self, root: str, directory: str, file_size: int | None = None, *, keep_open: bool = False
    ) -> None:
        self.directory = directory
        self._path = f"{root}/{directory}"
        self._keep_open = keep_open
        self._open: tuple[int, int] | None = None
        names = names_in(self._path)
        self.strange = [name for name in names if not self._is_part(name)]
        self.starts = sorted(int(name) for name in set(names).difference(self.strange))
        self.sizes = {start: os.stat(self.path(start)).st_size for start in self.starts}
        counts = Counter(size for size in self.sizes.values() if size)
        #: The size that most files have; 0 without any that has bytes.
        self.usual_size = counts.most_common(1)[0][0] if counts else 0
        self.file_size = file_size or self.usual_size
        #: Files that start in the middle of another one; they are not read.
        self.astray = [start for start in self.starts if start % max(self.file_size, 1)]
        self.starts = [start for start in self.starts if start not in self.astray]

    def _is_part(self, name: str) -> bool:
        return is_offset(name) and os.path.isfile(f"{self._path}/{name}")

    def path(self, start: int) -> str:
        """Returns the path of the file that starts at an offset."""
        return f"{self._path}/{start:020}"

    def name(self, offset: int) -> tuple[str, int]:
        """Returns the file below the store in which an offset is, and the byte there."""
        start = offset - offset % self.file_size if self.file_size else 0
        return f"{self.directory}/{start:020}", offset - start

    @property
    def min_offset(self) -> int:
        """Where the first file starts; 0 without files."""
        return self.starts[0] if self.starts else 0

    @property
    def files_end(self) -> int:
        """Behind the last file."""
        return self.starts[-1] + self.file_size if self.starts else 0

    @property
    def data_size(self) -> int:
        """Bytes that take room on the disk; the rest are zeros that nobody wrote."""
        total = 0
        for start in self.starts:
            found = os.stat(self.path(start))
            total += min(found.st_size, found.st_blocks * 512)
        return total

    def check_names(self, findings: Findings) -> None:
        """Reports names that no file of it has."""
        for name in self.strange:
            # A file system of its own has lost+found.
            if not is_offset(name) and name != "lost+found":
                tell_no_name(f"{self.directory}/{name}", findings)

    def check_files(
        self,
        findings: Findings,
        short: Remedy = Remedy.REPAIR,
        long: Remedy = Remedy.RESTORE,
        advice: str = "",
    ) -> None:
        """Reports what makes it no whole: files of a wrong size, at a wrong offset, and missing
        ones; `short` mends one that is too short, `long` one that is too long, and `advice` is what
        helps in place of a restore."""
        otherwise = f": {advice}" if advice else ""
        for name in filter(is_offset, self.strange):
            tell_no_file(f"{self.directory}/{name}", findings)
        for start in self.astray:
            findings.add(
                "file-name", f"{self.directory}/{start:020}", None,
                f"files of {self.file_size} bytes start at its multiples{otherwise}",
                Remedy.RESTORE,
            )  # fmt: skip
        expected = self.min_offset
        for start in self.starts:
            file, size = f"{self.directory}/{start:020}", self.sizes[start]
            if start > expected:
                findings.add(
                    "file-missing", f"{self.directory}/{expected:020}", None,
                    f"the files from {expected} to {start} are missing{otherwise}", Remedy.RESTORE,
                )  # fmt: skip
            if size != self.file_size:
                is_new = size == 0 and start == self.starts[-1]
                remedy = Remedy.START if is_new else short if size < self.file_size else long
                text = f"it has {size} bytes in place of {self.file_size}"
                if remedy is Remedy.RESTORE:
                    text += otherwise
                findings.add("file-size", file, size, text, remedy)
            expected = start + self.file_size

    def read(self, size: int, offset: int) -> bytes:
        """Returns up to `size` bytes from an offset, not past the end of a file; none where there
        is no file."""
        if not self.file_size or offset < 0:
            return b""
        start = offset - offset % self.file_size
        if start not in self.sizes:
            return b""
        descriptor = self._descriptor(start)
        try:
            return os.pread(descriptor, min(size, start + self.file_size - offset), offset - start)
        finally:
            if not self._keep_open:
                os.close(descriptor)

    def next_data(self, offset: int) -> int:
        """Returns where, in the file of an offset, the disk has data again: what is in front of
        that are zeros. The end of the file where there is no more."""
        start = offset - offset % self.file_size
        descriptor = self._descriptor(start)
        try:
            return start + os.lseek(descriptor, offset - start, SEEK_DATA)
        except OSError:
            return start + self.file_size
        finally:
            if not self._keep_open:
                os.close(descriptor)

    def _descriptor(self, start: int) -> int:
        if self._open is not None and self._open[0] == start:
            return self._open[1]
        self.close()
        descriptor = os.open(self.path(start), os.O_RDONLY | os.O_CLOEXEC)
        if self._keep_open:
            self._open = (start, descriptor)
        return descriptor

    def close(self) -> None:
        """Closes the file that is open."""
        if self._open is not None:
            os.close(self._open[1])
            self._open = None


def directories(path: str) -> Iterator[str]:
    """Yields the names of the directories in a directory, sorted."""
    for name in names_in(path):
        if os.path.isdir(f"{path}/{name}"):
            yield name


def names_in(path: str) -> list[str]:
    """Returns the names in a directory, sorted; none where it is no directory."""
    try:
        return sorted(os.listdir(path))
    except (FileNotFoundError, NotADirectoryError):
        return []


def tell_no_name(path: str, findings: Findings) -> None:
    """Reports something with a name that nothing there has."""
    text = "no file of that name belongs here: move it away"
    findings.add("file-name", path, None, text, Remedy.RESTORE)


def tell_no_file(path: str, findings: Findings) -> None:
    """Reports something else, as a directory, that has the name of a file."""
    findings.add(
        "file-kind", path, None, "it is no file, and one belongs here: move it away", Remedy.RESTORE
    )


def tell_no_directory(path: str, findings: Findings) -> None:
    """Reports something else, as a file, that has the name of a directory."""
    findings.add(
        "file-kind", path, None, "it is a file, and a directory belongs here: move it away",
        Remedy.RESTORE,
    )  # fmt: skip


def is_offset(name: str) -> bool:
    """Returns whether a file of that name is part of a long one."""
    return len(name) == _DIGITS and name.isascii() and name.isdigit()
