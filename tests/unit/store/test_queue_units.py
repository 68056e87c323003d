"""Where the units end that a queue keeps."""

import sys
from random import Random

import pytest

from rocketmq_tw.message.tags import FewTagCodes
from rocketmq_tw.store.queue_units import (
    FILLER_SIZE,
    UNIT,
    UNIT_SIZE,
    columns_of,
    end_of_kept,
    matching_units,
    places_of,
    size_limit_of,
)


class File:
    """Units of which the first `kept` are written, in files of `size` units; counts reads."""

    def __init__(self, kept: int, size: int) -> None:
        self.reads = 0
        self._data = b"".join(UNIT.pack(n, 100, 0) for n in range(kept))
        self._size = size

    def read(self, offset: int, count: int) -> bytes:
        self.reads += 1
        count = min(count, self._size - offset % self._size)
        found = self._data[offset * UNIT_SIZE :][: count * UNIT_SIZE]
        return found.ljust(count * UNIT_SIZE, b"\0")


@pytest.mark.parametrize("size", [3, 204, 1000, 4096])
def test_the_end_is_found_wherever_it_is(size: int) -> None:
    high = 4 * size
    for kept in {0, 1, 2, size - 1, size, size + 1, 2 * size + 1, high - 1, high}:
        file = File(kept, size)
        assert end_of_kept(file.read, 0, high, lambda unit: unit.is_written) == kept


def test_what_cannot_be_read_is_not_kept() -> None:
    assert end_of_kept(lambda offset, count: b"", 7, 1000, lambda unit: True) == 7
    assert end_of_kept(lambda offset, count: b"", 7, 17, lambda unit: True) == 7


@pytest.mark.parametrize(("kept", "reads"), [(0, 2), (1, 2), (200, 2), (5_000, 13), (300_000, 13)])
def test_few_reads_are_enough(kept: int, reads: int) -> None:
    file = File(kept, 300_000)
    assert end_of_kept(file.read, 0, 300_000, lambda unit: unit.is_written) == kept
    assert file.reads <= reads


@pytest.mark.parametrize("count", [0, 1, 2, 700])
def test_columns_are_what_stands_in_each_unit(count: int) -> None:
    """There are two ways to read them, of which each Python takes one."""
    seed = 20261129
    random = Random(seed)
    longs = [-(2**63), -1, 0, 1, 2**63 - 1]
    each = [
        (
            random.choice([*longs, random.getrandbits(60)]),
            random.choice([-(2**31), -1, 0, 2**31 - 1, random.getrandbits(20)]),
            random.choice([*longs, random.getrandbits(32)]),
        )
        for _ in range(count)
    ]
    units = b"".join(UNIT.pack(*unit) for unit in each)
    positions, sizes, codes = (list(column) for column in columns_of(units))
    assert list(zip(positions, sizes, codes, strict=True)) == each, seed
    assert list(map(list, places_of(units))) == [positions, sizes]


@pytest.mark.parametrize("count", [0, 1, 64, 65, 700])
def test_matching_units_are_those_whose_code_is_wanted(count: int) -> None:
    """Few codes are searched for among many units, also where other columns look like them."""
    seed = 20261129
    random = Random(seed)
    values = [-(2**63), -1, 0, 1, 256, 2**63 - 1]
    each = [
        (random.choice(values), random.choice([-1, 0, 1, 256]), random.choice(values))
        for _ in range(count)
    ]
    units = b"".join(UNIT.pack(*unit) for unit in each)
    for most in range(len(values) + 1):
        wanted = FewTagCodes(values[:most])
        expected = [number for number, unit in enumerate(each) if wanted(unit[2])]
        assert matching_units(units, wanted) == expected, seed
        assert matching_units(units, values[:most].__contains__) == expected, seed


@pytest.mark.parametrize(
    ("sizes", "least", "most"),
    [
        ([91], 91, 91 + 255),
        ([250, 3000, 251], 3000, 3000 + 255),
        ([65_535], 65_535, 65_535),
        ([250, 65_536], 65_536, 65_536),
        ([4 << 20, 91], 4 << 20, 4 << 20),
        ([91, -1], sys.maxsize, sys.maxsize),
        ([91, FILLER_SIZE], FILLER_SIZE, FILLER_SIZE),
    ],
)
def test_no_message_is_above_the_limit(sizes: list[int], least: int, most: int) -> None:
    units = b"".join(UNIT.pack(-1, size, -1) for size in sizes)
    assert least <= size_limit_of(units) <= most
