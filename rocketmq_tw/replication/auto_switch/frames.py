"""The frames of auto-switch HA, sans I/O (docs/formats/auto-switch-ha.md).

Each begins with the sender's state: HANDSHAKE while epochs are compared, TRANSFER from then on. All
numbers are big-endian and signed.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from rocketmq_tw.replication.auto_switch.epochs import EpochEntry, EpochError, EpochTable
from rocketmq_tw.replication.links.ends import LinkError

#: States of a link by stock's numbers; no other one is on the wire.
HANDSHAKE = 1
TRANSFER = 2

STATE = Struct(">i")
#: State, from the last file, learner, broker id.
SLAVE_HANDSHAKE = Struct(">ihhq")
#: State, the offset up to which the slave has the log.
SLAVE_REPORT = Struct(">iq")
#: State, size of the body, end of the log, last epoch.
MASTER_HANDSHAKE = Struct(">iiqi")
#: State, size of the body, its offset, its epoch, where that starts, confirmed offset.
MASTER_TRANSFER = Struct(">iiqiqq")
#: Epoch, start.
EPOCH_ENTRY = Struct(">iq")

#: Stock's slave reads through a buffer of 4 MiB, so no master sends a larger frame.
MAX_BODY = 4 * 1024 * 1024 - MASTER_TRANSFER.size
#: What fits into the buffer in which stock's master makes its handshake.
MAX_EPOCHS = 1000


class SlaveHandshake(NamedTuple):
    """A slave's first frame. `from_last_file`: an empty slave starts with the master's last file
    rather than the first; `is_learner`: it never counts as in sync
    (docs/formats/auto-switch-ha.md)."""

    broker_id: int
    from_last_file: bool = False
    is_learner: bool = False

    def encode(self) -> bytes:
        """Returns the frame's bytes."""
        return SLAVE_HANDSHAKE.pack(HANDSHAKE, self.from_last_file, self.is_learner, self.broker_id)


class SlaveReport(NamedTuple):
    """Says that the slave has the master's log up to `offset`."""

    offset: int

    def encode(self) -> bytes:
        """Returns the frame's bytes."""
        return SLAVE_REPORT.pack(TRANSFER, self.offset)


class MasterHandshake(NamedTuple):
    """The master's epochs, and where its log ends."""

    end: int
    epochs: EpochTable

    def encode(self) -> bytes:
        """Returns the frame's bytes; of very many epochs only the newest are told."""
        entries = self.epochs.entries[-MAX_EPOCHS:]
        body = b"".join(EPOCH_ENTRY.pack(*entry) for entry in entries)
        last = entries[-1].epoch if entries else -1
        return MASTER_HANDSHAKE.pack(HANDSHAKE, len(body), self.end, last) + body


class EpochTransfer(NamedTuple):
    """Log bytes of one epoch that start at `offset`; without bytes a heartbeat. All replicas in
    sync have the log up to `confirmed`."""

    offset: int
    data: bytes
    epoch: EpochEntry
    confirmed: int

    @property
    def end(self) -> int:
        """The offset behind the bytes."""
        return self.offset + len(self.data)

    def encode(self) -> bytes:
        """Returns the frame's bytes."""
        header = MASTER_TRANSFER.pack(
            TRANSFER, len(self.data), self.offset, *self.epoch, self.confirmed
        )
        return header + self.data


class SlaveReader:
    """Cuts a slave's stream into frames; holds one incomplete frame at most."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[SlaveHandshake | SlaveReport]:
        """Returns the frames that `data` completes. Raises `LinkError` at an impossible state."""
        data = self._rest + data
        frames: list[SlaveHandshake | SlaveReport] = []
        position = 0
        while len(data) - position >= STATE.size:
            (state,) = STATE.unpack_from(data, position)
            size = {HANDSHAKE: SLAVE_HANDSHAKE.size, TRANSFER: SLAVE_REPORT.size}.get(state)
            if size is None:
                raise LinkError(f"the slave sent a frame of state {state}")
            if len(data) - position < size:
                break
            if state == HANDSHAKE:
                _, last_file, learner, broker_id = SLAVE_HANDSHAKE.unpack_from(data, position)
                frames.append(SlaveHandshake(broker_id, last_file == 1, learner == 1))
            else:
                frames.append(SlaveReport(SLAVE_REPORT.unpack_from(data, position)[1]))
            position += size
        self._rest = data[position:]
        return frames


class MasterReader:
    """Cuts a master's stream into frames; holds one incomplete frame at most."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[MasterHandshake | EpochTransfer]:
        """Returns the frames that `data` completes. Raises `LinkError` at an impossible state or
        size, or at epochs that do not grow."""
        self._buffer += data
        frames: list[MasterHandshake | EpochTransfer] = []
        position = 0
        while True:
            found = self._frame(position)
            if found is None:
                break
            frame, position = found
            frames.append(frame)
        del self._buffer[:position]
        return frames

    def _frame(self, position: int) -> tuple[MasterHandshake | EpochTransfer, int] | None:
        """Returns the frame that starts at `position` of the buffer, and where it ends."""
        buffer = self._buffer
        if len(buffer) - position < MASTER_HANDSHAKE.size:
            return None
        state, size, offset, number = MASTER_HANDSHAKE.unpack_from(buffer, position)
        if state not in (HANDSHAKE, TRANSFER) or not 0 <= size <= MAX_BODY:
            raise LinkError(f"the master sent a frame of state {state} with {size} bytes")
        header = MASTER_HANDSHAKE if state == HANDSHAKE else MASTER_TRANSFER
        start, end = position + header.size, position + header.size + size
        if len(buffer) < end:
            return None
        body = bytes(buffer[start:end])
        if state == HANDSHAKE:
            return _handshake(offset, body), end
        epoch_start, confirmed = MASTER_TRANSFER.unpack_from(buffer, position)[4:]
        if size and (offset < 0 or epoch_start < 0):
            raise LinkError(f"the master sent offset {offset} of an epoch from {epoch_start} on")
        return EpochTransfer(offset, body, EpochEntry(number, epoch_start), confirmed), end


def _handshake(end: int, body: bytes) -> MasterHandshake:
    if len(body) % EPOCH_ENTRY.size or end < 0:
        raise LinkError(f"the master's handshake has {len(body)} bytes and a log up to {end}")
    try:
        table = EpochTable(EpochEntry(*pair) for pair in EPOCH_ENTRY.iter_unpack(body))
    except EpochError as error:
        raise LinkError(f"the master's handshake: {error}") from error
    return MasterHandshake(end, table)
