"""The message index: log offsets by `topic#key` (docs/formats/index.md).

Keys are collected, and hashed and written together: the entries of one go need one system call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from rocketmq_tw.files.interface import IFile, IFiles
from rocketmq_tw.files.reserve import NO_DESCRIPTOR
from rocketmq_tw.store.dispatch_entries import AnyDispatchEntry, BatchEntry
from rocketmq_tw.store.handles import Unsynced
from rocketmq_tw.store.index_file import (
    INDEX_HEADER,
    INDEX_HEADER_SIZE,
    IndexFile,
    IndexKey,
    index_file_size,
)
from rocketmq_tw.store.key_hashes import key_hash, key_hashes

_NAME_DIGITS = 17
#: Keys collected before they are written.
_BATCH = 256
#: Keys that may wait in memory since they cannot be written: later they are, in one go.
_MOST_PENDING = 1 << 15


class _Found(NamedTuple):
    """A file that is there: the log offset of its first message, one number more than it has
    entries, and whether it is of the right size."""

    path: str
    file: IFile
    begin: int
    number: int
    is_whole: bool

    @classmethod
    def at(cls, path: str, file: IFile, size: int) -> _Found:
        data = file.pread(INDEX_HEADER_SIZE, 0).ljust(INDEX_HEADER_SIZE, b"\0")
        header = INDEX_HEADER.unpack(data)
        return cls(path, file, header[2], header[5], file.size() == size)


def _by_offset(found: Sequence[_Found]) -> list[_Found]:
    """Returns files in the order of their first messages: that of the names is another one where a
    clock was set back, as stock writes them too. Files without messages, and those of a wrong size,
    keep their places."""
    movable = [each for each in found if each.is_whole and each.number > 1]
    moved = iter(sorted(movable, key=lambda each: (each.begin, each.number)))
    return [next(moved) if each in movable else each for each in found]


def index_name(now_ms: int) -> str:
    """Makes a file's name: its creation in local time, yyyyMMddHHmmssSSS."""
    moment = datetime.fromtimestamp(now_ms / 1000)
    return moment.strftime("%Y%m%d%H%M%S") + f"{now_ms % 1000:03d}"


#: A key that is not hashed yet: its topic, the key, its message's log offset and store time.
_NewKey = tuple[str, bytes, int, int]


class MessageIndex:
    """All index files of a store, oldest first (docs/formats/index.md). `rounds` gives the counts
    of checkpoints, see `Checkpointing.rounds`; without any, no file is known to be durable."""

    def __init__(
        self,
        files: IFiles,
        directory: str,
        slots: int,
        capacity: int,
        clock: Callable[[], int],
        rounds: Callable[[], tuple[int, int]] = lambda: (0, 0),
    ) -> None:
        self._files = files
        self._directory = directory
        self._slots = slots
        self._capacity = capacity
        self._clock = clock
        self._rounds = rounds
        #: How many checkpoints were prepared when the last file was made.
        self._made_at = -1
        #: A file could not be synced, and no later sync proves anything: no checkpoint may vouch
        #: for the index any more, so that the next start finds in the log what is not added now.
        self.failed = False
        self._list: list[IndexFile] = []
        self._new: list[_NewKey] = []
        #: Keys in front of these that could not be written.
        self._pending: list[IndexKey] = []
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
        if not clean:
            # The last process may have made one of them just before.
            self._made_at = 0
            self.unsynced.dirs.add(self._directory)
        names = [
            name
            for name in self._files.list(self._directory)
            if len(name) == _NAME_DIGITS and name.isascii() and name.isdigit()
        ]
        paths = [f"{self._directory}/{name}" for name in names]
        found = [_Found.at(path, self._files.open(path), self.file_size) for path in paths]
        if mark[0] not in [each.begin for each in found]:
            # Its file was lost and built again since the checkpoint: nothing is known of any.
            mark = (-1, 1)
        trusted = True
        dropped: list[tuple[IFile, str]] = []
        for path, file, _, _, is_whole in _by_offset(found):
            trusted = trusted and is_whole
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
        new = self._new
        before = len(self._pending) + len(new)
        for entry in entries:
            topic, offset, moment = entry.topic, entry.physical_offset, entry.store_timestamp
            if isinstance(entry, BatchEntry):
                if offset < last:
                    self.add(entry.one_by_one())
                    continue
                offsets = entry.offsets if entry.key_offsets is None else entry.key_offsets
                new += [
                    (topic, key, each, moment)
                    for key, each in zip(entry.keys, offsets, strict=False)
                ]
            elif offset >= last:
                for key in entry.keys:
                    new.append((topic, key, offset, moment))
        if len(new) + len(self._pending) >= _BATCH:
            try:
                self.write_pending()
            except OSError:
                # They stay for the next time, while they are not too many.
                if len(self._pending) > _MOST_PENDING:
                    del self._pending[before:]
                    raise

    def write_pending(self) -> None:
        """Writes what is collected."""
        if self.failed:
            self._new.clear()
            self._pending.clear()
            return
        if self._new:
            new = self._new
            hashes = key_hashes([topic for topic, _, _, _ in new], [key for _, key, _, _ in new])
            self._pending += [
                (hashed, offset, moment)
                for hashed, (_, _, offset, moment) in zip(hashes, new, strict=True)
            ]
            new.clear()
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
        self._new = [key for key in self._new if key[2] < physical_offset]
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
        """Writes what is collected and closes. What cannot be written a start finds in the log
        again, as after a crash: no checkpoint vouches for it."""
        with suppress(OSError):
            self.write_back()
        for index in self._list:
            index.close()
        self._list = []

    def _create(self) -> IndexFile:
        if self._list:
            self._make_durable(self._list[-1])
        path = self._next_path()
        file = self._files.open(path, create=True)
        try:
            file.truncate(self.file_size)
        except OSError:
            # A start removes what follows a file that is not whole.
            file.close()
            with suppress(OSError):
                self._files.remove(path)
            raise
        self.unsynced.dirs.add(self._directory)
        self._made_at, _ = self._rounds()
        return IndexFile(file, path, self._slots, self._capacity)

    def _make_durable(self, last: IndexFile) -> None:
        """Before another one follows: a power loss never takes a file out of the middle. A
        checkpoint has done it already, unless files are filled faster than those come."""
        _, synced = self._rounds()
        if synced > self._made_at:
            return
        try:
            last.fsync()
            self._files.sync_dir(self._directory)
        except OSError as error:
            # The next try would succeed, without that the disk has it.
            if error.errno not in NO_DESCRIPTOR:
                self.failed = True
            raise

    def _next_path(self) -> str:
        """Returns the path for a new file. Its name is the local time, or a number behind all other
        names where a clock was set back since: stock and older versions sort files by these. None
        is there yet, as one that could not be made."""
        number = int(index_name(self._clock()))
        for index in self._list:
            number = max(number, int(index.path.rpartition("/")[2]) + 1)
        while self._files.exists(path := f"{self._directory}/{number:0{_NAME_DIGITS}d}"):
            number += 1
        return path

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
