"""The `checkpoint` file: up to when the store's parts are on stable storage.

Stock's five longs, then fields of our own behind them, where stock reads and writes nothing
(docs/formats/checkpoint.md). Ours hold only as long as stock's five are those they were written
with: a stock broker that used the store since then has changed them.
"""

from __future__ import annotations

import struct
import zlib

from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.structs import msgspec

FILE_SIZE = 4096
_STOCK = struct.Struct(">qqqqq")
#: Magic, safe offset, queues, their units, index begin and entries, index end, CRC-32 of these and
#: of stock's longs.
_OURS = struct.Struct(">IqqqqqqI")
_OURS_AT = 64
_MAGIC = 0x726D7175
#: In place of `units`, more than queues can have: nothing of them is synced.
NOTHING_OF_QUEUES = 1 << 62
#: Safe offsets that are none: it is not known what is safe, or nothing is, and the log has no file,
#: or is about to lose its empty one to begin elsewhere.
UNKNOWN, BETWEEN_LOGS = -1, -2


class Checkpoint(msgspec.Struct, kw_only=True):
    """Timestamps are the store times of the last message that is safe in log, queues and index."""

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0
    #: A record starts (or the log ends) here, and log, queues and index in front of it are
    #: synced; `UNKNOWN` or `BETWEEN_LOGS` where there is none.
    safe_offset: int = UNKNOWN
    #: Queues, and the sum of their max offsets, when `safe_offset` was taken.
    queues: int = 0
    units: int = 0
    #: An index file's first log offset and a count: in front of them slots and entries are synced.
    index_begin: int = -1
    index_entries: int = 1
    #: Log offset of the last message with a key then; -1 without one.
    index_end: int = -1

    @property
    def index_mark(self) -> tuple[int, int]:
        """The two about the index, see `MessageIndex.mark`."""
        return self.index_begin, self.index_entries

    @property
    def is_of_log_alone(self) -> bool:
        """Whether nothing of the queues is safe, though the log is."""
        return self.units == NOTHING_OF_QUEUES

    @property
    def is_between_logs(self) -> bool:
        """Whether the log may have no file though it had some."""
        return self.safe_offset == BETWEEN_LOGS

    @property
    def min_timestamp(self) -> int:
        """Messages stored at or before this time are safe in log and queues: stock's rule."""
        return max(min(self.physic_msg_timestamp, self.logics_msg_timestamp) - 3000, 0)


def decode_checkpoint(data: bytes) -> Checkpoint:
    """Returns a file's content; what is damaged or too short counts as nothing safe."""
    if len(data) < _STOCK.size:
        return Checkpoint()
    values = _STOCK.unpack_from(data)
    if min(values[:3]) < 0:
        return Checkpoint()
    checkpoint = Checkpoint(
        physic_msg_timestamp=values[0],
        logics_msg_timestamp=values[1],
        index_msg_timestamp=values[2],
        master_flushed_offset=values[3],
        confirm_phy_offset=values[4],
    )
    if len(data) >= _OURS_AT + _OURS.size:
        magic, *ours, crc = _OURS.unpack_from(data, _OURS_AT)
        if magic == _MAGIC and crc == _crc(data[: _STOCK.size], data[_OURS_AT:]):
            (
                checkpoint.safe_offset,
                checkpoint.queues,
                checkpoint.units,
                checkpoint.index_begin,
                checkpoint.index_entries,
                checkpoint.index_end,
            ) = ours
    return checkpoint


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Returns the file's whole content."""
    stock = _STOCK.pack(
        checkpoint.physic_msg_timestamp,
        checkpoint.logics_msg_timestamp,
        checkpoint.index_msg_timestamp,
        checkpoint.master_flushed_offset,
        checkpoint.confirm_phy_offset,
    )
    ours = _OURS.pack(
        _MAGIC,
        checkpoint.safe_offset,
        checkpoint.queues,
        checkpoint.units,
        checkpoint.index_begin,
        checkpoint.index_entries,
        checkpoint.index_end,
        0,
    )
    ours = ours[:-4] + _crc(stock, ours).to_bytes(4, "big")
    return (stock + bytes(_OURS_AT - len(stock)) + ours).ljust(FILE_SIZE, b"\0")


def read_checkpoint(files: IFiles, path: str) -> Checkpoint:
    """Returns the checkpoint at `path`; an empty one where there is none."""
    try:
        return decode_checkpoint(files.read(path))
    except FileNotFoundError:
        return Checkpoint()


def write_checkpoint(files: IFiles, path: str, checkpoint: Checkpoint) -> None:
    """Writes and syncs; in place, as stock does, since a torn one only means more to recover."""
    file = files.open(path, create=True)
    try:
        file.pwrite(encode_checkpoint(checkpoint), 0)
        file.fsync()
    finally:
        file.close()
    # Each time: the write that made it may have failed in between.
    files.sync_dir(path.rpartition("/")[0])


def _crc(stock: bytes, ours: bytes) -> int:
    return zlib.crc32(ours[: _OURS.size - 4], zlib.crc32(stock))
