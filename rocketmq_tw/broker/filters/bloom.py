"""The Bloom filter of stock, by whose bits a message remembers which groups' expressions it matched
(docs/formats/consumequeue-ext.md)."""

from __future__ import annotations

import math
from collections.abc import Iterable

from rocketmq_tw.wire.bodies.groups import BloomFilterData

_MASK = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


class BloomFilter:
    """A filter for `expected` groups with at most `error_percent` of false positives. Each group
    has `hashes` bits out of `bits`, a multiple of 8."""

    def __init__(self, error_percent: int, expected: int) -> None:
        error_rate = error_percent / 100
        self.hashes = math.ceil(math.log(error_rate) / math.log(0.5))
        bits = math.ceil(
            expected * (math.log(1 / error_rate) / math.log(2)) * (math.log(math.e) / math.log(2))
        )
        self.bits = 8 * math.ceil(bits / 8)

    def positions(self, key: str) -> list[int]:
        """Returns the numbers of a key's bits."""
        hashed = murmur3(key.encode("utf-8", "replace"))
        first, second = hashed & 0xFFFFFFFF, hashed >> 32
        found = []
        for number in range(1, self.hashes + 1):
            combined = first + number * second & 0xFFFFFFFF
            if combined & 0x80000000:
                combined ^= 0xFFFFFFFF
            found.append(combined % self.bits)
        return found

    def data_of(self, group: str, topic: str) -> BloomFilterData:
        """Returns the bits of a group's expression for a topic, as `consumerFilter.json` has
        them."""
        return BloomFilterData(bit_pos=self.positions(f"{group}#{topic}"), bit_num=self.bits)

    def is_own(self, data: BloomFilterData | None) -> bool:
        """Returns whether bits in a file were made by a filter of these measures."""
        return (
            data is not None
            and data.bit_num == self.bits
            and len(data.bit_pos) == self.hashes
            and all(0 <= position < self.bits for position in data.bit_pos)
        )

    def bit_map(self, positions: Iterable[int]) -> bytes:
        """Returns all bits as bytes, of which those at `positions` are set."""
        found = bytearray(self.bits // 8)
        for position in positions:
            found[position >> 3] |= 1 << (position & 7)
        return bytes(found)


def murmur3(data: bytes) -> int:
    """Returns the first 64 bits of MurmurHash3's x64 variant of 128 bits, seed 0."""
    first = second = 0
    whole = len(data) - len(data) % 16
    for at in range(0, whole, 16):
        first ^= _mixed_first(int.from_bytes(data[at : at + 8], "little"))
        first = (_rotated(first, 27) + second) * 5 + 0x52DCE729 & _MASK
        second ^= _mixed_second(int.from_bytes(data[at + 8 : at + 16], "little"))
        second = (_rotated(second, 31) + first) * 5 + 0x38495AB5 & _MASK
    second ^= _mixed_second(int.from_bytes(data[whole + 8 :], "little"))
    first ^= _mixed_first(int.from_bytes(data[whole : whole + 8], "little"))
    first ^= len(data)
    second ^= len(data)
    first = first + second & _MASK
    second = second + first & _MASK
    return _final(first) + _final(second) & _MASK


def _rotated(number: int, by: int) -> int:
    return (number << by | number >> 64 - by) & _MASK


def _mixed_first(block: int) -> int:
    return _rotated(block * _C1 & _MASK, 31) * _C2 & _MASK


def _mixed_second(block: int) -> int:
    return _rotated(block * _C2 & _MASK, 33) * _C1 & _MASK


def _final(number: int) -> int:
    number = (number ^ number >> 33) * 0xFF51AFD7ED558CCD & _MASK
    number = (number ^ number >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return number ^ number >> 33
