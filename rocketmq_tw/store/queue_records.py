"""The records that the units of a queue lead to, read from the log, and how much of them one read
may take."""

from __future__ import annotations

from collections.abc import Sequence

from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.interpreter import IS_PYPY
from rocketmq_tw.message.record import are_sound, is_sound
from rocketmq_tw.store.interface import MOST_ANSWER_BYTES, ILog

_MIN_PULL_SIZE = 100
#: So much of the log's end is in memory on every machine: others may need the rest of it.
_FRESH_BYTES = 256 << 20
#: Bytes between two records that are worth reading to save a system call.
_GAP = 8192
#: Bytes of a read that goes across such a gap, unless one record alone has more: memory is dear on
#: PyPy, where each run of the collector looks at what is longer than 132 KiB.
_MOST_ACROSS = 64 * 1024


class ReadLimits:
    """How much one read may take, as stock counts it."""

    def __init__(
        self,
        config: MessageStoreConfig,
        max_count: int,
        max_bytes: int,
        in_memory_bytes: int,
        *,
        check_fresh: bool = True,
    ) -> None:
        """`check_fresh`: see `IMessageStore.read_queue`."""
        most_bytes = min(max(max_bytes, _MIN_PULL_SIZE), MOST_ANSWER_BYTES)
        #: Bytes and records while they are of the log's newest part, and of older ones.
        self.in_memory = (
            min(most_bytes, config.max_transfer_bytes_on_message_in_memory),
            min(max_count, config.max_transfer_count_on_message_in_memory),
        )
        self.on_disk = (
            min(most_bytes, config.max_transfer_bytes_on_message_in_disk),
            min(max_count, config.max_transfer_count_on_message_in_disk),
        )
        #: How much of the log's end counts as being in memory.
        self.in_memory_bytes = in_memory_bytes
        #: Bytes at the log's end in which a body that this process stored is not compared.
        self.fresh_bytes = 0 if check_fresh else min(in_memory_bytes, _FRESH_BYTES)

    @property
    def most_records(self) -> int:
        """How many records the read may take, wherever they are."""
        return max(self.in_memory[1], self.on_disk[1])

    def of_all(self, log_end: int, oldest: int, newest: int) -> tuple[int, int] | None:
        """Returns the bytes and records that hold for all records between two positions; None where
        others hold for some of them."""
        if log_end - oldest <= self.in_memory_bytes:
            return self.in_memory
        return self.on_disk if log_end - newest > self.in_memory_bytes else None


class QueueRecords:
    """Reads records from `log`, and with checkCRCOnRead looks whether they are what was stored:
    those that are not are given to nobody. Bodies that this process made, of the newest
    `fresh_bytes` of the log, are mostly in memory still, where no disk has spoilt them: their CRC,
    which is a tenth to two fifths of a read on PyPy, by machine, is not compared."""

    def __init__(self, config: MessageStoreConfig, log: ILog) -> None:
        self.log = log
        self._config = config

    def joined(
        self, positions: Sequence[int], sizes: Sequence[int], fresh_bytes: int
    ) -> bytes | None:
        """Returns the records, one behind the other; None where one of them is damaged."""
        log, check = self.log, self._config.check_crc_on_read
        parts: list[bytes | memoryview] = []
        for first, last in _runs(positions, sizes, log.file_size):
            start, wanted = positions[first], sizes[first : last + 1]
            size = positions[last] + sizes[last] - start
            data = log.read(size, start)
            at = positions[first : last + 1]
            if len(data) != size:
                return None
            check_body = self._may_be_spoilt(start, fresh_bytes)
            if check and not are_sound(data, start, at, wanted, check_body=check_body):
                return None
            if size == sum(wanted):
                # Nothing between them: one piece, without a copy for each record.
                parts.append(data)
            else:
                # PyPy joins bytes alone at once, and its views take longer than such copies.
                view = data if IS_PYPY else memoryview(data)
                parts += [
                    view[position - start : position - start + size]
                    for position, size in zip(at, wanted, strict=True)
                ]
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    def one(self, position: int, size: int, fresh_bytes: int) -> bytes | memoryview | None:
        """Returns one record; None where it is damaged."""
        record = self.log.read(size, position)
        if self._config.check_crc_on_read:
            check_body = self._may_be_spoilt(position, fresh_bytes)
            if not is_sound(record, position, check_body=check_body):
                return None
        return record

    def _may_be_spoilt(self, position: int, fresh_bytes: int) -> bool:
        """Returns whether a disk may have changed something from here on since it was made."""
        log = self.log
        return position < log.own_from or log.end_offset - position > fresh_bytes


def _runs(positions: Sequence[int], sizes: Sequence[int], file_size: int) -> list[tuple[int, int]]:
    """Records as few reads: indices of the first and the last of neighbours in one file."""
    runs = []
    first = 0
    end = start = positions[0]
    has_gap = False
    file_end = end - end % file_size + file_size
    for index, (position, size) in enumerate(zip(positions, sizes, strict=True)):
        has_gap = has_gap or position != end
        is_next = end <= position <= end + _GAP and position < file_end
        if not is_next or (has_gap and position + size > start + _MOST_ACROSS):
            runs.append((first, index - 1))
            first, start, has_gap = index, position, False
            file_end = position - position % file_size + file_size
        end = position + size
    runs.append((first, len(positions) - 1))
    return runs
