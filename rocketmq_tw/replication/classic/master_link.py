"""The master's end of one classic HA link."""

from __future__ import annotations

from typing import Any

from rocketmq_tw.replication.classic.frames import TRANSFER_HEADER, ReportReader
from rocketmq_tw.replication.links.master_link import MasterLink, ReadLog


class ClassicMasterLink(MasterLink):
    """An empty slave starts at the beginning of the log's last file, as stock has it."""

    def __init__(self, read_log: ReadLog, **settings: Any) -> None:
        super().__init__(read_log, **settings)
        self._reports = ReportReader()

    def receive(self, data: bytes, log_start: int, log_end: int, now_ms: int) -> bool:
        """See `MasterLink`."""
        offset = self._reports.feed(data)
        return offset is not None and self.take_report(offset, log_start, log_end, now_ms)

    def _frame(self, data: bytes) -> bytes:
        return TRANSFER_HEADER.pack(self.next_offset, len(data)) + data
