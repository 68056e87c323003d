"""Java's hash codes of `topic#key`, as stock's index takes them (docs/formats/index.md).

One key alone costs a step for each of its characters. Keys that are written together are hashed
together: unique ids of one producer share most of what they begin with, and other keys stand side
by side in one long number, so that a step takes a character of each.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import repeat
from operator import add, and_, itemgetter, mul
from struct import unpack
from sys import byteorder

from rocketmq_tw.interpreter import IS_PYPY
from rocketmq_tw.memo import remembered

_UTF_16 = "utf-16-le" if byteorder == "little" else "utf-16-be"
_MAX_POWERS = 1024
_POWERS = [pow(31, n, 1 << 32) for n in range(_MAX_POWERS)][::-1]
#: Characters of stock's unique ids, and how many of them name host, process and minute.
_UNIQUE, _SHARED = 32, 24
#: Two characters of ASCII added to a hash of at most this stay below the largest int.
_NO_OVERFLOW = 0x7FFFFFFF - 127 * 32
_all_but_two = itemgetter(slice(-2))
_POWER_OF_MIDDLE = pow(31, _UNIQUE - 2 - _SHARED)

#: Fewer keys, or longer ones, are not worth standing side by side.
_FEW, _LONGEST = 8, 64
#: Each key has 64 bits of the long number, of which its hash takes 32: it stays below 64 bits for
#: five more characters.
_LANE = 8
_STEPS = 5


def key_hash(text: str) -> int:
    """Returns Java's `String.hashCode` without its sign, as stock's index takes it."""
    return _magnitude(_hash_code(_units(text)))


def topic_key_hash(topic: str, key: bytes) -> int:
    """Returns `key_hash` of `topic#key`, `key` in UTF-8; the part before the key is computed
    once."""
    if not key.isascii():
        return key_hash(f"{topic}#{str(key, 'utf-8', 'replace')}")
    return _magnitude(_start_of(topic, len(key)) + _hash_code(key))


def key_hashes(topics: Sequence[str], keys: Sequence[bytes]) -> list[int]:
    """Returns `topic_key_hash` of each topic with its key."""
    if not keys:
        return []
    if IS_PYPY:
        # Its compiled loop over a key's characters takes a sixth of what stands below.
        return [topic_key_hash(topic, key) for topic, key in zip(topics, keys, strict=True)]
    if topics.count(topics[0]) == len(topics):
        return _hashes_of_topic(topics[0], keys)
    of_topic: dict[str, list[bytes]] = {}
    for topic, key in zip(topics, keys, strict=True):
        of_topic.setdefault(topic, []).append(key)
    hashes = {topic: iter(_hashes_of_topic(topic, some)) for topic, some in of_topic.items()}
    return list(map(next, map(hashes.__getitem__, topics)))


def _hashes_of_topic(topic: str, keys: Sequence[bytes]) -> list[int]:
    unique_ids = [key for key in keys if len(key) == _UNIQUE]
    if len(unique_ids) == len(keys):
        return _hashes_of_unique_ids(topic, keys)
    if not unique_ids:
        return _hashes_side_by_side(topic, keys)
    others = iter(_hashes_side_by_side(topic, [key for key in keys if len(key) != _UNIQUE]))
    hashes = iter(_hashes_of_unique_ids(topic, unique_ids))
    return [next(hashes if len(key) == _UNIQUE else others) for key in keys]


def _hashes_of_unique_ids(topic: str, keys: Sequence[bytes]) -> list[int]:
    """Where all are stock's unique ids, as nearly always, their common start is computed once."""
    joined = b"".join(keys)
    if not joined.isascii():
        return [topic_key_hash(topic, key) for key in keys]
    starts = list(map(_all_but_two, keys))
    hashes = {start: _hash_of_start(topic, start) for start in set(starts)}
    if max(hashes.values()) > _NO_OVERFLOW or min(hashes.values()) == -0x80000000:
        return [topic_key_hash(topic, key) for key in keys]
    last_but_one, last = joined[_UNIQUE - 2 :: _UNIQUE], joined[_UNIQUE - 1 :: _UNIQUE]
    last_two = map(add, map(mul, last_but_one, repeat(31)), last)
    return list(map(abs, map(add, map(hashes.__getitem__, starts), last_two)))


def _hashes_side_by_side(topic: str, keys: Sequence[bytes]) -> list[int]:
    """Keys of any length: zeros in front of one do not change what its characters come to."""
    lengths = list(map(len, keys))
    width = max(lengths)
    joined = b"".join([key.rjust(width, b"\0") for key in keys])
    if len(keys) < _FEW or width > _LONGEST or not joined.isascii():
        return [topic_key_hash(topic, key) for key in keys]
    size = len(keys) * _LANE
    low_halves = int.from_bytes(b"\xff\xff\xff\xff\0\0\0\0" * len(keys), "little")
    column, codes = bytearray(size), 0
    for place in range(width):
        column[::_LANE] = joined[place::width]
        codes = codes * 31 + int.from_bytes(column, "little")
        if place % _STEPS == _STEPS - 1:
            codes &= low_halves
    of_keys = unpack(f"<{len(keys)}Q", (codes & low_halves).to_bytes(size, "little"))
    starts = {length: _start_of(topic, length) for length in set(lengths)}
    whole = map(and_, map(add, map(starts.__getitem__, lengths), of_keys), repeat(0xFFFFFFFF))
    return [code if code < 0x80000000 else _magnitude(code) for code in whole]


def _start_of(topic: str, length: int) -> int:
    """Returns what `topic#` adds to the hash code of `length` characters behind it; not brought
    down to 32 bits."""
    power = _POWERS[-1 - length] if length < _MAX_POWERS else pow(31, length, 1 << 32)
    return _hash_of_prefix(topic, b"") * power


@remembered(1024)
def _hash_of_start(topic: str, start: bytes) -> int:
    """Of a unique id's characters but the last two, with two characters 0 in their place, and with
    Java's sign."""
    shared = _hash_of_prefix(topic, start[:_SHARED]) * _POWER_OF_MIDDLE
    hashed: int = (shared + _hash_code(start[_SHARED:])) * 31 * 31 & 0xFFFFFFFF
    return hashed if hashed < 0x80000000 else hashed - 0x100000000


@remembered(4096)
def _hash_of_prefix(topic: str, key_start: bytes) -> int:
    return _hash_code(_units(f"{topic}#{key_start.decode()}")) & 0xFFFFFFFF


def _units(text: str) -> bytes | array[int]:
    """Returns UTF-16 units."""
    if text.isascii():
        return text.encode()
    return array("H", text.encode(_UTF_16, "surrogatepass"))


def _hash_code(units: bytes | array[int]) -> int:
    """Not brought down to 32 bits."""
    length = len(units)
    if length <= _MAX_POWERS and not IS_PYPY:
        return sum(map(mul, units, _POWERS[_MAX_POWERS - length :]))
    value = 0
    for unit in units:
        value = value * 31 + unit & 0xFFFFFFFF
    return value


def _magnitude(value: int) -> int:
    value &= 0xFFFFFFFF
    if value & 0x80000000:
        value = 0x100000000 - value
        # The absolute value of the smallest int does not exist in Java; stock takes 0.
        return 0 if value == 0x80000000 else value
    return value
