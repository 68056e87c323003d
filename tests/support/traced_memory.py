"""The memory that Python's allocator gave meanwhile."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


class TracedMemory:
    """What was allocated since a `traced_memory()` began, in bytes; to be asked before it ends."""

    def __init__(self, tracemalloc: Any) -> None:
        self._traced = tracemalloc.get_traced_memory

    @property
    def held(self) -> int:
        """What is not freed yet."""
        return int(self._traced()[0])

    @property
    def peak(self) -> int:
        """The most that there was at once."""
        return int(self._traced()[1])


@contextmanager
def traced_memory() -> Iterator[TracedMemory]:
    """Counts what is allocated until its end; garbage of before is freed first. Skips the test on
    PyPy."""
    tracemalloc = pytest.importorskip("tracemalloc", reason="PyPy counts no memory")
    gc.collect()
    tracemalloc.start()
    try:
        yield TracedMemory(tracemalloc)
    finally:
        tracemalloc.stop()
