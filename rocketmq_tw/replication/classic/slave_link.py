"""The slave's end of one classic HA link."""

from __future__ import annotations

from rocketmq_tw.replication.classic.frames import REPORT, Transfer, TransferReader
from rocketmq_tw.replication.links.slave_link import SlaveLink


class ClassicSlaveLink(SlaveLink):
    """The first report says where the master is to start."""

    def __init__(
        self, log_end: int, *, now_ms: int, heartbeat_ms: int, housekeeping_ms: int
    ) -> None:
        super().__init__(
            log_end, now_ms=now_ms, heartbeat_ms=heartbeat_ms, housekeeping_ms=housekeeping_ms
        )
        self.reported = log_end
        self._transfers = TransferReader()

    def opening(self) -> bytes:
        """See `SlaveLink`."""
        return self._report()

    def receive(self, data: bytes, now_ms: int) -> list[Transfer]:
        """The log bytes to append, in order; see `SlaveLink`."""
        self._read(len(data), now_ms)
        appends = []
        for transfer in self._transfers.feed(data):
            self._expect(transfer.offset, len(transfer.data))
            if transfer.data:
                appends.append(transfer)
        return appends

    def _report(self) -> bytes:
        return REPORT.pack(self.reported)
