"""The master's end of one auto-switch link."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rocketmq_tw.replication.auto_switch.epochs import Covering, EpochTable
from rocketmq_tw.replication.auto_switch.frames import (
    EpochTransfer,
    MasterHandshake,
    SlaveHandshake,
    SlaveReader,
)
from rocketmq_tw.replication.auto_switch.whole_records import WholeRecords
from rocketmq_tw.replication.links.errors import LinkError
from rocketmq_tw.replication.links.master_link import MasterLink, ReadLog


class AutoSwitchMasterLink(MasterLink):
    """The slave names itself and is told the epochs; then the log streams out, each frame of one
    epoch. `slave` is None until it has said who it is."""

    def __init__(
        self,
        read_log: ReadLog,
        epochs: Callable[[], EpochTable],
        confirmed: Callable[[], int],
        **settings: Any,
    ) -> None:
        """`epochs` and `confirmed` tell what they are now."""
        super().__init__(read_log, **settings)
        self.slave: SlaveHandshake | None = None
        self._epochs = epochs
        self._confirmed = confirmed
        self._confirmed_sent = -1
        self._is_answer_due = False
        self._frames = SlaveReader()
        self._records = WholeRecords(read_log)

    def receive(self, data: bytes, log_start: int, log_end: int, now_ms: int) -> bool:
        """See `MasterLink`."""
        changed = False
        for frame in self._frames.feed(data):
            if isinstance(frame, SlaveHandshake):
                # Stock's slave repeats itself until it is answered.
                if self.next_offset >= 0 or self.slave not in (None, frame):
                    raise LinkError(f"the slave says {frame} in the midst of a transfer")
                self.slave = frame
                self._is_answer_due = True
                self._last_read = now_ms
            elif self.slave is None:
                raise LinkError("the slave reports before it says who it is")
            else:
                changed = self.take_report(frame.offset, log_start, log_end, now_ms) or changed
        return changed

    def next_transfer(self, log_end: int, now_ms: int) -> bytes | None:
        """See `MasterLink`; the first frame is the answer to the slave's handshake."""
        if not self._is_answer_due:
            return super().next_transfer(log_end, now_ms)
        self._is_answer_due = False
        frame = MasterHandshake(log_end, self._epochs()).encode()
        self._sent(len(frame), now_ms)
        return frame

    def heartbeat(self, now_ms: int) -> bytes | None:
        """See `MasterLink`; one is due as well where more is confirmed than the slave was told, or
        its consumers would wait for the next message."""
        if self.next_offset >= 0 and self._confirmed() > self._confirmed_sent:
            self._last_write = now_ms - self._heartbeat_ms
        return super().heartbeat(now_ms)

    def _frame(self, data: bytes) -> bytes:
        self._confirmed_sent = self._confirmed()
        entry = self._covering().entry
        return EpochTransfer(self.next_offset, data, entry, self._confirmed_sent).encode()

    def _next_bytes(self, size: int, log_end: int) -> bytes:
        """See `MasterLink`: of one epoch, and whole records where more of the log follows."""
        epoch_end = self._covering().end
        if epoch_end is not None:
            size = min(size, epoch_end - self.next_offset)
        data = self._read_log(self.next_offset, size)
        if self.next_offset + len(data) in (log_end, epoch_end):
            self._records.restart()
            return data
        return self._records.cut(self.next_offset, data)

    def _empty_start(self, log_start: int, log_end: int) -> int:
        if self.slave is not None and self.slave.from_last_file:
            return super()._empty_start(log_start, log_end)
        return log_start

    def _covering(self) -> Covering:
        covering = self._epochs().covering(self.next_offset)
        if covering is None:
            raise LinkError(f"no epoch has offset {self.next_offset}")
        return covering
