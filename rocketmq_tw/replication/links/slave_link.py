"""The slave's end of one link: a state without I/O, and what both protocols have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from rocketmq_tw.replication.links.errors import LinkError
from rocketmq_tw.replication.links.flow import FlowMeter


class SlaveLink(ABC):
    """Checks that what the master pushes continues the slave's log, and says what to report.

    Times are milliseconds; `log_end` is the end of the slave's own log when the link opens.
    """

    def __init__(
        self, log_end: int, *, now_ms: int, heartbeat_ms: int, housekeeping_ms: int
    ) -> None:
        self.flow = FlowMeter()
        self.last_read = now_ms
        self.last_write = now_ms
        #: -1: nothing yet.
        self.reported = -1
        #: Whether the master has sent a frame of its log, so that this one continues it.
        self.proven = False
        self._expected = log_end
        self._heartbeat_ms = heartbeat_ms
        self._housekeeping_ms = housekeeping_ms

    @abstractmethod
    def opening(self) -> bytes:
        """What the slave says first."""

    @abstractmethod
    def receive(self, data: bytes, now_ms: int) -> Sequence[Any]:
        """The steps to carry out for what arrived, in order. Raises `LinkError` where the master
        says what no master of this log says."""

    def appended(self, log_end: int, now_ms: int) -> bytes | None:
        """The report that is due once the log ends at `log_end`; None where it said so before."""
        if log_end <= self.reported:
            return None
        self.reported = log_end
        self.last_write = now_ms
        return self._report()

    def heartbeat(self, now_ms: int) -> bytes | None:
        """A repeated report where none was sent for the heartbeat interval."""
        if self.reported < 0 or now_ms - self.last_write < self._heartbeat_ms:
            return None
        self.last_write = now_ms
        return self._report()

    def expired(self, now_ms: int) -> bool:
        """Whether the master has been silent for the housekeeping interval."""
        return now_ms - self.last_read > self._housekeeping_ms

    @abstractmethod
    def _report(self) -> bytes:
        """The frame that says `reported`."""

    def _read(self, count: int, now_ms: int) -> None:
        self.last_read = now_ms
        self.flow.add(count, now_ms)

    def _expect(self, offset: int, size: int) -> None:
        """Bytes for `offset` came. Raises `LinkError` where that is not the end of this log; only
        an empty log may start anywhere, at the file that the master starts with."""
        if offset != self._expected and self._expected != 0:
            raise LinkError(f"the master pushes offset {offset}, this log ends at {self._expected}")
        self.proven = True
        if size:
            self._expected = offset + size
