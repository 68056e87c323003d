"""A log in memory that knows what was promised of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from twisted.internet.defer import Deferred, succeed
from zope.interface import implementer

from rocketmq_tw.replication.interfaces import ISwitchedLog

FILE_SIZE = 512
#: A record: its size with these bytes, big-endian.
SIZE = 4


class Broken(Exception):
    """A promise that was broken."""


class Watch(Protocol):
    """Sees all logs of a group."""

    def broken(self, why: str) -> Broken:
        """Remembers it; what is returned is to be raised."""

    def seen(self, prefix: bytes) -> None:
        """A reader may have seen this much of some log."""


@implementer(ISwitchedLog)
class RecordLog:
    """Records that never cross a file; those in front of `durable` outlive a power loss. What is
    confirmed is checked against all that was ever confirmed in the group."""

    start_offset = 0

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.data = bytearray()
        self.durable = 0
        self.confirmed = self.seen = 0
        self._syncing: list[Deferred[int]] = []

    @property
    def written(self) -> int:
        return len(self.data)

    @property
    def end_offset(self) -> int:
        return self.durable

    def put(self, body: bytes) -> int:
        """Appends a record; returns the offset behind it."""
        room = FILE_SIZE - len(self.data) % FILE_SIZE
        size = SIZE + len(body)
        if room < size + SIZE:
            self.data += room.to_bytes(SIZE, "big") + bytes(room - SIZE)
        self.data += size.to_bytes(SIZE, "big") + body
        return len(self.data)

    def records(self, end: int) -> Iterator[tuple[int, int]]:
        """Where each whole record in front of `end` starts, and the offset behind it."""
        position = 0
        while position + SIZE <= min(end, len(self.data)):
            size = int.from_bytes(self.data[position : position + SIZE], "big")
            if position + size > min(end, len(self.data)):
                break
            yield position, position + size
            position += size

    def newest_message(self, end: int) -> tuple[int, int]:
        """Where the last whole record in front of `end` starts that does not only fill a file, and
        the offset behind it; 0 and 0 where there is none."""
        written = ((at, to) for at, to in self.records(end) if any(self.data[at + SIZE : to]))
        return max(written, default=(0, 0))

    def whole_end(self, end: int) -> int:
        """Behind the last whole record in front of `end`."""
        return max((behind for _, behind in self.records(end)), default=0)

    @property
    def confirmed_offset(self) -> int:
        return self.whole_end(self.confirmed)

    def read(self, offset: int, size: int) -> bytes:
        end = min(offset + size, offset - offset % FILE_SIZE + FILE_SIZE, self.durable)
        return bytes(self.data[offset:end])

    def settled(self) -> Deferred[int]:
        if self.durable == self.written:
            return succeed(self.written)
        self._syncing.append(Deferred())
        return self._syncing[-1]

    def append(self, offset: int, data: bytes) -> Deferred[int]:
        if offset != len(self.data):
            raise self.watch.broken(f"bytes for {offset} on a log up to {len(self.data)}")
        self.data += data
        self._syncing.append(Deferred())
        return self._syncing[-1]

    def end_at_whole_record(self) -> Deferred[None]:
        self.cut(self.whole_end(self.written))
        return succeed(None)

    def truncate(self, end: int) -> Deferred[None]:
        if self.whole_end(end) != end:
            raise self.watch.broken(f"{end} is no end of a record")
        self.cut(end)
        return succeed(None)

    def cut(self, end: int) -> None:
        del self.data[end:]
        self.durable = min(self.durable, end)
        if self.whole_end(self.confirmed) < self.seen:
            raise self.watch.broken(f"the log is cut at {end}, {self.seen} was seen by readers")
        self.confirmed = min(self.confirmed, end)

    def confirm(self, offset: int) -> None:
        if offset > self.written:
            raise self.watch.broken(f"{offset} is confirmed on a log up to {self.written}")
        if offset > self.confirmed:
            self.confirmed = offset
            # A reader sees whole records.
            self.seen = self.whole_end(offset)
            self.watch.seen(bytes(self.data[: self.seen]))

    def sync(self) -> None:
        self.durable = self.written
        waiting, self._syncing = self._syncing, []
        for waiter in waiting:
            waiter.callback(self.durable)

    def killed(self, kept: int) -> None:
        """A power loss leaves `kept` of the bytes that are not safe."""
        self._syncing.clear()
        del self.data[self.durable + kept :]
        self.confirmed = self.seen = 0
