"""The bits of groups, against stock's."""

import pytest

from rocketmq_tw.broker.filters.bloom import BloomFilter
from rocketmq_tw.wire.bodies.groups import BloomFilterData

LONG = "%RETRY%group_with_a_long_name_0123456789#TopicTest_0123456789abcdef"


@pytest.mark.parametrize(
    ("error_percent", "expected", "hashes", "bits", "key", "positions"),
    [
        # what both stock versions give
        (20, 32, 3, 112, "", [0, 0, 0]),
        (20, 32, 3, 112, "CID_0#topic0", [80, 66, 42]),
        (20, 32, 3, 112, "G#T", [24, 26, 83]),
        (20, 32, 3, 112, "Ünïcode_group#topic-ß€😀", [54, 13, 62]),
        (
            20,
            32,
            3,
            112,
            LONG,
            [81, 89, 97],
        ),
        (20, 32, 3, 112, "0123456789abcdef", [11, 47, 60]),
        (20, 32, 3, 112, "0123456789abcde", [87, 93, 12]),
        (1, 300, 7, 2880, "", [0, 0, 0, 0, 0, 0, 0]),
        (1, 300, 7, 2880, "CID_0#topic0", [2576, 2130, 2058, 2648, 1595, 2593, 2113]),
        (1, 300, 7, 2880, "G#T", [616, 138, 339, 2318, 1039, 1618, 1140]),
        (1, 300, 7, 2880, "Ünïcode_group#topic-ß€😀", [1286, 301, 1246, 2794, 1673, 2754, 1422]),
        (
            1,
            300,
            7,
            2880,
            LONG,
            [945, 393, 2721, 710, 1262, 1814, 2366],
        ),
        (1, 300, 7, 2880, "0123456789abcdef", [1467, 463, 796, 1800, 75, 1184, 2188]),
        (1, 300, 7, 2880, "0123456789abcde", [1543, 1597, 1228, 1961, 864, 810, 2379]),
        (50, 1, 1, 8, "", [0]),
        (50, 1, 1, 8, "CID_0#topic0", [0]),
        (50, 1, 1, 8, "G#T", [0]),
        (50, 1, 1, 8, "Ünïcode_group#topic-ß€😀", [6]),
        (50, 1, 1, 8, LONG, [1]),
        (50, 1, 1, 8, "0123456789abcdef", [3]),
        (50, 1, 1, 8, "0123456789abcde", [7]),
    ],
)
def test_bits_are_stocks(
    error_percent: int, expected: int, hashes: int, bits: int, key: str, positions: list[int]
) -> None:
    bloom = BloomFilter(error_percent, expected)
    assert (bloom.hashes, bloom.bits) == (hashes, bits)
    assert bloom.positions(key) == positions


def test_a_group_is_found_in_a_bit_map() -> None:
    bloom = BloomFilter(20, 32)
    data = bloom.data_of("CID_0", "topic0")
    assert bloom.is_own(data)
    found = bloom.bit_map(data.bit_pos)
    assert len(found) * 8 == bloom.bits
    assert [n for n in range(bloom.bits) if found[n >> 3] >> (n & 7) & 1] == sorted(data.bit_pos)


@pytest.mark.parametrize(
    "data",
    [
        None,
        BloomFilterData(),
        BloomFilterData(bit_num=112, bit_pos=[1, 2]),
        BloomFilterData(bit_num=216, bit_pos=[1, 2, 3]),
        BloomFilterData(bit_num=112, bit_pos=[1, 2, 112]),
    ],
)
def test_bits_of_another_filter_are_told_apart(data: BloomFilterData | None) -> None:
    assert not BloomFilter(20, 32).is_own(data)
