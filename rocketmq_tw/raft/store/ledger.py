"""The entries of a member on disk: `data/` holds them, `index/` says where each one lies."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.files.reserve import NO_DESCRIPTOR
from rocketmq_tw.raft.core.entry import Entry, crc_fits
from rocketmq_tw.raft.core.log import LogBase
from rocketmq_tw.raft.store.format import (
    BLANK,
    COPY_AGAIN,
    ENTRY_BLANK_MAGIC,
    INDEX_UNIT,
    INDEX_UNIT_SIZE,
    decode_entry,
    encode_header,
    encode_index,
)
from rocketmq_tw.raft.store.recovery import recover
from rocketmq_tw.store.errors import DamagedStoreError, StoreError
from rocketmq_tw.store.handles import HandlePool, Unsynced
from rocketmq_tw.store.place import OpenedAt
from rocketmq_tw.store.segments import Segments, ShortFiles

#: Stock's mappedFileSizeForEntryIndex.
DEFAULT_INDEX_FILE_SIZE = 5 * 1024 * 1024 * INDEX_UNIT_SIZE
_AHEAD = 256 * 1024


def open_data(files: IFiles, directory: str, file_size: int, elsewhere: str = "") -> Segments:
    """Opens the files with a member's entries, which are below its `directory`, or in the directory
    `elsewhere`."""
    place = elsewhere or f"{directory}/data"
    return _open(files, place, file_size, "mappedFileSizeForEntryData", _AHEAD)


def open_index(files: IFiles, directory: str, file_size: int) -> Segments:
    """Opens the files that say where each entry lies."""
    return _open(files, f"{directory}/index", file_size, "mappedFileSizeForEntryIndex", 0)


def _open(files: IFiles, directory: str, file_size: int, size_key: str, ahead: int) -> Segments:
    files.make_dirs(directory)
    # All files stay open, so that one thread may read while another one writes.
    segments = Segments(HandlePool(files), directory, file_size, Unsynced(), ahead=ahead)
    try:
        segments.load(size_key, short=ShortFiles.EXTEND)
    except DamagedStoreError as error:
        raise DamagedStoreError(f"{error}; or {COPY_AGAIN}") from error
    return segments


class UnsyncedError(StoreError):
    """A sync has failed: it is not known what is on the disk, and no later sync would tell."""


@contextmanager
def _syncing(segments: Segments) -> Iterator[None]:
    """Raises `UnsyncedError` in the place of an `OSError`, but that no descriptor was left: then
    none of the files, which are open, is to blame, and the same may be done again."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_DESCRIPTOR:
            raise
        raise UnsyncedError(f"{segments.directory} cannot be synced: {error}") from error


class Ledger:
    """Entries from `begin_index` to `end_index`, both -1 while there is none.

    Appended entries are durable after `sync`; a cut is durable on return, so that no stale entry
    behind it can pass for a later one. Where any of this raises `OSError` it may be called again,
    to do the rest; behind an `UnsyncedError` only a start can tell what there is.
    """

    def __init__(
        self,
        files: IFiles,
        directory: str,
        data_file_size: int,
        index_file_size: int = DEFAULT_INDEX_FILE_SIZE,
        *,
        data_directory: str = "",
        begin_pos: int = 0,
        committed_index: int = -1,
        sound_index: int = -1,
    ) -> None:
        self._data = open_data(files, directory, data_file_size, data_directory)
        self._index = open_index(files, directory, index_file_size)
        extent = recover(self._data, self._index, begin_pos, committed_index, sound_index)
        self.begin_index = extent.begin_index
        self.end_index = extent.end_index
        self.end_pos = extent.end_pos

    def _unit(self, index: int) -> tuple[int, int, int]:
        """Returns position, size and term of an entry."""
        if not self.begin_index <= index <= self.end_index or index < 0:
            raise KeyError(index)
        unit = self._index.pread(INDEX_UNIT_SIZE, index * INDEX_UNIT_SIZE)
        if len(unit) < INDEX_UNIT_SIZE:
            raise StoreError(f"the index lacks entry {index}: its file is missing or cut short")
        _magic, pos, size, at, term = INDEX_UNIT.unpack(unit)
        if at != index:
            raise StoreError(f"the index has entry {at} in the place of {index}")
        return pos, size, term

    @property
    def data(self) -> Segments:
        """The files with the entries, for readers only."""
        return self._data

    def places(self) -> list[OpenedAt]:
        """Returns the last files, as `Segments.places` does."""
        return [*self._data.places(), *self._index.places()]

    @property
    def size(self) -> int:
        """Bytes of the files, as long as they are, whether written or not."""
        return sum(len(files.starts) * files.file_size for files in (self._data, self._index))

    def end_pos_of(self, index: int) -> int:
        """Returns where entry `index` ends; where the first one lies for the index in front of
        it."""
        if index < self.begin_index or self.begin_index < 0:
            return self.begin_pos
        pos, size, _term = self._unit(index)
        return pos + size

    def last_index_before(self, position: int) -> int:
        """Returns the last entry that ends at or before `position`; `begin_index` - 1 where none
        does."""
        low, high = self.begin_index - 1, self.end_index
        while low < high:
            middle = (low + high + 1) // 2
            if self.end_pos_of(middle) <= position:
                low = middle
            else:
                high = middle - 1
        return low

    def term(self, index: int) -> int:
        """Returns the term of an entry; KeyError where there is none."""
        return self._unit(index)[2]

    def read(self, index: int) -> Entry:
        """Returns an entry; KeyError where there is none, `StoreError` where its bytes are
        damaged."""
        pos, size, term = self._unit(index)
        entry = decode_entry(self._data.pread(size, pos))
        if entry.index != index or entry.term != term or not crc_fits(entry):
            raise StoreError(f"entry {index} at {pos} is damaged")
        return entry

    def append(self, entries: Sequence[Entry]) -> None:
        """Writes the entries that follow the last one; see `sync`."""
        if not entries:
            return
        unproven = any(entry.body_crc == 0 for entry in entries)
        if unproven and not self._index.starts:
            # Recovery trusts such entries where there is no index at all: somebody removed it.
            self._write_units(entries[0].index, [bytes(INDEX_UNIT_SIZE)])
        #: What goes into one file; entries from `indexed` on have no index unit yet.
        run: list[bytes] = []
        run_pos = pos = self.end_pos
        indexed = 0
        for number, entry in enumerate(entries):
            if entry.pos != pos:
                run.append(
                    BLANK.pack(ENTRY_BLANK_MAGIC, self._data.file_size - pos % self._data.file_size)
                )
                self._roll(run_pos, run, entries[indexed:number])
                run, run_pos, indexed = [], entry.pos, number
            run += (encode_header(entry), entry.body)
            pos = entry.end_pos
        self._data.write(run, run_pos, durable_name=True)
        if unproven:
            # Nothing in an entry without a CRC tells a torn one from a whole one; that its index
            # unit is there does, since this is written behind the synced data only.
            self.sync()
        self._write_index(entries[indexed:])
        if unproven:
            self.sync_index()
        if self.begin_index < 0:
            self.begin_index = entries[0].index
        self.end_index = entries[-1].index
        self.end_pos = pos

    def _roll(self, pos: int, run: list[bytes], entries: Sequence[Entry]) -> None:
        """Ends a data file. It is synced with its index, since recovery relies on all but the last
        files."""
        if self._data.has(self._data.start_of(pos)) or len(run) > 1:
            self._data.write(run, pos, durable_name=True)
        self.sync()
        self._write_index(entries)
        self.sync_index()

    def _write_index(self, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        first = entries[0].index
        per_file = self._index.file_size // INDEX_UNIT_SIZE
        start = 0
        while start < len(entries):
            index = first + start
            count = min(len(entries) - start, per_file - index % per_file)
            self._write_units(index, list(map(encode_index, entries[start : start + count])))
            start += count

    def _write_units(self, index: int, units: list[bytes]) -> None:
        """Writes index units from entry `index` on, within one file."""
        self._index.write([b"".join(units)], index * INDEX_UNIT_SIZE, durable_name=True)

    def truncate_after(self, index: int) -> None:
        """Cuts all entries behind `index`; durable on return."""
        if index >= self.end_index >= 0:
            return
        if index < self.begin_index or self.begin_index < 0:
            self.reset(LogBase(index, -1, self.begin_pos))
            return
        pos, size, _term = self._unit(index)
        with _syncing(self._data):
            self._data.cut(pos + size, durable=True, keep_first=True)
        with _syncing(self._index):
            self._index.cut((index + 1) * INDEX_UNIT_SIZE, durable=True, keep_first=True)
        self.end_index = index
        self.end_pos = pos + size

    def reset(self, base: LogBase) -> None:
        """Drops every entry; the next one follows `base`."""
        self._clear(self._data)
        self.begin_index = self.end_index = -1
        self.end_pos = base.next_pos
        self._clear(self._index)

    def _clear(self, segments: Segments) -> None:
        with _syncing(segments):
            segments.clear(durable=True)
            # Where it was called before, the last removal may not be durable.
            segments.sync_names()

    def begin_index_after_drop(self, index: int) -> int:
        """Returns the first entry once the data files with only entries before `index` are gone;
        the last file stays."""
        if self.begin_index < 0:
            return -1
        return self.begin_index_behind(self._unit(min(index, self.end_index))[0])

    def begin_index_behind(self, position: int) -> int:
        """Returns the first entry once the data files are gone that end at or before `position`;
        the last file stays."""
        if self.begin_index < 0:
            return -1
        position = min(position, self._unit(self.end_index)[0])
        first = position - position % self._data.file_size
        if self.begin_pos >= first:
            return self.begin_index
        header = self._data.pread(INDEX_UNIT_SIZE, first)
        return int.from_bytes(header[8:16], "big")

    def drop_files(self) -> None:
        """Removes the files that hold only entries before `begin_index`."""
        if self.begin_index >= 0:
            self._data.remove_before(self.begin_pos)
            self._index.remove_before(self.begin_index * INDEX_UNIT_SIZE)

    @property
    def begin_pos(self) -> int:
        """Where the first entry lies, or will lie."""
        return self.end_pos if self.begin_index < 0 else self._unit(self.begin_index)[0]

    def sync(self) -> None:
        """Makes appended entries durable. The index can be had from them again."""
        with _syncing(self._data):
            self._data.sync()

    def sync_index(self) -> None:
        with _syncing(self._index):
            self._index.sync()

    def close(self) -> None:
        self.sync()
        self.sync_index()
        self._data.close()
        self._index.close()
