"""The master's end of one link: a state without I/O, and what both protocols have in common.

The slave's first report says where the stream starts; after it the master pushes log bytes as they
come and every later report is an acknowledgement.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from rocketmq_tw.replication.links.errors import LinkError
from rocketmq_tw.replication.links.flow import FlowMeter

#: Stock reports within its interval of 5 s; who never does takes the place of a slave.
FIRST_REPORT_MS = 10_000
#: (offset, size) -> log bytes, never past the end of a log file.
ReadLog = Callable[[int, int], bytes]


class MasterLink(ABC):
    """What one slave has, what it gets next, and when the link is dead.

    Times are milliseconds. `acknowledged` is -1 until the slave reported; `next_offset` likewise
    until the stream has a start.
    """

    def __init__(
        self,
        read_log: ReadLog,
        *,
        now_ms: int,
        file_size: int,
        batch_size: int,
        heartbeat_ms: int,
        housekeeping_ms: int,
        bytes_per_second: int | None = None,
    ) -> None:
        self.acknowledged = -1
        self.next_offset = -1
        self.flow = FlowMeter(bytes_per_second)
        self._read_log = read_log
        self._file_size = file_size
        self._batch_size = batch_size
        self._heartbeat_ms = heartbeat_ms
        self._housekeeping_ms = housekeeping_ms
        self._last_read = now_ms
        self._last_write = now_ms

    @abstractmethod
    def receive(self, data: bytes, log_start: int, log_end: int, now_ms: int) -> bool:
        """Takes bytes of the slave; True where its acknowledged offset is new. Raises `LinkError`
        for what no slave of this log says."""

    def take_report(self, offset: int, log_start: int, log_end: int, now_ms: int) -> bool:
        """Takes a report; True where its offset is new.

        Raises `LinkError` for one outside of `log_start`..`log_end`: that slave's log is not ours.
        """
        self._last_read = now_ms
        if offset < 0 or offset > log_end:
            raise LinkError(f"the slave reports offset {offset}, the log ends at {log_end}")
        if self.next_offset < 0:
            # A heartbeat is due, so that the slave knows soon that it was accepted.
            self._last_write = now_ms - self._heartbeat_ms
            if offset == 0:
                self.next_offset = self._empty_start(log_start, log_end)
            elif offset < log_start:
                raise LinkError(
                    f"the slave asks for offset {offset}, the log starts at {log_start}: empty"
                    " the slave's store to let it start anew"
                )
            else:
                self.next_offset = offset
        elif offset > self.next_offset:
            raise LinkError(f"the slave reports offset {offset}, {self.next_offset} was sent")
        elif offset < self.acknowledged:
            raise LinkError(f"the slave reports offset {offset} after {self.acknowledged}")
        changed = offset != self.acknowledged
        self.acknowledged = offset
        return changed

    def next_transfer(self, log_end: int, now_ms: int) -> bytes | None:
        """The next frame of log bytes; None where there is nothing to send or no allowance."""
        size = log_end - self.next_offset
        if self.next_offset < 0 or size <= 0:
            return None
        size = min(size, self._batch_size)
        allowance = self.flow.allowance(now_ms)
        if allowance is not None:
            size = min(size, allowance)
        if size <= 0:
            return None
        data = self._next_bytes(size, log_end)
        if not data:
            return None
        frame = self._frame(data)
        self.next_offset += len(data)
        self._sent(len(frame), now_ms)
        return frame

    def heartbeat(self, now_ms: int) -> bytes | None:
        """An empty frame where nothing was sent for the heartbeat interval."""
        if self.next_offset < 0 or now_ms - self._last_write < self._heartbeat_ms:
            return None
        frame = self._frame(b"")
        self._sent(len(frame), now_ms)
        return frame

    def expired(self, now_ms: int) -> bool:
        """Whether no whole report came for the housekeeping interval, or no first one soon."""
        patience = self._housekeeping_ms
        if self.next_offset < 0:
            patience = min(patience, FIRST_REPORT_MS)
        return now_ms - self._last_read > patience

    @abstractmethod
    def _frame(self, data: bytes) -> bytes:
        """The frame that carries log bytes of `next_offset`; none of them: a heartbeat."""

    def _empty_start(self, log_start: int, log_end: int) -> int:
        """Where a slave without a log starts: the beginning of a log file."""
        return max(log_end - log_end % self._file_size, log_start)

    def _next_bytes(self, size: int, log_end: int) -> bytes:
        """What the next frame carries: some `size` bytes from `next_offset`."""
        return self._read_log(self.next_offset, size)

    def _sent(self, count: int, now_ms: int) -> None:
        self._last_write = now_ms
        self.flow.add(count, now_ms)
