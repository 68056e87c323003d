"""The units of consume queues, and the search for where those that are kept end."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rocketmq_tw.interpreter import IS_PYPY
from rocketmq_tw.message.tags import FewTagCodes

UNIT = struct.Struct(">qiq")
UNIT_SIZE = 20
FILLER_SIZE = 0x7FFFFFFF
#: Stands in front of a queue's first message.
FILLER = UNIT.pack(0, FILLER_SIZE, 0)
#: Units that are read at once: a page of the disk's, which takes as long as one unit.
_AT_ONCE = 4096 // UNIT_SIZE
#: Each of so many tag codes is searched for in more bytes of units than these. A few units may all
#: match, and are then sooner looked at one by one.
_MOST_SEARCHES, _LEAST_SEARCHED = 4, 64 * UNIT_SIZE

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


if IS_PYPY:
    # A loop is compiled there; a layout of hundreds of fields would be read anew by each call.

    def _positions(units: bytes) -> Sequence[int]:
        return [_POSITION.unpack_from(units, at)[0] for at in range(0, len(units), UNIT_SIZE)]

    def _sizes(units: bytes) -> Sequence[int]:
        return [_SIZE.unpack_from(units, at)[0] for at in range(_SIZE_AT, len(units), UNIT_SIZE)]

    def _codes(units: bytes) -> Sequence[int]:
        return [_CODE.unpack_from(units, at)[0] for at in range(_CODE_AT, len(units), UNIT_SIZE)]

else:
    # One call in C for all of them takes a fifth of the time of a loop.

    def _positions(units: bytes) -> Sequence[int]:
        return struct.unpack(">" + "q12x" * (len(units) // UNIT_SIZE), units)

    def _sizes(units: bytes) -> Sequence[int]:
        return struct.unpack(">" + "8xi8x" * (len(units) // UNIT_SIZE), units)

    def _codes(units: bytes) -> Sequence[int]:
        return struct.unpack(">" + "12xq" * (len(units) // UNIT_SIZE), units)


def places_of(units: bytes) -> tuple[Sequence[int], Sequence[int]]:
    """Returns where each message stands and its size in bytes, of whole units."""
    return _positions(units), _sizes(units)


def columns_of(units: bytes) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    """Returns where each message stands, its size in bytes and its tag code, of whole units."""
    return _positions(units), _sizes(units), _codes(units)


def size_limit_of(units: bytes) -> int:
    """Returns a size in bytes that no message of these whole units is above: the largest one's, or
    up to 255 more. Where one's is negative, as of a damaged unit, no sum with it is below any
    limit."""
    count = len(units) // UNIT_SIZE
    # Seldom has one 64 KiB, and three columns of bytes take a tenth of the time of their numbers.
    if all(units[at::UNIT_SIZE].count(0) == count for at in (_SIZE_AT, _SIZE_AT + 1)):
        return max(units[_SIZE_AT + 2 :: UNIT_SIZE]) << 8 | 0xFF
    sizes = _sizes(units)
    return max(sizes) if min(sizes) >= 0 else sys.maxsize


def matching_units(units: bytes, match: Callable[[int], bool]) -> list[int]:
    """Returns the numbers of the units, counted from 0, whose tag code `match` takes."""
    if isinstance(match, FewTagCodes):
        codes = match.codes
        if len(codes) <= _MOST_SEARCHES and len(units) > _LEAST_SEARCHED:
            return sorted([number for code in codes for number in _numbers_of(units, code)])
        match = codes.__contains__
    return [number for number, code in enumerate(_codes(units)) if match(code)]


def _numbers_of(units: bytes, code: int) -> list[int]:
    """Returns the numbers of the units that have this tag code."""
    wanted = _CODE.pack(code)
    numbers = []
    at = units.find(wanted, _CODE_AT)
    while at >= 0:
        number, rest = divmod(at - _CODE_AT, UNIT_SIZE)
        if not rest:
            numbers.append(number)
        at = units.find(wanted, (number + 1) * UNIT_SIZE + _CODE_AT)
    return numbers
