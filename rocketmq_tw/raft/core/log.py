"""The view on the log: what is on disk, and behind it what is not there yet.

Terms never fall along a log, so their chain is kept as a list of (first index, term). Bodies are
read from the store, but for a recent tail that pushes are served from.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from rocketmq_tw.raft.core.entry import (
    ENTRY_HEADER_SIZE,
    Entry,
    chain_crc,
    crc_of_body,
    largest_body,
    place,
    same_entry,
)
from rocketmq_tw.structs import msgspec

RECENT_BYTES = 4 * 1024 * 1024


class LogStore(Protocol):
    """The entries on disk, as the log needs them; an empty store has begin_index -1."""

    @property
    def begin_index(self) -> int: ...

    @property
    def end_index(self) -> int: ...

    def read(self, index: int) -> Entry: ...

    def term(self, index: int) -> int: ...


class LogBase(msgspec.Struct, frozen=True):
    """The place before the first entry: its index and term (-1 where unknown), and where the
    first entry lies in the data files."""

    index: int = -1
    term: int = -1
    next_pos: int = 0


class LogWrites(NamedTuple):
    """What the store has to do, in the order of the fields."""

    reset: LogBase | None = None
    truncate_after: int | None = None
    entries: Sequence[Entry] = ()

    def __bool__(self) -> bool:
        return self.reset is not None or self.truncate_after is not None or bool(self.entries)


class Log:
    """Entries from `begin_index` to `end_index`; empty where the end is before the begin."""

    def __init__(self, store: LogStore, base: LogBase, file_size: int) -> None:
        self._store = store
        self._file_size = file_size
        self._tail: list[Entry] = []
        self._tail_bytes = 0
        self._truncate_after: int | None = None
        self._reset: LogBase | None = None
        self._start_empty(base)
        if store.begin_index >= 0:
            self._load(base)

    def _start_empty(self, base: LogBase) -> None:
        self.base = base
        self.end_index = base.index
        self.end_pos = base.next_pos
        self.end_chain: int | None = 0 if base.index < 0 else None
        self._stable_end = base.index
        self._handed_end = base.index
        self._term_starts: list[int] = []
        self._terms: list[int] = []
        self._tail.clear()
        self._tail_bytes = 0

    def _load(self, base: LogBase) -> None:
        store = self._store
        begin = store.begin_index
        if begin - 1 != base.index or begin == 0:
            self.base = LogBase(begin - 1, -1, store.read(begin).pos)
        index, end = begin, store.end_index
        while index <= end:
            term = store.term(index)
            self._term_starts.append(index)
            self._terms.append(term)
            low, high = index, end
            while low < high:
                middle = (low + high + 1) // 2
                if store.term(middle) == term:
                    low = middle
                else:
                    high = middle - 1
            index = low + 1
        last = store.read(end)
        self.end_index = self._stable_end = self._handed_end = end
        self.end_pos = last.end_pos
        self.end_chain = last.chain_crc

    @property
    def begin_index(self) -> int:
        return self.base.index + 1

    @property
    def end_term(self) -> int:
        """The term of the last entry: what a vote compares."""
        return self._terms[-1] if self._terms else self.base.term

    @property
    def stable_index(self) -> int:
        """The index up to which all entries are on stable storage."""
        return self._stable_end

    @property
    def is_empty(self) -> bool:
        return self.end_index == self.base.index

    def term_at(self, index: int) -> int | None:
        """Returns the term of an entry; None where this log does not know it."""
        if index > self.end_index or index < self.base.index:
            return None
        if index == self.base.index:
            return None if self.base.term < 0 else self.base.term
        return self._terms[bisect_right(self._term_starts, index) - 1]

    def read(self, index: int) -> Entry:
        """Returns the entry at `index`; KeyError where there is none."""
        if not self.begin_index <= index <= self.end_index:
            raise KeyError(index)
        if self.is_recent(index):
            return self._tail[index - self._tail[0].index]
        return self._store.read(index)

    def is_recent(self, index: int) -> bool:
        """Returns whether the entries from `index` on are in memory."""
        return bool(self._tail) and index >= self._tail[0].index

    def slice(self, first: int, count: int, max_bytes: int) -> list[Entry]:
        """Returns up to `count` entries from `first`, at least one, then no more than
        `max_bytes`."""
        last = min(self.end_index, first + count - 1)
        if self.is_recent(first):
            start = first - self._tail[0].index
            candidates = self._tail[start : start + last - first + 1]
        else:
            candidates = []
            left = max_bytes
            for index in range(first, last + 1):
                candidates.append(self.read(index))
                left -= candidates[-1].size
                if left < 0:
                    break
        taken, size = 0, 0
        for entry in candidates:
            size += entry.size
            if taken and size > max_bytes:
                break
            taken += 1
        return candidates[:taken]

    def matches(self, entry: Entry) -> bool:
        """Returns whether this log holds `entry` (so, by the chain of terms, all before it as
        well)."""
        term = self.term_at(entry.index)
        if term is None or term != entry.term:
            return False
        if entry.index == self.base.index:
            return True
        return same_entry(self.read(entry.index), entry)

    def follows(self, entry: Entry) -> bool:
        """Returns whether `entry` may come next: its index, term, place and chain CRC fit our last
        one."""
        if entry.index != self.end_index + 1 or entry.term < self.end_term:
            return False
        if len(entry.body) > largest_body(self._file_size):
            return False
        if entry.pos != place(self.end_pos, entry.size, self._file_size):
            return False
        if entry.chain_crc == 0 or self.end_chain is None:
            return True
        return entry.chain_crc == chain_crc(
            self.end_chain, entry.index, entry.term, entry.pos, entry.body_crc
        )

    def place_of(self, length: int) -> int:
        """Returns where the next entry lies if its body has `length` bytes."""
        return place(self.end_pos, ENTRY_HEADER_SIZE + length, self._file_size)

    def make(self, term: int, body: bytes) -> Entry:
        """Appends a new entry of the leader's."""
        index = self.end_index + 1
        pos = self.place_of(len(body))
        crc = crc_of_body(body)
        # Behind a snapshot the last chain CRC is unknown: the chain starts anew with a 0.
        chain = 0 if self.end_chain is None else chain_crc(self.end_chain, index, term, pos, crc)
        entry = Entry(index, term, pos, body, chain, crc)
        self.append(entry)
        return entry

    def append(self, entry: Entry) -> None:
        """Appends the entry that follows the last one."""
        if entry.index != self.end_index + 1 or entry.term < self.end_term:
            raise ValueError(f"{entry.index} of term {entry.term} does not follow {self!r}")
        if not self._terms or self._terms[-1] != entry.term:
            self._term_starts.append(entry.index)
            self._terms.append(entry.term)
        self._tail.append(entry)
        self._tail_bytes += entry.size
        self.end_index = entry.index
        self.end_pos = entry.end_pos
        self.end_chain = entry.chain_crc

    def truncate_after(self, index: int) -> None:
        """Cuts all behind `index`."""
        if index >= self.end_index:
            return
        if index < self.base.index:
            raise ValueError(f"cannot cut {self!r} to {index}")
        last = self.read(index) if index > self.base.index else None
        if self._tail:
            kept = max(0, index + 1 - self._tail[0].index)
            self._tail_bytes -= sum(entry.size for entry in self._tail[kept:])
            del self._tail[kept:]
        while self._term_starts and self._term_starts[-1] > index:
            self._term_starts.pop()
            self._terms.pop()
        self.end_index = index
        self.end_pos = self.base.next_pos if last is None else last.end_pos
        self.end_chain = last.chain_crc if last is not None else 0 if self.base.index < 0 else None
        self._stable_end = min(self._stable_end, index)
        if index < self._handed_end and self._reset is None:
            self._truncate_after = (
                index if self._truncate_after is None else min(index, self._truncate_after)
            )

    def restart(self, base: LogBase) -> None:
        """Drops everything; the next entry follows `base`."""
        self._start_empty(base)
        self._truncate_after = None
        self._reset = base

    def compacted(self, begin_index: int, covered: LogBase) -> None:
        """Sets where the log begins, after the store removed the entries before it; a snapshot
        covers all up to `covered`."""
        if begin_index <= self.begin_index:
            return
        if covered.index == begin_index - 1:
            self.base = covered
        else:
            self.base = LogBase(begin_index - 1, -1, self.read(begin_index).pos)
        first = bisect_right(self._term_starts, begin_index) - 1
        if first >= 0:
            del self._term_starts[:first], self._terms[:first]
            self._term_starts[0] = begin_index

    def take_writes(self) -> LogWrites:
        """Returns what has to be stored; may be called again only after `stored`."""
        writes = LogWrites(self._reset, self._truncate_after, self._unstable())
        self._reset = self._truncate_after = None
        self._handed_end = self.end_index
        return writes

    def _unstable(self) -> list[Entry]:
        count = self.end_index - self._stable_end
        return self._tail[-count:] if count else []

    @property
    def has_writes(self) -> bool:
        return (
            self.end_index > self._stable_end
            or self._truncate_after is not None
            or self._reset is not None
        )

    @property
    def only_grows(self) -> bool:
        """Whether all that has to be stored are entries behind the stored ones."""
        return self._truncate_after is None and self._reset is None

    def stored(self, end_index: int) -> None:
        """Notes that the last writes, up to `end_index`, are on stable storage. Entries cut since
        then do not count; the next writes have the cut."""
        if self._reset is not None:
            return
        if self._truncate_after is not None:
            end_index = min(end_index, self._truncate_after)
        self._stable_end = max(self._stable_end, min(end_index, self.end_index))
        if self._tail_bytes > 2 * RECENT_BYTES:
            self._trim_tail()

    def _trim_tail(self) -> None:
        drop = 0
        while self._tail_bytes > RECENT_BYTES and self._tail[drop].index < self._stable_end:
            self._tail_bytes -= self._tail[drop].size
            drop += 1
        del self._tail[:drop]

    def __repr__(self) -> str:
        return f"<Log {self.begin_index}..{self.end_index} end_term={self.end_term}>"
