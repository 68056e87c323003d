"""The entries of a member on disk: `data/` holds them, `index/` says where each one lies."""

from collections.abc import Sequence

from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.raft.core.entry import Entry, crc_fits
from rocketmq_tw.raft.core.log import LogBase
from rocketmq_tw.raft.store.format import (
    BLANK,
    BLANK_MAGIC,
    INDEX_UNIT,
    INDEX_UNIT_SIZE,
    StoreError,
    decode_entry,
    encode_header,
    encode_index,
)
from rocketmq_tw.raft.store.recovery import recover
from rocketmq_tw.raft.store.segments import AHEAD, SegmentedFile

#: Stock's mappedFileSizeForEntryIndex.
DEFAULT_INDEX_FILE_SIZE = 5 * 1024 * 1024 * INDEX_UNIT_SIZE


class Ledger:
    """Entries from `begin_index` to `end_index`, both -1 while there is none.

    Appended entries are durable after `sync`; a cut is durable on return, so that no stale entry
    behind it can pass for a later one.
    """

    def __init__(
        self,
        files: IFiles,
        directory: str,
        data_file_size: int,
        index_file_size: int = DEFAULT_INDEX_FILE_SIZE,
        *,
        begin_pos: int = 0,
        committed_index: int = -1,
    ) -> None:
        self._data = SegmentedFile(files, f"{directory}/data", data_file_size, ahead=AHEAD)
        self._index = SegmentedFile(files, f"{directory}/index", index_file_size)
        extent = recover(self._data, self._index, begin_pos, committed_index)
        self.begin_index = extent.begin_index
        self.end_index = extent.end_index
        self.end_pos = extent.end_pos

    def _unit(self, index: int) -> tuple[int, int, int]:
        """Position, size and term of an entry."""
        if not self.begin_index <= index <= self.end_index or index < 0:
            raise KeyError(index)
        unit = self._index.read(index * INDEX_UNIT_SIZE, INDEX_UNIT_SIZE)
        if len(unit) < INDEX_UNIT_SIZE:
            raise StoreError(f"the index lacks entry {index}: its file is missing or cut short")
        _magic, pos, size, at, term = INDEX_UNIT.unpack(unit)
        if at != index:
            raise StoreError(f"the index has entry {at} in the place of {index}")
        return pos, size, term

    def term(self, index: int) -> int:
        """The term of an entry; KeyError where there is none."""
        return self._unit(index)[2]

    def read(self, index: int) -> Entry:
        """An entry; KeyError where there is none, `StoreError` where its bytes are damaged."""
        pos, size, term = self._unit(index)
        entry = decode_entry(self._data.read(pos, size))
        if entry.index != index or entry.term != term or not crc_fits(entry):
            raise StoreError(f"entry {index} at {pos} is damaged")
        return entry

    def append(self, entries: Sequence[Entry]) -> None:
        """Writes the entries that follow the last one; see `sync`."""
        if not entries:
            return
        unproven = any(entry.body_crc == 0 for entry in entries)
        if unproven and not self._index.offsets:
            # Recovery trusts such entries where there is no index at all: somebody removed it.
            self._index.write(entries[0].index * INDEX_UNIT_SIZE, [bytes(INDEX_UNIT_SIZE)])
        run: list[bytes] = []
        run_pos = pos = self.end_pos
        for entry in entries:
            if entry.pos != pos:
                run.append(
                    BLANK.pack(BLANK_MAGIC, self._data.file_size - pos % self._data.file_size)
                )
                self._roll(run_pos, run)
                run, run_pos = [], entry.pos
            run += (encode_header(entry), entry.body)
            pos = entry.end_pos
        self._data.write(run_pos, run)
        if unproven:
            # Nothing in an entry without a CRC tells a torn one from a whole one; that its index
            # unit is there does, since this is written behind the synced data only.
            self._data.sync()
        self._write_index(entries)
        if unproven:
            self._index.sync()
        if self.begin_index < 0:
            self.begin_index = entries[0].index
        self.end_index = entries[-1].index
        self.end_pos = pos

    def _roll(self, pos: int, run: list[bytes]) -> None:
        """Ends a data file. Its index is synced, since recovery looks at the last files only."""
        if self._data.offsets or len(run) > 1:
            self._data.write(pos, run)
        self._data.sync()
        self._index.sync()

    def _write_index(self, entries: Sequence[Entry]) -> None:
        first = entries[0].index
        per_file = self._index.file_size // INDEX_UNIT_SIZE
        start = 0
        while start < len(entries):
            index = first + start
            count = min(len(entries) - start, per_file - index % per_file)
            units = b"".join(encode_index(entry) for entry in entries[start : start + count])
            self._index.write(index * INDEX_UNIT_SIZE, [units])
            start += count

    def keep_to(self, index: int) -> None:
        """Cuts all entries behind `index`; durable on return."""
        if index >= self.end_index:
            return
        if index < self.begin_index:
            self.reset(LogBase(index, -1, self._unit(self.begin_index)[0]))
            return
        pos, size, _term = self._unit(index)
        self._data.cut(pos + size)
        self._index.cut((index + 1) * INDEX_UNIT_SIZE)
        self.end_index = index
        self.end_pos = pos + size

    def reset(self, base: LogBase) -> None:
        """Drops every entry; the next one follows `base`."""
        self._data.clear()
        self._index.clear()
        self.begin_index = self.end_index = -1
        self.end_pos = base.next_pos

    def begin_without(self, index: int) -> int:
        """The first entry once the data files with only entries before `index` are gone; the last
        file stays."""
        if self.begin_index < 0:
            return -1
        pos = self._unit(min(index, self.end_index))[0]
        first = pos - pos % self._data.file_size
        if self.begin_pos >= first:
            return self.begin_index
        header = self._data.read(first, INDEX_UNIT_SIZE)
        return int.from_bytes(header[8:16], "big")

    def drop_files(self) -> None:
        """Removes the files that hold only entries before `begin_index`."""
        if self.begin_index >= 0:
            self._data.drop_before(self.begin_pos)
            self._index.drop_before(self.begin_index * INDEX_UNIT_SIZE)

    @property
    def begin_pos(self) -> int:
        """Where the first entry lies, or will lie."""
        return self.end_pos if self.begin_index < 0 else self._unit(self.begin_index)[0]

    def sync(self) -> None:
        """Makes appended entries durable. The index can be had from them again."""
        self._data.sync()

    def sync_index(self) -> None:
        self._index.sync()

    def close(self) -> None:
        self.sync()
        self.sync_index()
        self._data.close()
        self._index.close()
