"""The frames of classic HA, sans I/O (docs/formats/ha.md).

Slave to master: 8 bytes, the offset up to which the slave has the log. Master to slave: 8 bytes of
log offset, 4 bytes of size and that many bytes of the log as they are; size 0 is a heartbeat. All
big-endian.
"""

from struct import Struct
from typing import NamedTuple

from rocketmq_tw.replication.links.errors import LinkError

REPORT = Struct(">q")
TRANSFER_HEADER = Struct(">qi")

#: Stock's slave reads through a buffer of 4 MiB, so no master sends a larger frame.
MAX_TRANSFER = 4 * 1024 * 1024 - TRANSFER_HEADER.size


class Transfer(NamedTuple):
    """Log bytes that start at `offset`; none of them: a heartbeat."""

    offset: int
    data: bytes


class ReportReader:
    """Cuts a slave's stream into reports."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> int | None:
        """The newest whole report in `data`; None where none is complete."""
        data = self._rest + data
        whole = len(data) - len(data) % REPORT.size
        self._rest = data[whole:]
        if not whole:
            return None
        (offset,) = REPORT.unpack_from(data, whole - REPORT.size)
        return int(offset)


class TransferReader:
    """Cuts a master's stream into transfers; holds one incomplete frame at most."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Transfer]:
        """The transfers that `data` completes. Raises `LinkError` at an impossible size."""
        self._buffer += data
        transfers = []
        position = 0
        while len(self._buffer) - position >= TRANSFER_HEADER.size:
            offset, size = TRANSFER_HEADER.unpack_from(self._buffer, position)
            if not 0 <= size <= MAX_TRANSFER or offset < 0:
                raise LinkError(f"the master announced {size} bytes at offset {offset}")
            start = position + TRANSFER_HEADER.size
            if len(self._buffer) < start + size:
                break
            transfers.append(Transfer(offset, bytes(self._buffer[start : start + size])))
            position = start + size
        del self._buffer[:position]
        return transfers
