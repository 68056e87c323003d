"""How far each delay level is delivered: `config/delayOffset.json` in stock's form."""

from __future__ import annotations

from collections.abc import Callable

from rocketmq_tw.broker.tables.versioned import TableFile
from rocketmq_tw.broker.tables.write_behind import WriteBehindTable
from rocketmq_tw.wire.bodies.base import DataVersion, decode_body, encode_body
from rocketmq_tw.wire.bodies.queues import DelayOffsetTable


class DelayOffsets(WriteBehindTable):
    """Level → offset, in the level's queue, of the next message to deliver."""

    def __init__(self, file: TableFile, now_ms: Callable[[], int]) -> None:
        super().__init__(file.write)
        self._file = file
        self._now_ms = now_ms
        self._offsets: dict[int, int] = {}
        #: Where the master's log ended before it told the offsets that were followed last; None
        #: where they are not a master's.
        self.followed_at: int | None = None
        self.data_version = DataVersion(timestamp=now_ms())

    def load(self) -> None:
        """Reads the file; raises what the file's reading raises where it is damaged."""
        table = self._file.read(lambda data: decode_body(DelayOffsetTable, data))
        if table is not None:
            self._offsets = dict(table.offset_table)
            self.data_version = table.data_version or self.data_version

    def get(self, level: int) -> int:
        return self._offsets.get(level, 0)

    def set(self, level: int, offset: int) -> None:
        if self.get(level) != offset:
            self._offsets[level] = offset
            self._dirty = True

    def table(self) -> DelayOffsetTable:
        """What the file and request 45 carry."""
        return DelayOffsetTable(offset_table=dict(self._offsets), data_version=self.data_version)

    def follow(self, table: DelayOffsetTable, log_end: int) -> None:
        """Takes over what a master has, whose log ended at `log_end` before; smaller offsets too:
        what it has not delivered may be nowhere else."""
        self.followed_at = log_end
        for level, offset in table.offset_table.items():
            self.set(level, offset)

    def log_is_cut(self, log_end: int) -> None:
        """What stood behind `log_end` is gone, and these stand for nothing of it any more."""
        if self.followed_at is not None:
            self.followed_at = min(self.followed_at, log_end)

    def _encoder(self) -> Callable[[], bytes]:
        self.data_version = self.data_version.next(self._now_ms())
        data = encode_body(self.table())
        return lambda: data
