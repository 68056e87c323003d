"""The slave's end of one classic HA link: a state without I/O."""

from rocketmq_tw.replication.flow import FlowMeter
from rocketmq_tw.replication.frames import REPORT, LinkError, Transfer, TransferReader


class SlaveLink:
    """Checks that what the master pushes continues the slave's log, and says what to report.

    Times are milliseconds; `log_end` is the end of the slave's own log when the link opens.
    """

    def __init__(
        self, log_end: int, *, now_ms: int, heartbeat_ms: int, housekeeping_ms: int
    ) -> None:
        self.flow = FlowMeter()
        self.last_read = now_ms
        self.last_write = now_ms
        self.reported = log_end
        #: Whether the master has sent a frame, so that its log continues this one.
        self.proven = False
        self._expected = log_end
        self._heartbeat_ms = heartbeat_ms
        self._housekeeping_ms = housekeeping_ms
        self._transfers = TransferReader()

    def opening(self) -> bytes:
        """The first report: where the master is to start."""
        return REPORT.pack(self.reported)

    def receive(self, data: bytes, now_ms: int) -> list[Transfer]:
        """The log bytes to append, in order.

        Raises `LinkError` where an offset is not the end of this log; only an empty log may start
        anywhere, at the file that the master starts with.
        """
        self.last_read = now_ms
        self.flow.add(len(data), now_ms)
        appends = []
        for transfer in self._transfers.feed(data):
            if transfer.offset != self._expected and self._expected != 0:
                raise LinkError(
                    f"the master pushes offset {transfer.offset}, this log ends at {self._expected}"
                )
            self.proven = True
            if transfer.data:
                self._expected = transfer.offset + len(transfer.data)
                appends.append(transfer)
        return appends

    def appended(self, log_end: int, now_ms: int) -> bytes | None:
        """The report that is due once the log ends at `log_end`; None where it said so before."""
        if log_end <= self.reported:
            return None
        self.reported = log_end
        self.last_write = now_ms
        return REPORT.pack(log_end)

    def heartbeat(self, now_ms: int) -> bytes | None:
        """A repeated report where none was sent for the heartbeat interval."""
        if now_ms - self.last_write < self._heartbeat_ms:
            return None
        self.last_write = now_ms
        return REPORT.pack(self.reported)

    def expired(self, now_ms: int) -> bool:
        """Whether the master has been silent for the housekeeping interval."""
        return now_ms - self.last_read > self._housekeeping_ms
