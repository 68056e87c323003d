"""Bodies that stock's clients compress, and bodies that would fill memory."""

import gzip
import io
import random
import zlib
from typing import Any

import pytest

from rocketmq_tw.message import compression
from rocketmq_tw.message.compression import (
    MOST_MEMBERS,
    BodyTooLarge,
    CompressionType,
    compress,
    compression_flag,
    compression_type,
    decompress,
    gzip_to_zlib,
    missing_packages,
)
from tests.support.interpreter import collect_garbage


@pytest.mark.parametrize("kind", CompressionType)
def test_what_stock_packs_is_unpacked(kind: CompressionType, golden: Any) -> None:
    assert decompress(bytes.fromhex(golden[kind.name]), kind).decode() == golden["body"]


@pytest.mark.parametrize("kind", CompressionType)
@pytest.mark.parametrize("body", [b"", b"x", b"some text " * 10_000])
def test_round_trip(kind: CompressionType, body: bytes) -> None:
    assert decompress(compress(body, kind), kind) == body
    assert compression_type(compression_flag(kind)) is kind


@pytest.mark.parametrize("kind", CompressionType)
def test_a_body_that_grows_beyond_the_limit_is_refused(kind: CompressionType) -> None:
    packed = compress(bytes(10_000_000), kind)
    with pytest.raises(ValueError, match="more than 1000 bytes"):
        decompress(packed, kind, 1000)
    assert len(decompress(packed, kind, 10_000_000)) == 10_000_000


@pytest.mark.parametrize("kind", CompressionType)
def test_damaged_and_cut_bodies_are_refused(kind: CompressionType) -> None:
    packed = compress(b"some text " * 10_000, kind)
    for bad in (b"no frame at all", packed[: len(packed) // 2]):
        with pytest.raises(ValueError, match=kind.name):
            decompress(bad, kind)


@pytest.mark.parametrize(
    ("kind", "package"), [(CompressionType.LZ4, "lz4"), (CompressionType.ZSTD, "zstandard")]
)
def test_a_missing_package_is_named_when_its_body_comes(
    kind: CompressionType, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = compress(b"text", kind)
    assert missing_packages() == []
    monkeypatch.setitem(compression._found_modules, kind, None)
    monkeypatch.setattr(compression, "_lz4_decoders", [])
    assert missing_packages() == [package]
    for fail in (lambda: decompress(packed, kind), lambda: compress(b"text", kind)):
        with pytest.raises(ValueError, match=f"{kind.name} body, for which {package} is missing"):
            fail()


@pytest.mark.parametrize("kind", CompressionType)
def test_nothing_is_left_of_one_body_in_the_next(kind: CompressionType) -> None:
    """Also once the garbage of unpacking was freed."""
    packed = compress(b"some text " * 10_000, kind)
    for _ in range(20):
        with pytest.raises(BodyTooLarge):
            decompress(packed, kind, 1000)
        for bad in (b"no frame at all", packed[: len(packed) // 2]):
            with pytest.raises(ValueError, match=kind.name):
                decompress(bad, kind)
        assert decompress(packed, kind) == b"some text " * 10_000
    collect_garbage()
    assert decompress(packed, kind) == b"some text " * 10_000


def test_flags() -> None:
    assert compression_type(0) is None
    assert compression_type(1) is CompressionType.ZLIB, "4.9's clients set no type"
    assert compression_flag(CompressionType.ZSTD) == 0x201
    with pytest.raises(ValueError):
        compression_type(1 | 7 << 8)


def named_gzip(body: bytes) -> bytes:
    """With the name of a file in its header."""
    packed = io.BytesIO()
    with gzip.GzipFile("name", "wb", fileobj=packed) as file:
        file.write(body)
    return packed.getvalue()


BODIES = (b"", b"x", b"hello " * 1000, random.Random(1).randbytes(300_000), bytes(3_000_000))


@pytest.mark.parametrize("body", BODIES, ids=len)
def test_gzip_becomes_zlib(body: bytes) -> None:
    for packed in (
        gzip.compress(body),
        named_gzip(body),
        gzip.compress(b"a") + gzip.compress(body),
    ):
        found = zlib.decompress(gzip_to_zlib(packed))
        assert found == gzip.decompress(packed)
    # One that needs no packing is not packed again.
    assert len(gzip_to_zlib(gzip.compress(body, 9))) == len(gzip.compress(body, 9)) - 12


def test_gzip_of_many_members() -> None:
    """Nobody packs a body so, and a decoder for each 20 bytes takes the thread for seconds."""
    block = random.Random(1).randbytes(64 * 1024)
    packed = gzip.compress(block) * MOST_MEMBERS
    assert zlib.decompress(gzip_to_zlib(packed)) == block * MOST_MEMBERS
    for too_many in (packed + gzip.compress(b""), gzip.compress(b"") * 200_000):
        with pytest.raises(ValueError, match="more than 256 members"):
            gzip_to_zlib(too_many)


@pytest.mark.parametrize("body", BODIES, ids=len)
def test_gzip_that_is_none(body: bytes) -> None:
    packed = gzip.compress(body)
    wrong_sum = packed[:-5] + bytes([packed[-5] ^ 1]) + packed[-4:]
    wrong_length = packed[:-1] + bytes([packed[-1] ^ 1])
    for damaged in (packed[:-1], packed[:-9], packed[:10], packed + b"x", wrong_sum, wrong_length):
        with pytest.raises(ValueError, match="gzip body"):
            gzip_to_zlib(damaged)
    if body:
        with pytest.raises(ValueError, match="more than"):
            gzip_to_zlib(packed, len(body) - 1)
    gzip_to_zlib(packed, len(body))
