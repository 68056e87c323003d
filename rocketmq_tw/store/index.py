"""The message index: log offsets by `topic#key` (docs/formats/index.md).

Keys are collected and written together: the entries of one go need one system call.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from itertools import repeat
from operator import add, itemgetter, mul
from sys import byteorder

from rocketmq_tw.files.interface import IFile, IFiles
from rocketmq_tw.store.dispatch_entries import AnyDispatchEntry, BatchEntry
from rocketmq_tw.store.handles import Unsynced
from rocketmq_tw.store.index_file import (
    INDEX_HEADER,
    INDEX_HEADER_SIZE,
    IndexFile,
    IndexKey,
    index_file_size,
)

_NAME_DIGITS = 17
#: Keys collected before they are written.
_BATCH = 256
#: Keys that may wait in memory since they cannot be written: later they are, in one go.
_MOST_PENDING = 1 << 15
_UTF_16 = "utf-16-le" if byteorder == "little" else "utf-16-be"
_MAX_POWERS = 1024
_POWERS = [pow(31, n, 1 << 32) for n in range(_MAX_POWERS)][::-1]
#: Characters of stock's unique ids, and how many of them name host, process and minute.
_UNIQUE, _SHARED = 32, 24
#: Two characters of ASCII added to a hash of at most this stay below the largest int.
_NO_OVERFLOW = 0x7FFFFFFF - 127 * 32
_all_but_two = itemgetter(slice(-2))
_POWER_OF_MIDDLE = pow(31, _UNIQUE - 2 - _SHARED)


def key_hash(text: str) -> int:
    """Returns Java's `String.hashCode` without its sign, as stock's index takes it."""
    return _magnitude(_hash_code(_units(text)))


def topic_key_hash(topic: str, key: bytes) -> int:
    """Returns `key_hash` of `topic#key`, `key` in UTF-8; the part before the key is computed
    once."""
    if not key.isascii():
        return key_hash(f"{topic}#{str(key, 'utf-8', 'replace')}")
    length = len(key)
    power = _POWERS[-1 - length] if length < _MAX_POWERS else pow(31, length, 1 << 32)
    return _magnitude(_hash_of_prefix(topic, b"") * power + _hash_code(key))


class NeighbourHashes:
    """`topic_key_hash` for keys that come one after the other. Unique ids of one producer share
    their start for a minute, and mostly all but two characters within a millisecond, so it goes on
    from there."""

    def __init__(self) -> None:
        self._topic = ""
        self._others = b""
        self._start = 0

    def hash(self, topic: str, key: bytes) -> int:
        """See `topic_key_hash`."""
        if len(key) != _UNIQUE or not key.isascii():
            return topic_key_hash(topic, key)
        others = key[:-2]
        if others != self._others or topic != self._topic:
            start = _hash_of_prefix(topic, key[:_SHARED]) * _POWER_OF_MIDDLE
            self._start = start + _hash_code(key[_SHARED:-2]) & 0xFFFFFFFF
            self._others, self._topic = others, topic
        value = (self._start * 31 + key[-2]) * 31 + key[-1] & 0xFFFFFFFF
        return value if value < 0x80000000 else _magnitude(value)


def batch_key_hashes(topic: str, keys: Sequence[bytes]) -> list[int]:
    """Returns `topic_key_hash` of each key. Where all are stock's unique ids, as nearly always,
    their common start is computed once."""
    lengths = set(map(len, keys))
    if _UNIQUE in lengths and len(lengths) > 1:
        unique_ids = iter(batch_key_hashes(topic, [key for key in keys if len(key) == _UNIQUE]))
        return [
            next(unique_ids) if len(key) == _UNIQUE else topic_key_hash(topic, key) for key in keys
        ]
    joined = b"".join(keys)
    if lengths != {_UNIQUE} or not joined.isascii():
        return [topic_key_hash(topic, key) for key in keys]
    starts = list(map(_all_but_two, keys))
    hashes = {start: _hash_of_start(topic, start) for start in set(starts)}
    if max(hashes.values()) > _NO_OVERFLOW or min(hashes.values()) == -0x80000000:
        return [topic_key_hash(topic, key) for key in keys]
    last_but_one, last = joined[_UNIQUE - 2 :: _UNIQUE], joined[_UNIQUE - 1 :: _UNIQUE]
    last_two = map(add, map(mul, last_but_one, repeat(31)), last)
    return list(map(abs, map(add, map(hashes.__getitem__, starts), last_two)))


@lru_cache(maxsize=1024)
def _hash_of_start(topic: str, start: bytes) -> int:
    """Of a unique id's characters but the last two, with two characters 0 in their place, and with
    Java's sign."""
    shared = _hash_of_prefix(topic, start[:_SHARED]) * _POWER_OF_MIDDLE
    hashed: int = (shared + _hash_code(start[_SHARED:])) * 31 * 31 & 0xFFFFFFFF
    return hashed if hashed < 0x80000000 else hashed - 0x100000000


@lru_cache(maxsize=4096)
def _hash_of_prefix(topic: str, key_start: bytes) -> int:
    return _hash_code(_units(f"{topic}#{key_start.decode()}")) & 0xFFFFFFFF


def _units(text: str) -> bytes | array[int]:
    """UTF-16 units."""
    if text.isascii():
        return text.encode()
    return array("H", text.encode(_UTF_16, "surrogatepass"))


def _hash_code(units: bytes | array[int]) -> int:
    """Not brought down to 32 bits."""
    length = len(units)
    if length <= _MAX_POWERS:
        return sum(map(mul, units, _POWERS[_MAX_POWERS - length :]))
    value = 0
    for unit in units:
        value = value * 31 + unit & 0xFFFFFFFF
    return value


def _magnitude(value: int) -> int:
    value &= 0xFFFFFFFF
    if value & 0x80000000:
        value = 0x100000000 - value
        # The absolute value of the smallest int does not exist in Java; stock takes 0.
        return 0 if value == 0x80000000 else value
    return value


def _begin_offset(file: IFile) -> int:
    begin: int = INDEX_HEADER.unpack(
        file.pread(INDEX_HEADER_SIZE, 0).ljust(INDEX_HEADER_SIZE, b"\0")
    )[2]
    return begin


def index_name(now_ms: int) -> str:
    """Makes a file's name: its creation in local time, yyyyMMddHHmmssSSS."""
    moment = datetime.fromtimestamp(now_ms / 1000)
    return moment.strftime("%Y%m%d%H%M%S") + f"{now_ms % 1000:03d}"


class MessageIndex:
    """All index files of a store, oldest first (docs/formats/index.md)."""

    def __init__(
        self,
        files: IFiles,
        directory: str,
        slots: int,
        capacity: int,
        clock: Callable[[], int],
    ) -> None:
        self._files = files
        self._directory = directory
        self._slots = slots
        self._capacity = capacity
        self._clock = clock
        self._list: list[IndexFile] = []
        self._pending: list[IndexKey] = []
        self._hash = NeighbourHashes().hash
        #: What `load` must know after a power loss: the first log offset of the file that was the
        #: last one when slots were written back, and its count then. In front of that, entries
        #: and slots agree.
        self.mark = (-1, 1)
        self.unsynced = Unsynced()

    @property
    def file_size(self) -> int:
        """The size of each file in bytes."""
        return index_file_size(self._slots, self._capacity)

    @property
    def end_offset(self) -> int:
        """Log offset of the last message with a key that is indexed; -1 without one."""
        return self._list[-1].end_offset if self._list else -1

    @property
    def end_timestamp(self) -> int:
        """Store time in ms of the last message with a key that is indexed; 0 without one."""
        return self._list[-1].end_timestamp if self._list else 0

    def load(self, mark: tuple[int, int], *, clean: bool) -> bool:
        """Opens the files; one of a wrong size is removed with all behind it, since the log has
        everything to build them again. `mark` comes from the last checkpoint. Returns False where
        it holds no more; then no other start may find it, since a file that is built anew may begin
        like the marked one."""
        self.mark = mark
        self._files.make_dirs(self._directory)
        names = [
            name
            for name in self._files.list(self._directory)
            if len(name) == _NAME_DIGITS and name.isascii() and name.isdigit()
        ]
        opened = [self._files.open(f"{self._directory}/{name}") for name in names]
        if mark[0] not in [_begin_offset(file) for file in opened]:
            # Its file was lost and built again since the checkpoint: nothing is known of any.
            mark = (-1, 1)
        trusted = True
        dropped: list[tuple[IFile, str]] = []
        for name, file in zip(names, opened, strict=True):
            path = f"{self._directory}/{name}"
            trusted = trusted and file.size() == self.file_size
            if not trusted:
                dropped.append((file, path))
                continue
            index = IndexFile(file, path, self._slots, self._capacity)
            if not clean and (index.begin_offset >= mark[0] or index.count == 1):
                index.check(mark[1] if index.begin_offset == mark[0] else 1)
                self.unsynced.files.add(path)
                # What follows a file that lost its end would hide that from the log's reader.
                trusted = index.is_full
            if index.count == 1:
                dropped.append((file, path))
            else:
                self._list.append(index)
        self._remove_last_ones(dropped)
        for index in self._list[:-1]:
            self._release(index)
        counts = {index.begin_offset: index.count for index in self._list}
        holds = self.mark[0] < 0 or counts.get(self.mark[0], 0) >= self.mark[1]
        if not holds:
            self.mark = (-1, 1)
        if clean and self._list:
            self.mark = (self._list[-1].begin_offset, self._list[-1].count)
        return holds

    def add(self, entries: Iterable[AnyDispatchEntry]) -> None:
        """Collects the keys of messages; messages in front of the last indexed one are passed
        over, that one itself is not, since a crash may have come between its keys."""
        last = self._list[-1].end_offset if self._list else -1
        before = len(self._pending)
        pending, hash_of = self._pending, self._hash
        for entry in entries:
            offset = entry.physical_offset
            if isinstance(entry, BatchEntry):
                if offset < last:
                    self.add(entry.one_by_one())
                    continue
                hashes = batch_key_hashes(entry.topic, entry.keys) if entry.keys else ()
                offsets = entry.offsets if entry.key_offsets is None else entry.key_offsets
                pending += zip(hashes, offsets, repeat(entry.store_timestamp), strict=False)
            elif offset >= last:
                for key in entry.keys:
                    pending.append((hash_of(entry.topic, key), offset, entry.store_timestamp))
        if len(pending) >= _BATCH:
            try:
                self.write_pending()
            except OSError:
                # They stay for the next time, while they are not too many.
                if len(pending) > _MOST_PENDING:
                    del pending[before:]
                    raise

    def write_pending(self) -> None:
        """Writes what is collected."""
        while self._pending:
            if not self._list or self._list[-1].is_full:
                if self._list:
                    self._release(self._list[-1])
                self._list.append(self._create())
            index = self._list[-1]
            taken = index.put(self._pending)
            self.unsynced.files.add(index.path)
            del self._pending[:taken]

    def write_back(self, *, slots: bool = True) -> None:
        """Writes what is collected, and the slots that are only in memory."""
        self.write_pending()
        if not slots or not self._list:
            return
        last = self._list[-1]
        if last.write_slots():
            self.unsynced.files.add(last.path)
        self.mark = (last.begin_offset, last.count)

    def search(
        self, topic: str, key: str, limit: int, begin: int, end: int, found: list[int]
    ) -> Iterator[None]:
        """Adds to `found` the offsets of messages that may have the key (hashes collide), newest
        file first, each once; in short steps, between which the index may change."""
        self.write_pending()
        wanted = key_hash(f"{topic}#{key}")
        for index in self._list[::-1]:
            if index not in self._list:
                # It was removed since.
                continue
            if index.overlaps(begin, end):
                for _ in index.find(wanted, limit, begin, end, found):
                    yield
                    if index not in self._list:
                        break
            if len(found) >= limit or index.begin_timestamp < begin:
                break
        found[:] = dict.fromkeys(found)

    def cut(self, physical_offset: int) -> Iterator[None]:
        """Ends the index where the log ends now. In steps, between which it may be searched and
        nothing may be added. Durable at the end: a stale entry would later claim that another
        message at its offset is indexed."""
        self._pending = [key for key in self._pending if key[1] < physical_offset]
        while self._list and self._list[-1].end_offset >= physical_offset:
            last = self._list[-1]
            if last.begin_offset < physical_offset:
                yield from last.cut(physical_offset)
                if self.mark[0] == last.begin_offset:
                    self.mark = (last.begin_offset, min(self.mark[1], last.count))
                break
            self._remove(self._list.pop())
            if self.mark[0] == last.begin_offset:
                # Others may begin at the same message, and what is left may get more.
                left = self._list[-1:]
                self.mark = (left[0].begin_offset, left[0].count) if left else (-1, 1)
            self._files.sync_dir(self._directory)
            yield

    def remove_before(self, min_physical: int) -> int:
        """Removes files whose messages are all gone from the log, but never the last."""
        removed = 0
        while len(self._list) > 1 and self._list[0].end_offset < min_physical:
            self._remove(self._list.pop(0))
            removed += 1
        return removed

    def close(self) -> None:
        """Writes what is collected and closes."""
        self.write_back()
        for index in self._list:
            index.close()
        self._list = []

    def _create(self) -> IndexFile:
        moment = self._clock()
        path = f"{self._directory}/{index_name(moment)}"
        while self._files.exists(path):
            moment += 1
            path = f"{self._directory}/{index_name(moment)}"
        file = self._files.open(path, create=True)
        try:
            file.truncate(self.file_size)
            # Durable at once, so that a power loss never takes a file out of the middle.
            file.fsync()
            self._files.sync_dir(self._directory)
        except OSError:
            # A start removes what follows a file that is not whole.
            file.close()
            with suppress(OSError):
                self._files.remove(path)
            raise
        return IndexFile(file, path, self._slots, self._capacity)

    def _release(self, index: IndexFile) -> None:
        if index.release():
            self.unsynced.files.add(index.path)

    def _remove_last_ones(self, dropped: Sequence[tuple[IFile, str]]) -> None:
        """Removes files from the end, one by one: a power loss among several could leave a gap, in
        front of which nothing would be indexed again."""
        for file, path in reversed(dropped):
            file.close()
            self._files.remove(path)
            self.unsynced.files.discard(path)
            self._files.sync_dir(self._directory)

    def _remove(self, index: IndexFile) -> None:
        index.close()
        self._files.remove(index.path)
        self.unsynced.files.discard(index.path)
        self.unsynced.dirs.add(self._directory)
