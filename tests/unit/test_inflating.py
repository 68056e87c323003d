"""Decoders of zlib are freed as fast as bodies come, also where garbage is found later."""

import zlib

from rocketmq_tw.inflating import inflater
from rocketmq_tw.services.process import resident_bytes

_BODY = b"hello" * 10
_MANY = 20_000


def test_many_small_bodies_leave_no_memory_behind() -> None:
    packed = zlib.compress(_BODY)
    assert inflater().decompress(packed) == _BODY
    before = resident_bytes()
    for _ in range(_MANY):
        inflater().decompress(packed)
    # Each takes 7 KiB and more.
    assert resident_bytes() - before < 64 << 20


def test_a_window_may_be_given() -> None:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    packed = packer.compress(_BODY) + packer.flush()
    assert inflater(-zlib.MAX_WBITS).decompress(packed) == _BODY
