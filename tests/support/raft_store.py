"""A store of entries in memory, for tests of the core alone."""

from collections.abc import Sequence

from rocketmq_tw.raft.core.entry import Entry, chain_crc, crc_of_body, place
from rocketmq_tw.raft.core.raft_core import Ready
from rocketmq_tw.raft.core.snapshot import SnapshotMeta

FILE_SIZE = 1024 * 1024


def entries_of_terms(terms: Sequence[int], file_size: int = FILE_SIZE) -> list[Entry]:
    """One entry for each term, as a leader makes them; bodies are `0:3`, `1:4` and so on."""
    entries: list[Entry] = []
    end_pos, chain = 0, 0
    for index, term in enumerate(terms):
        body = f"{index}:{term}".encode()
        pos = place(end_pos, 48 + len(body), file_size)
        crc = crc_of_body(body)
        chain = chain_crc(chain, index, term, pos, crc)
        entries.append(Entry(index, term, pos, body, chain, crc))
        end_pos = entries[-1].end_pos
    return entries


class MemoryStore:
    """Entries and the last snapshot; `store` does at once what a `Ready` asks."""

    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        self.entries = {entry.index: entry for entry in entries}
        self.snapshot: SnapshotMeta | None = None
        self.snapshot_data = b""

    @property
    def begin_index(self) -> int:
        return min(self.entries, default=-1)

    @property
    def end_index(self) -> int:
        return max(self.entries, default=-1)

    def read(self, index: int) -> Entry:
        return self.entries[index]

    def term(self, index: int) -> int:
        return self.entries[index].term

    def read_snapshot(self, offset: int, size: int) -> bytes:
        return self.snapshot_data[offset : offset + size]

    def store(self, ready: Ready) -> None:
        if ready.snapshot is not None:
            self.snapshot, self.snapshot_data = ready.snapshot.meta, ready.snapshot.data
        writes = ready.writes
        if writes.reset is not None:
            self.entries.clear()
        if writes.truncate_after is not None:
            kept = writes.truncate_after
            self.entries = {index: e for index, e in self.entries.items() if index <= kept}
        self.entries.update({entry.index: entry for entry in writes.entries})

    def drop_before(self, index: int, snapshot: SnapshotMeta, data: bytes) -> None:
        """Compacts behind a snapshot."""
        self.snapshot, self.snapshot_data = snapshot, data
        self.entries = {at: entry for at, entry in self.entries.items() if at >= index}
