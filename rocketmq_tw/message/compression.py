"""Compressed bodies: zlib, LZ4 frames and Zstandard, told apart by `sysFlag`.

Format: docs/formats/message.md, "Compressed bodies".
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from enum import IntEnum
from importlib import import_module
from struct import pack
from typing import Any

from rocketmq_tw.inflating import inflater
from rocketmq_tw.interpreter import IS_PYPY
from rocketmq_tw.message.model import COMPRESSED, COMPRESSION_TYPE, COMPRESSION_TYPE_SHIFT

#: A body is never larger than this when it is unpacked: ten times what a broker takes by default.
DEFAULT_BODY_LIMIT = 40 * 1024 * 1024
#: What a gzip body begins with whose header is the ten bytes that it must have.
_PLAIN_GZIP = b"\x1f\x8b\x08\x00"
_GZIP_HEADER = 10
#: Members of a gzip body: tools that pack blocks by themselves make one for each 64 KiB.
MOST_MEMBERS = 256
#: Bytes that are read or unpacked at once.
_STEP = 256 * 1024
#: Has zlib read the frame of gzip.
_GZIP_WINDOW = 16 + zlib.MAX_WBITS


class CompressionType(IntEnum):
    """How a body is compressed; the number stands in three bits of `sysFlag`."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


#: What reads and makes them, and the package that has it. On PyPy they are there only where they
#: could be compiled.
_MODULES = {
    CompressionType.LZ4: ("lz4.frame", "lz4"),
    CompressionType.ZSTD: ("zstandard", "zstandard"),
}


class BodyTooLarge(ValueError):
    """A body unpacks to more bytes than its reader takes."""


def _found(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        return None


_found_modules = {kind: _found(name) for kind, (name, _) in _MODULES.items()}


def missing_packages() -> list[str]:
    """Returns the packages that are not installed, so that bodies of a kind cannot be unpacked."""
    return [package for kind, (_, package) in _MODULES.items() if _found_modules[kind] is None]


def _module(kind: CompressionType) -> Any:
    """Returns what reads and makes bodies of a kind; raises `ValueError` where it is missing."""
    module = _found_modules[kind]
    if module is None:
        package = _MODULES[kind][1]
        raise ValueError(f"a {kind.name} body, for which {package} is missing: pip install it")
    return module


def compression_flag(kind: CompressionType) -> int:
    """Returns the bits of `sysFlag` that say a body is compressed so."""
    return COMPRESSED | kind << COMPRESSION_TYPE_SHIFT


def compression_type(sys_flag: int) -> CompressionType | None:
    """Returns how the body is compressed; None where it is not. Raises `ValueError` for unknown
    bits.

    Zero bits mean zlib: old clients know no others.
    """
    if not sys_flag & COMPRESSED:
        return None
    number = (sys_flag & COMPRESSION_TYPE) >> COMPRESSION_TYPE_SHIFT
    return CompressionType(number or CompressionType.ZLIB)


def compress(body: bytes, kind: CompressionType, level: int = 5) -> bytes:
    """Returns `body` compressed; 5 is the level of stock's producers. Raises `ValueError` where the
    package for it is missing."""
    if kind is CompressionType.ZLIB:
        return zlib.compress(body, level)
    if kind is CompressionType.ZSTD:
        packed: bytes = _module(kind).ZstdCompressor(level=level).compress(body)
    else:
        packed = _module(kind).compress(body)
    return packed


def decompress(body: bytes, kind: CompressionType, limit: int = DEFAULT_BODY_LIMIT) -> bytes:
    """Returns the uncompressed body. Raises `ValueError` where it is damaged or cut off, or the
    package for it is missing, `BodyTooLarge` where it is larger than `limit` bytes."""
    try:
        unpacked, complete = _UNPACK[kind](body, limit + 1)
    except _UNREADABLE as error:
        raise ValueError(f"a {kind.name} body that cannot be read: {error}") from error
    if len(unpacked) > limit:
        raise BodyTooLarge(f"a {kind.name} body that unpacks to more than {limit} bytes")
    if not complete:
        raise ValueError(f"a {kind.name} body that is cut off after {len(body)} bytes")
    return unpacked


def check_zlib(body: bytes, limit: int = DEFAULT_BODY_LIMIT) -> None:
    """Raises `ValueError` where a zlib body is damaged, cut off or unpacks to more than `limit`
    bytes."""
    decoder = inflater()
    length = 0
    try:
        for part in _unpacked_parts(decoder, body):
            length += len(part)
            if length > limit:
                raise BodyTooLarge(f"a zlib body that unpacks to more than {limit} bytes")
    except zlib.error as error:
        raise ValueError(f"a zlib body that cannot be read: {error}") from error
    if not decoder.eof:
        raise ValueError(f"a zlib body that is cut off after {len(body)} bytes")


def gzip_to_zlib(body: bytes, limit: int = DEFAULT_BODY_LIMIT) -> bytes:
    """Returns a gzip body as a zlib one, which is what `CompressionType.ZLIB` means to all readers.
    Raises `ValueError` where it is damaged, cut off or unpacks to more than `limit` bytes."""
    if body[:4] == _PLAIN_GZIP:
        renamed = _with_zlib_frame(body, limit)
        if renamed is not None:
            return renamed
    try:
        return zlib.compress(_unpack_members(body, limit), 5)
    except zlib.error as error:
        raise ValueError(f"a gzip body that cannot be read: {error}") from error


def _unpack_members(body: bytes, limit: int) -> bytearray:
    """Returns what the members of a gzip body hold, one behind the other."""
    unpacked, packed, start = bytearray(), memoryview(body), 0
    for _ in range(MOST_MEMBERS):
        decoder = inflater(_GZIP_WINDOW)
        while not decoder.eof:
            # No more at once: what stands behind a member is copied.
            part = packed[start : start + _STEP]
            if not part:
                raise ValueError(f"a gzip body that is cut off after {len(body)} bytes")
            unpacked += decoder.decompress(part, limit + 1 - len(unpacked))
            if len(unpacked) > limit:
                raise ValueError(f"a gzip body that unpacks to more than {limit} bytes")
            start += len(part) - len(decoder.unused_data)
        if start == len(body):
            return unpacked
    raise ValueError(f"a gzip body of more than {MOST_MEMBERS} members: pack it as a whole")


def _with_zlib_frame(body: bytes, limit: int) -> bytes | None:
    """Returns a gzip body of one member with the same deflated bytes as a zlib one, which takes a
    fifth of the time of packing them again; None for what is no such body, or unpacks to more than
    `limit`."""
    decoder = inflater(-zlib.MAX_WBITS)
    checksum, crc, length = 1, 0, 0
    try:
        for part in _unpacked_parts(decoder, body[_GZIP_HEADER:]):
            length += len(part)
            if length > limit:
                return None
            checksum, crc = zlib.adler32(part, checksum), zlib.crc32(part, crc)
    except zlib.error:
        return None
    if decoder.unused_data != pack("<LL", crc, length & 0xFFFFFFFF):
        return None
    end = len(body) - len(decoder.unused_data)
    return b"\x78\x5e" + body[_GZIP_HEADER:end] + pack(">L", checksum)


def _unpacked_parts(decoder: Any, packed: bytes) -> Iterator[bytes]:
    """Yields what a decoder of zlib unpacks, `_STEP` bytes at most at once, up to its end or that
    of `packed`."""
    while not decoder.eof:
        part = decoder.decompress(packed, _STEP)
        packed = decoder.unconsumed_tail
        if not part and not decoder.eof:
            return
        yield part


def _unpack_zlib(body: bytes, most: int) -> tuple[bytes, bool]:
    decoder = inflater()
    return decoder.decompress(body, most), decoder.eof


#: Those that nobody uses: as many as ever unpacked at once. On PyPy none is ever freed, since that
#: crashes it: lz4 takes its PyCapsule_Type, a macro there, for a sign of Python 2.6, and frees the
#: wrong memory.
_lz4_decoders: list[Any] = []


def _unpack_lz4(body: bytes, most: int) -> tuple[bytes, bool]:
    try:
        # Threads share the list: what one has taken no other has.
        decoder = _lz4_decoders.pop()
    except IndexError:
        decoder = _module(CompressionType.LZ4).LZ4FrameDecompressor()
    try:
        unpacked: bytes = decoder.decompress(body, max_length=most)
        return unpacked, decoder.eof
    finally:
        try:
            # What it has not read may be large.
            decoder.reset()
        finally:
            if IS_PYPY:
                _lz4_decoders.append(decoder)


def _unpack_zstd(body: bytes, most: int) -> tuple[bytes, bool]:
    # A streaming reader reports a cut-off frame only as less data than the frame announces, so
    # frames without a size (Java's streams write none) end with what is there.
    zstandard = _module(CompressionType.ZSTD)
    with zstandard.ZstdDecompressor().stream_reader(body) as reader:
        unpacked = reader.read(most)
    size = zstandard.frame_content_size(body)
    return unpacked, size in (-1, len(unpacked))


#: What they raise of damaged bodies.
_UNREADABLE: tuple[type[Exception], ...] = (zlib.error, RuntimeError, EOFError)
if _found_modules[CompressionType.ZSTD] is not None:
    _UNREADABLE += (_found_modules[CompressionType.ZSTD].ZstdError,)

_UNPACK = {
    CompressionType.ZLIB: _unpack_zlib,
    CompressionType.LZ4: _unpack_lz4,
    CompressionType.ZSTD: _unpack_zstd,
}
