"""The epoch file: stock's `epochFileCheckpoint` (docs/formats/auto-switch-ha.md).

Text lines: the number of epochs, the CRC-32 of the lines behind it (31 bits), then `epoch-start`
for each epoch. The content before the last change is in a `.bak` beside it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from rocketmq_tw.files.atomic import settle, write_atomic
from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.replication.auto_switch.epochs import EpochEntry, EpochTable
from rocketmq_tw.runtime.fairness import Serial
from rocketmq_tw.runtime.threads import InThread

#: More than a file with this size is none: stock's master sends a thousand epochs at most.
_MAX_SIZE = 1 << 20


class EpochFileError(Exception):
    """The file cannot be read, nor its copy; the text says what to do."""


def encode_epochs(table: EpochTable) -> bytes:
    """Returns the whole content of the file."""
    lines = "".join(f"{entry.epoch}-{entry.start}\n" for entry in table.entries).encode()
    return f"{len(table.entries)}\n{_crc(lines)}\n".encode() + lines


def decode_epochs(data: bytes) -> EpochTable:
    """Returns the epochs of a file's content; a CRC of 0 is not checked. Raises `ValueError` where
    it is damaged."""
    size, crc, *lines = data[:_MAX_SIZE].decode("ascii").splitlines()
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
        """Returns the epochs on disk, which no power loss takes any more; none where there is no
        file. Raises `EpochFileError` where there is one that cannot be read: a log without its
        epochs could not be told from another one."""
        settle(self._files, self._path)
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
        write_atomic(self._files, self._path, encode_epochs(table), former=self._copy)

    @property
    def _copy(self) -> str:
        return f"{self._path}.bak"


class KeptEpochs:
    """`table` is durable at any time; each change fires once it is, one after the other."""

    def __init__(self, file: EpochFile, in_thread: InThread) -> None:
        self.table = EpochTable()
        self._file = file
        self._in_thread = in_thread
        self._changes = Serial()

    def load(self, log_end: int) -> Deferred[None]:
        """Reads the file; what it says of bytes that a crash took from the log is forgotten. Fails
        with `EpochFileError`."""

        def change(_: EpochTable) -> EpochTable:
            table = self._file.load()
            table.truncate_suffix_by_offset(log_end + 1)
            return table

        return self._in_thread(lambda: change(self.table)).addCallback(self._take)

    def begin(self, epoch: int, log_end: int, log_start: int) -> Deferred[None]:
        """See `EpochTable.begin`."""
        return self._change(lambda table: table.begin(epoch, log_end, log_start))

    def learn(self, entry: EpochEntry) -> Deferred[None]:
        """See `EpochTable.learn`."""
        return self._change(lambda table: table.learn(entry))

    def adopt(self, master: EpochTable, point: int) -> Deferred[None]:
        """See `EpochTable.adopt`."""
        return self._change(lambda table: table.adopt(master, point))

    def restart(self, master: EpochTable) -> Deferred[None]:
        """See `EpochTable.restart`."""
        return self._change(lambda table: table.restart(master))

    def cut(self, offset: int) -> Deferred[None]:
        """See `EpochTable.truncate_suffix_by_offset`."""
        return self._change(lambda table: table.truncate_suffix_by_offset(offset))

    def forget(self, log_start: int) -> Deferred[None]:
        """Forgets the epochs in front of `log_start`, since the log has lost its oldest files;
        fires once that is written."""
        return self._change(lambda table: table.truncate_prefix_by_offset(log_start - 1))

    def _change(self, change: Callable[[EpochTable], object]) -> Deferred[None]:
        return self._changes.run(self._write_changed, change)

    @inlineCallbacks
    def _write_changed(self, change: Callable[[EpochTable], object]) -> Generator[Any, Any, None]:
        table = EpochTable(self.table.entries)
        change(table)
        if table.entries != self.table.entries:
            yield self._in_thread(lambda: self._file.save(table))
            self.table = table

    def _take(self, table: EpochTable) -> None:
        self.table = table


def _crc(data: bytes) -> int:
    return zlib.crc32(data) & 0x7FFFFFFF
