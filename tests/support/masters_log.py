"""The end of a master's log, made up, as its slaves get it: bytes, cut anywhere."""

from __future__ import annotations

from rocketmq_tw.message.layout import BLANK_MAGIC, BLANK_SIZE, SIZE_AND_MAGIC
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.record import encode_record


class MastersLog:
    """What it has from log offset `start` on, in files of `file_size`."""

    def __init__(self, start: int, file_size: int) -> None:
        self.start = start
        self._file_size = file_size
        self._data = bytearray()

    @property
    def end(self) -> int:
        """Behind its last record."""
        return self.start + len(self._data)

    def add(self, message: StoredMessage, queue_offset: int, timestamp: int) -> tuple[int, int]:
        """Appends a message; returns where its record starts and ends."""
        message.queue_offset, message.store_timestamp = queue_offset, timestamp
        message.physical_offset = self.end
        size = len(encode_record(message))
        room = self._file_size - self.end % self._file_size
        if size + BLANK_SIZE > room:
            self._data += SIZE_AND_MAGIC.pack(room, BLANK_MAGIC).ljust(room, b"\0")
            message.physical_offset = self.end
        self._data += encode_record(message)
        return message.physical_offset, self.end

    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from a log offset on."""
        return bytes(self._data[offset - self.start :][:size])
