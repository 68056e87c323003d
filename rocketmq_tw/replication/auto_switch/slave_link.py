"""The slave's end of one auto-switch link."""

from __future__ import annotations

from rocketmq_tw.replication.auto_switch.frames import (
    EpochTransfer,
    MasterHandshake,
    MasterReader,
    SlaveHandshake,
    SlaveReport,
)
from rocketmq_tw.replication.links.errors import LinkError
from rocketmq_tw.replication.links.slave_link import SlaveLink


class AutoSwitchSlaveLink(SlaveLink):
    """Says who it is, hands the master's answer out, and reports once the log agrees with that."""

    def __init__(
        self,
        log_end: int,
        handshake: SlaveHandshake,
        *,
        now_ms: int,
        heartbeat_ms: int,
        housekeeping_ms: int,
    ) -> None:
        super().__init__(
            log_end, now_ms=now_ms, heartbeat_ms=heartbeat_ms, housekeeping_ms=housekeeping_ms
        )
        self._handshake = handshake
        self._is_answered = False
        self._frames = MasterReader()

    def opening(self) -> bytes:
        """See `SlaveLink`."""
        return self._handshake.encode()

    def receive(self, data: bytes, now_ms: int) -> list[MasterHandshake | EpochTransfer]:
        """The master's answer to carry out, or what it transfers; see `SlaveLink`."""
        self._read(len(data), now_ms)
        frames = self._frames.feed(data)
        for frame in frames:
            if isinstance(frame, MasterHandshake):
                if self._is_answered:
                    raise LinkError("the master tells its epochs in the midst of a transfer")
                self._is_answered = True
                continue
            if self.reported < 0:
                raise LinkError("the master transfers before it was told from where")
            # A stock master without messages beats at -1.
            if frame.data or frame.offset >= 0:
                self._expect(frame.offset, len(frame.data))
            # Stock's last bytes of an epoch come under the name of the next one.
            if frame.data and frame.offset < frame.epoch.start < frame.end:
                raise LinkError(f"the master pushes {frame.offset} to {frame.end} as one epoch")
        return frames

    def appended(self, log_end: int, now_ms: int) -> bytes | None:
        """See `SlaveLink`; the first time the log has been made to agree with the master's."""
        if self.reported < 0:
            self._expected = log_end
        return super().appended(log_end, now_ms)

    def _report(self) -> bytes:
        return SlaveReport(self.reported).encode()
