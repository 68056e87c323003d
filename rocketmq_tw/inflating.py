"""Decoders of zlib, whose memory is not on the heap that a collector of garbage looks at."""

from __future__ import annotations

import zlib

from rocketmq_tw.interpreter import IS_PYPY

#: Bytes that one takes: zlib's own state, and the window of 32 KiB.
_MEMORY = 48 << 10


def inflater(window: int = zlib.MAX_WBITS) -> zlib._Decompress:
    """Returns a decoder for one stream, `zlib.decompressobj(window)`.

    CPython frees it with its last use. PyPy does so in its next collection, and collects in time
    only if it is told what is waiting for that: many small bodies would take gigabytes."""
    if IS_PYPY:
        _expect_garbage(_MEMORY)
    return zlib.decompressobj(window)


if IS_PYPY:
    from __pypy__ import add_memory_pressure as _expect_garbage  # type: ignore[import-not-found]
