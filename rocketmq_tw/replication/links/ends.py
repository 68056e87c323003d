"""The two ends of one link between a master and a slave: states without I/O, and what both HA
protocols have in common.

The slave's first report says where the stream starts; after it the master pushes log bytes as they
come, and every later report is an acknowledgement. Times are milliseconds of any clock that is
never set.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from rocketmq_tw.replication.links.settings import HASettings

#: Stock reports within its interval of 5 s; who never does takes the place of a slave.
FIRST_REPORT_MS = 10_000
#: (offset, size) -> log bytes, never past the end of a log file.
ReadLog = Callable[[int, int], bytes]


class LinkError(Exception):
    """The other end broke the protocol or left the log's line; the link must be closed."""


class FlowMeter:
    """Counts the bytes of a link second by second; `limit` bytes a second at most, None: any."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._second = 0
        self._current = 0
        self._last = 0

    def add(self, count: int, now_ms: int) -> None:
        """Takes note of `count` bytes moved now."""
        self._roll(now_ms)
        self._current += count

    def allowance(self, now_ms: int) -> int | None:
        """Bytes that may still be moved in this second; None where there is no limit."""
        if self._limit is None:
            return None
        self._roll(now_ms)
        return max(self._limit - self._current, 0)

    def bytes_per_second(self, now_ms: int) -> int:
        """Returns the bytes moved in the last whole second."""
        self._roll(now_ms)
        return self._last

    def _roll(self, now_ms: int) -> None:
        second = now_ms // 1000
        if second != self._second:
            self._last = self._current if second == self._second + 1 else 0
            self._current = 0
            self._second = second


class MasterLink(ABC):
    """Keeps what one slave has, what it gets next, and when the link is dead.

    `acknowledged` is the log offset up to which the slave has reported the log, `next_offset` that
    of the next frame; both are -1 before the slave's first report.
    """

    def __init__(self, read_log: ReadLog, settings: HASettings, now_ms: int) -> None:
        self.acknowledged = -1
        self.next_offset = -1
        #: Whether the slave counts as a replica, and whether it does for good: it is registered.
        self.counts = False
        self.is_registered = False
        self.flow = FlowMeter(settings.bytes_per_second)
        self._read_log = read_log
        self._file_size = settings.file_size
        self._batch_size = settings.batch_size
        self._heartbeat_ms = settings.heartbeat_ms
        self._housekeeping_ms = settings.housekeeping_ms
        self.last_read = now_ms
        self._last_write = now_ms

    @abstractmethod
    def receive(self, data: bytes, log_start: int, log_end: int, now_ms: int) -> bool:
        """Takes bytes of the slave; True where its acknowledged offset is new. Raises `LinkError`
        for what no slave of this log says."""

    def take_report(self, offset: int, log_start: int, log_end: int, now_ms: int) -> bool:
        """Takes a report; True where its offset is new.

        Raises `LinkError` for one outside of `log_start`..`log_end`: that slave's log is not ours.
        """
        self.last_read = now_ms
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
        """Returns the next frame of log bytes; None where there is nothing to send or no
        allowance."""
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
        """Returns an empty frame where nothing was sent for the heartbeat interval."""
        if self.next_offset < 0 or now_ms - self._last_write < self._heartbeat_ms:
            return None
        frame = self._frame(b"")
        self._sent(len(frame), now_ms)
        return frame

    def expired(self, now_ms: int) -> bool:
        """Returns whether no whole report came for the housekeeping interval, or no first one
        soon."""
        patience = self._housekeeping_ms
        if self.next_offset < 0:
            patience = min(patience, FIRST_REPORT_MS)
        return now_ms - self.last_read > patience

    @abstractmethod
    def _frame(self, data: bytes) -> bytes:
        """Returns the frame that carries log bytes of `next_offset`; none of them: a heartbeat."""

    def _empty_start(self, log_start: int, log_end: int) -> int:
        """Returns where a slave without a log starts: the beginning of a log file."""
        return max(log_end - log_end % self._file_size, log_start)

    def _next_bytes(self, size: int, log_end: int) -> bytes:
        """Returns what the next frame carries: some `size` bytes from `next_offset`."""
        return self._read_log(self.next_offset, size)

    def _sent(self, count: int, now_ms: int) -> None:
        self._last_write = now_ms
        self.flow.add(count, now_ms)


class SlaveLink(ABC):
    """Checks that what the master pushes continues the slave's log, and says what to report.

    `log_end` is the end of the slave's own log when the link opens.
    """

    def __init__(self, log_end: int, settings: HASettings, now_ms: int) -> None:
        self.flow = FlowMeter()
        self.last_read = now_ms
        self.last_write = now_ms
        #: -1: nothing yet.
        self.reported = -1
        #: Whether the master has sent a frame of its log, so that this one continues it.
        self.proven = False
        self._expected = log_end
        self._file_size = settings.file_size
        self._heartbeat_ms = settings.heartbeat_ms
        self._housekeeping_ms = settings.housekeeping_ms

    @abstractmethod
    def opening(self) -> bytes:
        """Returns the bytes that the slave sends first."""

    @abstractmethod
    def receive(self, data: bytes, now_ms: int) -> Sequence[Any]:
        """Returns the steps to carry out for what arrived, in order. Raises `LinkError` where the
        master says what no master of this log says."""

    def appended(self, log_end: int, now_ms: int) -> bytes | None:
        """Returns the report that is due once the log ends at `log_end`; None where it said so
        before."""
        if log_end <= self.reported:
            return None
        self.reported = log_end
        self.last_write = now_ms
        return self._report()

    def heartbeat(self, now_ms: int) -> bytes | None:
        """Returns a repeated report where none was sent for the heartbeat interval."""
        if self.reported < 0 or now_ms - self.last_write < self._heartbeat_ms:
            return None
        self.last_write = now_ms
        return self._report()

    def expired(self, now_ms: int) -> bool:
        """Returns whether the master has been silent for the housekeeping interval."""
        return now_ms - self.last_read > self._housekeeping_ms

    @abstractmethod
    def _report(self) -> bytes:
        """Makes the frame that reports `reported`."""

    def _read(self, count: int, now_ms: int) -> None:
        self.last_read = now_ms
        self.flow.add(count, now_ms)

    def _expect(self, offset: int, size: int) -> None:
        """Bytes for `offset` came. Raises `LinkError` where that is not the end of this log; an
        empty log may start at any file, the one that the master starts with."""
        if self._expected == 0:
            if offset % self._file_size:
                raise LinkError(
                    f"the master pushes offset {offset}, inside a file, to an empty log"
                )
        elif offset != self._expected:
            raise LinkError(f"the master pushes offset {offset}, this log ends at {self._expected}")
        self.proven = True
        if size:
            self._expected = offset + size
