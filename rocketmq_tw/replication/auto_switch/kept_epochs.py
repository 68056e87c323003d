"""The epochs of this broker's log: in memory what is in the file."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from twisted.internet.defer import Deferred, DeferredLock, inlineCallbacks

from rocketmq_tw.replication.auto_switch.epoch_file import EpochFile
from rocketmq_tw.replication.auto_switch.epochs import EpochEntry, EpochTable

#: Runs what blocks; fires with what it returns.
InThread = Callable[[Callable[[], Any]], Deferred[Any]]


class KeptEpochs:
    """`table` is durable at any time; each change fires once it is, one after the other."""

    def __init__(self, file: EpochFile, in_thread: InThread) -> None:
        self.table = EpochTable()
        self._file = file
        self._in_thread = in_thread
        self._changing = DeferredLock()

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
        """The log has lost its oldest files and starts at `log_start`."""
        return self._change(lambda table: table.truncate_prefix_by_offset(log_start - 1))

    @inlineCallbacks
    def _change(self, change: Callable[[EpochTable], object]) -> Generator[Any, Any, None]:
        yield self._changing.acquire()
        try:
            table = EpochTable(self.table.entries)
            change(table)
            if table.entries != self.table.entries:
                yield self._in_thread(lambda: self._file.save(table))
                self.table = table
        finally:
            self._changing.release()

    def _take(self, table: EpochTable) -> None:
        self.table = table
