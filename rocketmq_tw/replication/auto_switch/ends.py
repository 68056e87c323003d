"""The two ends of one auto-switch link: states without I/O (docs/formats/auto-switch-ha.md)."""

from __future__ import annotations

from collections.abc import Callable

from rocketmq_tw.message.layout import BLANK_MAGIC, MAGIC_V1, MAGIC_V2, SIZE_AND_MAGIC
from rocketmq_tw.replication.auto_switch.epochs import Covering, EpochTable
from rocketmq_tw.replication.auto_switch.frames import (
    MAX_BODY,
    EpochTransfer,
    MasterHandshake,
    MasterReader,
    SlaveHandshake,
    SlaveReader,
    SlaveReport,
)
from rocketmq_tw.replication.links.ends import LinkError, MasterLink, ReadLog, SlaveLink
from rocketmq_tw.replication.links.settings import HASettings

_MAGICS = frozenset({MAGIC_V1, MAGIC_V2, BLANK_MAGIC})


class WholeRecords:
    """Cuts a log's bytes, read in order, behind their last whole record; a record that no
    frame has room for goes in pieces, as do bytes that are no records."""

    def __init__(self, read_log: ReadLog) -> None:
        self._read_log = read_log
        #: Bytes that are left of a record that is sent in pieces.
        self._rest = 0

    def restart(self) -> None:
        """Notes that the next bytes start a record."""
        self._rest = 0

    def cut(self, offset: int, data: bytes) -> bytes:
        """Returns `data`, which stands at `offset`, up to the end of its last whole record; more
        than that where its first one is not whole."""
        if self._rest:
            piece = data[: self._rest]
            self._rest -= len(piece)
            return piece
        end = size = 0
        while (size := _size_at(data, end)) and end + size <= len(data):
            end += size
        if end or not size:
            return data[:end] if end else data
        if size <= MAX_BODY:
            whole = self._read_log(offset, size)
            if len(whole) == size:
                return whole
        self._rest = size - len(data)
        return data


def _size_at(data: bytes, position: int) -> int:
    """Returns the size of the record that starts there; 0 where none does."""
    if len(data) - position < SIZE_AND_MAGIC.size:
        return 0
    size, magic = SIZE_AND_MAGIC.unpack_from(data, position)
    return size if magic in _MAGICS and size >= SIZE_AND_MAGIC.size else 0


class AutoSwitchMasterLink(MasterLink):
    """The slave names itself and is told the epochs; then the log streams out, each frame of one
    epoch. `slave` is None until it has said who it is."""

    def __init__(
        self,
        read_log: ReadLog,
        epochs: Callable[[], EpochTable],
        confirmed: Callable[[], int],
        settings: HASettings,
        now_ms: int,
    ) -> None:
        """`epochs` and `confirmed` tell what they are now."""
        super().__init__(read_log, settings, now_ms)
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
                self.last_read = now_ms
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


class AutoSwitchSlaveLink(SlaveLink):
    """Says who it is, hands the master's answer out, and reports once the log agrees with that."""

    def __init__(
        self, log_end: int, handshake: SlaveHandshake, settings: HASettings, now_ms: int
    ) -> None:
        super().__init__(log_end, settings, now_ms)
        self._handshake = handshake
        self._is_answered = False
        self._frames = MasterReader()

    def opening(self) -> bytes:
        """See `SlaveLink`."""
        return self._handshake.encode()

    def receive(self, data: bytes, now_ms: int) -> list[MasterHandshake | EpochTransfer]:
        """Returns the master's answer to carry out, or what it transfers; see `SlaveLink`."""
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
