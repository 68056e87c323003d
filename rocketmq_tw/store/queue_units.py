"""The units of consume queues, and the search for where those that are kept end."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import compress
from typing import NamedTuple

from rocketmq_tw.interpreter import IS_PYPY

UNIT = struct.Struct(">qiq")
UNIT_SIZE = 20
FILLER_SIZE = 0x7FFFFFFF
#: Stands in front of a queue's first message.
FILLER = UNIT.pack(0, FILLER_SIZE, 0)
#: Units that are read at once: a page of the disk's, which takes as long as one unit.
_AT_ONCE = 4096 // UNIT_SIZE

_POSITION, _SIZE, _CODE = struct.Struct(">q"), struct.Struct(">i"), struct.Struct(">q")
_SIZE_AT, _CODE_AT = 8, 12


class Unit(NamedTuple):
    """One unit of a consume queue: where a message stands in the log, its size in bytes and its tag
    code."""

    position: int
    size: int
    tags_code: int

    @property
    def is_filler(self) -> bool:
        """Whether it stands for no message."""
        return self.size == FILLER_SIZE

    @property
    def is_written(self) -> bool:
        """Whether it is anything but the zeros of a file's unwritten rest."""
        return self.position >= 0 and self.size > 0


def end_of_kept(
    read: Callable[[int, int], bytes], low: int, high: int, keep: Callable[[Unit], bool]
) -> int:
    """Returns the first queue offset of `low` to `high` whose unit `keep` refuses, or that cannot
    be read; `high` where there is none. What is kept is a prefix; where it is not, the offset may
    be too late, but never too early.

    `read(offset, count)` gives up to `count` units, as many as one file has. Most queues are short:
    they take two reads.
    """
    middle = low + _AT_ONCE
    while high - low > _AT_ONCE:
        if _kept(read(middle, 1), keep):
            low = middle + 1
        else:
            high = middle
        middle = (low + high) // 2
    while low < high:
        units = read(low, high - low)
        count = len(units) // UNIT_SIZE
        kept = _kept(units[: count * UNIT_SIZE], keep)
        low += kept
        if kept < count or not count:
            break
    return low


def _kept(units: bytes, keep: Callable[[Unit], bool]) -> int:
    """Returns how many of the units `keep` takes."""
    low, high = 0, len(units) // UNIT_SIZE
    while low < high:
        middle = (low + high) // 2
        if keep(Unit._make(UNIT.unpack_from(units, middle * UNIT_SIZE))):
            low = middle + 1
        else:
            high = middle
    return low


#: Of units: where each message stands, its size in bytes, and its tag code.
UnitColumns = tuple[Sequence[int], Sequence[int], Sequence[int]]

if IS_PYPY:

    def columns_of(units: bytes) -> UnitColumns:
        """Returns what stands in whole units, by columns."""
        starts = range(0, len(units), UNIT_SIZE)
        return (
            [_POSITION.unpack_from(units, at)[0] for at in starts],
            sizes_of(units),
            [_CODE.unpack_from(units, at + _CODE_AT)[0] for at in starts],
        )

    def sizes_of(units: bytes) -> Sequence[int]:
        """Returns the size of each message in bytes."""
        return [_SIZE.unpack_from(units, at)[0] for at in range(_SIZE_AT, len(units), UNIT_SIZE)]

    def matching_units(units: bytes, match: Callable[[int], bool]) -> list[int]:
        """Returns the numbers of the units, counted from 0, whose tag code `match` takes."""
        at = range(_CODE_AT, len(units), UNIT_SIZE)
        codes = [_CODE.unpack_from(units, each)[0] for each in at]
        return [number for number, code in enumerate(codes) if match(code)]

else:
    # One call in C for all of them takes a third of the time of a loop there.

    def columns_of(units: bytes) -> UnitColumns:
        """Returns what stands in whole units, by columns."""
        fields = struct.unpack(">" + "qiq" * (len(units) // UNIT_SIZE), units)
        return fields[::3], fields[1::3], fields[2::3]

    def sizes_of(units: bytes) -> Sequence[int]:
        """Returns the size of each message in bytes."""
        return struct.unpack(">" + "8xi8x" * (len(units) // UNIT_SIZE), units)

    def matching_units(units: bytes, match: Callable[[int], bool]) -> list[int]:
        """Returns the numbers of the units, counted from 0, whose tag code `match` takes."""
        count = len(units) // UNIT_SIZE
        codes = struct.unpack(">" + "12xq" * count, units)
        return list(compress(range(count), map(match, codes)))
