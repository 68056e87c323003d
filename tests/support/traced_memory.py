"""The memory that Python's allocator gave meanwhile. PyPy does not count it: such a test is skipped
there, see `tests.support.interpreter`."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


class TracedMemory:
    """What was allocated since a `traced_memory()` began, in bytes; to be asked before it ends."""

    @property
    def held(self) -> int:
        """What is not freed yet."""
        return _traced()[0]

    @property
    def peak(self) -> int:
        """The most that there was at once."""
        return _traced()[1]


@contextmanager
def traced_memory() -> Iterator[TracedMemory]:
    """Counts what is allocated until its end; garbage of before is freed first."""
    # Not at the top: it is missing on PyPy, and only the test that counts is to be left out.
    import tracemalloc

    gc.collect()
    tracemalloc.start()
    try:
        yield TracedMemory()
    finally:
        tracemalloc.stop()


def _traced() -> tuple[int, int]:
    import tracemalloc

    return tracemalloc.get_traced_memory()
