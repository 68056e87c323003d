"""The message index against the records of the log."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from sys import byteorder
from typing import NamedTuple

import attrs

from rocketmq_tw.formats.flat import flat
from rocketmq_tw.formats.index import ENTRY, HEADER, SLOT_SIZE, entry_at
from rocketmq_tw.storecheck.findings import Findings, Remedy
from rocketmq_tw.storecheck.layout import Known, Sizes
from rocketmq_tw.storecheck.long_file import names_in, tell_no_directory, tell_no_file
from rocketmq_tw.storecheck.records import LogRecord

_HEADER = flat(HEADER)
_ENTRY = flat(ENTRY)
_BLOCK = 8192
_NAME_DIGITS = 17


def index_files(root: str) -> list[str]:
    """Returns the names of the index's files in the store at `root`: the times at which they were
    begun."""
    return [name for name in _names_of_files(root) if os.path.isfile(f"{root}/index/{name}")]


def _names_of_files(root: str) -> list[str]:
    return [
        name
        for name in names_in(f"{root}/index")
        if len(name) == _NAME_DIGITS and name.isascii() and name.isdigit()
    ]


def _in_order(names: list[str], root: str, sizes: Sizes) -> list[str]:
    """Returns names of the index's files in the order of their first messages, which is that of
    the names unless a clock was set back. Files without messages, and those that cannot be read,
    keep their places. Raises `OSError`."""
    begins = {}
    for name in names:
        begin = _begin(f"{root}/index/{name}", sizes)
        if begin is not None:
            begins[name] = begin
    moved = iter(sorted(begins, key=lambda name: begins[name]))
    return [next(moved) if name in begins else name for name in names]


def _begin(path: str, sizes: Sizes) -> tuple[int, int] | None:
    """Returns the log offset of the first message and the count of the file at `path`; None where
    it has no message, or a wrong size."""
    expected = entry_at(sizes.index_entries, sizes.index_slots)
    if not os.path.isfile(path) or os.path.getsize(path) != expected:
        return None
    with open(path, "rb", buffering=0) as opened:
        header = IndexHeader(*_HEADER.unpack(opened.read(_HEADER.size)))
    return (header.begin, header.count) if header.count > 1 else None


@attrs.frozen
class IndexHeader:
    """What stands in front of a file's slots: store times in ms and log offsets of its first and
    last message, and one more than the number of its entries."""

    begin_time: int
    end_time: int
    begin: int
    end: int
    slots_in_use: int
    count: int


def whole_files(
    root: str, sizes: Sizes, findings: Findings, header_remedy: Remedy = Remedy.REPAIR
) -> Iterator[tuple[str, IndexHeader, int]]:
    """Yields the name of each file of the store at `root` that can be read, its header, and a
    descriptor that is open until the next one, in the order of their messages; reports the others.
    Raises `OSError`."""
    if os.path.lexists(f"{root}/index") and not os.path.isdir(f"{root}/index"):
        tell_no_directory("index", findings)
    expected = entry_at(sizes.index_entries, sizes.index_slots)
    for name in _in_order(_names_of_files(root), root, sizes):
        path, file = f"{root}/index/{name}", f"index/{name}"
        if not os.path.isfile(path):
            tell_no_file(file, findings)
            continue
        with open(path, "rb", buffering=0) as opened:
            descriptor = opened.fileno()
            size = os.fstat(descriptor).st_size
            if size != expected:
                advice = "" if sizes.are_given else ": give the broker's configuration with -c"
                findings.add(
                    "index-size", file, size,
                    f"it has {size} bytes, with {sizes.index_slots} slots and"
                    f" {sizes.index_entries} entries it would have {expected}{advice}",
                )  # fmt: skip
                continue
            fields = _HEADER.unpack(os.pread(descriptor, _HEADER.size, 0))
            header = IndexHeader(*fields)
            is_count = 0 <= header.count <= sizes.index_entries
            if not is_count or header.begin > header.end or header.begin_time < 0:
                text = f"its header cannot be: {fields}"
                findings.add("index-header", file, 0, text, header_remedy)
                continue
            yield name, header, descriptor


class _Entry(NamedTuple):
    """An entry of the index, with the file and the byte where it stands."""

    offset: int
    key_hash: int
    file: str
    at: int


class IndexCheck:
    """The files below `root`. Records are to be given in the order of the log, from its start
    on."""

    def __init__(self, root: str, findings: Findings, sizes: Sizes, known: Known) -> None:
        self._root = root
        self._findings = findings
        self._sizes = sizes
        self._slots = sizes.index_slots
        self._known = known
        self.files = _in_order(index_files(root), root, sizes)
        self.entries = 0
        self._begin: int | None = None
        #: Messages whose keys are missing, without a later one that has them: first and number.
        self._missing: tuple[LogRecord, int] | None = None
        self._coming = self._all_entries()
        self._next = next(self._coming, None)

    def put(self, record: LogRecord, hashes: set[int]) -> None:
        """Compares the keys of a record with the index."""
        position = record.position
        found: set[int] = set()
        while self._next is not None and self._next.offset <= position:
            entry = self._next
            if entry.offset < position or entry.key_hash not in hashes:
                self._report_astray(entry)
            else:
                found.add(entry.key_hash)
            self._next = next(self._coming, None)
        if self._begin is None or position < self._begin or not self._known.is_due(position):
            return
        if len(found) < len(hashes):
            first, count = self._missing or (record, 0)
            self._missing = (first, count + 1)
        elif found and self._missing is not None:
            self._report_missing(Remedy.REPAIR)

    def finish(self) -> None:
        """Looks at what no record led to; to be called at the end of the log."""
        while self._next is not None:
            self._report_astray(self._next)
            self._next = next(self._coming, None)
        if self._missing is not None:
            self._report_missing(self._known.tail_remedy)

    def _report_astray(self, entry: _Entry) -> None:
        if self._known.is_astray(entry.offset):
            self._findings.add(
                "index-astray", entry.file, entry.at,
                f"an entry leads to {entry.offset}, where the log has no message with that key",
            )  # fmt: skip

    def _report_missing(self, remedy: Remedy) -> None:
        assert self._missing is not None
        (record, count), self._missing = self._missing, None
        more = f", nor {count - 1} message{'s' * (count > 2)} behind it" if count > 1 else ""
        self._findings.add(
            "index-missing", f"index/{self.files[-1]}", None,
            f"it has not all keys of the message at {record.position}{more}", remedy,
        )  # fmt: skip

    def _all_entries(self) -> Iterator[_Entry]:
        root, remedy = self._root, self._known.tail_remedy
        for name, header, descriptor in whole_files(root, self._sizes, self._findings, remedy):
            yield from self._entries(f"index/{name}", header, descriptor)

    def _entries(self, file: str, header: IndexHeader, descriptor: int) -> Iterator[_Entry]:
        begin, end, count = header.begin, header.end, header.count
        # A file without an entry has count 0 or 1.
        if count > 1 and self._begin is None:
            self._begin = begin
        slots = array("i", bytes(self._slots * SLOT_SIZE))
        last = begin
        number = 1
        while number < count:
            size = min(count - number, _BLOCK) * _ENTRY.size
            data = os.pread(descriptor, size, entry_at(number, self._slots))
            if len(data) < size:
                break
            for key_hash, offset, seconds, previous in _ENTRY.iter_unpack(data):
                at = entry_at(number, self._slots)
                slot = key_hash % self._slots
                if key_hash < 0 or offset < last or seconds < 0:
                    self._findings.add(
                        "index-entry", file, at,
                        f"entry {number} cannot be: hash {key_hash}, offset {offset} behind"
                        f" {last}, {seconds} s",
                    )  # fmt: skip
                    return
                if previous != slots[slot]:
                    self._findings.add(
                        "index-chain", file, at,
                        f"entry {number} names {previous} as the one before it, which is"
                        f" {slots[slot]}",
                    )  # fmt: skip
                slots[slot] = number
                last = offset
                self.entries += 1
                yield _Entry(offset, key_hash, file, at)
                number += 1
        if count > 1 and last != end:
            self._findings.add(
                "index-header", file, 24, f"its header ends at {end}, its entries at {last}"
            )
        self._compare_slots(file, descriptor, slots, max(count, 1))

    def _compare_slots(self, file: str, descriptor: int, expected: array[int], count: int) -> None:
        size = len(expected) * SLOT_SIZE
        found = array("i", os.pread(descriptor, size, _HEADER.size).ljust(size, b"\0"))
        if byteorder == "little":
            found.byteswap()
        if found == expected:
            return
        # A number that no entry has counts as none.
        wrong = (
            slot
            for slot, (number, wanted) in enumerate(zip(found, expected, strict=True))
            if number != wanted and not (wanted == 0 and not 0 < number < count)
        )
        slot = next(wrong, None)
        if slot is not None:
            others = sum(1 for _ in wrong)
            more = f"; {others} more are wrong" if others else ""
            self._findings.add(
                "index-slot", file, _HEADER.size + slot * SLOT_SIZE,
                f"slot {slot} leads to entry {found[slot]}, its newest one is {expected[slot]}"
                f"{more}", self._known.tail_remedy,
            )  # fmt: skip
