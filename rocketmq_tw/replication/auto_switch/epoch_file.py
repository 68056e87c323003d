"""The epoch file: stock's `epochFileCheckpoint` (docs/formats/auto-switch-ha.md).

Text lines: the number of epochs, the CRC-32 of the lines behind it (31 bits), then `epoch-start`
for each epoch. The content before the last change is in a `.bak` beside it.
"""

from __future__ import annotations

import contextlib
import zlib

from rocketmq_tw.files.atomic import write_atomic
from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.replication.auto_switch.epochs import EpochEntry, EpochTable

#: More than a file with this size is none: stock's master sends a thousand epochs at most.
MAX_SIZE = 1 << 20


class EpochFileError(Exception):
    """The file cannot be read, nor its copy; the text says what to do."""


def encode_epochs(table: EpochTable) -> bytes:
    """The whole content of the file."""
    lines = "".join(f"{entry.epoch}-{entry.start}\n" for entry in table.entries).encode()
    return f"{len(table.entries)}\n{_crc(lines)}\n".encode() + lines


def decode_epochs(data: bytes) -> EpochTable:
    """The epochs of a file's content; a CRC of 0 is not checked. Raises `ValueError` where it is
    damaged."""
    size, crc, *lines = data[:MAX_SIZE].decode("ascii").splitlines()
    text = "".join(f"{line}\n" for line in lines).encode()
    if int(crc) not in (0, _crc(text)):
        raise ValueError(f"its CRC is {_crc(text)}, it says {crc}")
    entries = [EpochEntry(*map(int, line.split("-"))) for line in lines]
    if len(entries) != int(size):
        raise ValueError(f"it has {len(entries)} epochs, it says {size}")
    return EpochTable(entries)


class EpochFile:
    """The file at `path`; both calls block."""

    def __init__(self, files: IFiles, path: str) -> None:
        self._files = files
        self._path = path

    def load(self) -> EpochTable:
        """The epochs on disk, none where there is no file. Raises `EpochFileError` where there is
        one that cannot be read: a log without its epochs could not be told from another one."""
        problems = []
        for path in (self._path, self._copy):
            try:
                table = decode_epochs(self._files.read(path))
            except FileNotFoundError:
                continue
            except (ValueError, TypeError) as error:
                problems.append(f"{path}: {error}")
                continue
            if table.entries:
                return table
        if problems:
            raise EpochFileError(
                f"the epoch file is damaged ({'; '.join(problems)}): restore it from a backup, or"
                " move the store away and start this broker empty"
            )
        return EpochTable()

    def save(self, table: EpochTable) -> None:
        """Replaces the file and keeps its former content beside it; durable when it returns."""
        if not table.entries:
            # Stock takes the copy where the file has no epochs.
            for path in (self._copy, self._path):
                if self._files.exists(path):
                    self._files.remove(path)
                    self._files.sync_dir(path.rpartition("/")[0] or ".")
            return
        with contextlib.suppress(FileNotFoundError):
            write_atomic(self._files, self._copy, self._files.read(self._path))
        write_atomic(self._files, self._path, encode_epochs(table))

    @property
    def _copy(self) -> str:
        return f"{self._path}.bak"


def _crc(data: bytes) -> int:
    return zlib.crc32(data) & 0x7FFFFFFF
