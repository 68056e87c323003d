"""How the C library keeps memory that was freed."""

import ctypes
import os
import sys
from collections.abc import Callable
from typing import Any

from rocketmq_tw.runtime.periodic import PeriodicCall

#: Parameters of glibc's mallopt(3).
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
#: Bytes from which a block is mapped by itself and goes back to the kernel when it is freed. Each
#: use of such a block has the kernel make all its pages anew, which takes twenty times as long as
#: filling them; so no message and no frame of one is such a block.
MAPPED_FROM = 8 << 20
#: Free bytes at the end of an arena that are kept.
KEPT_FREE = 16 << 20
#: Heaps that threads share. Those of ours mostly hold the interpreter's lock, so two are enough.
ARENAS = 2
#: How often it is looked whether the process has grown, in seconds, and by how many bytes it has
#: then when all that is free goes back to the kernel: that takes up to a millisecond for 3 MiB.
TRIM_SECONDS = 5.0
TRIM_BYTES = 32 << 20


def return_freed_memory(reactor: Any) -> bool:
    """Lets memory go back to the kernel when it is freed: large blocks at once, others a little
    later. False where the C library is not glibc. To be called before threads are started.

    Left alone, glibc raises both thresholds up to 32 and 64 MiB once a large block was freed, and
    gives threads arenas of their own, each of which may keep as much.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        library = ctypes.CDLL(None)
        mallopt, trim = library.mallopt, library.malloc_trim
    except (OSError, AttributeError):
        return False
    wanted = (
        (_M_MMAP_THRESHOLD, MAPPED_FROM),
        (_M_TRIM_THRESHOLD, KEPT_FREE),
        (_M_ARENA_MAX, ARENAS),
    )
    if not all(mallopt(parameter, value) == 1 for parameter, value in wanted):
        return False
    trimming = Trimming(lambda: trim(0), reactor.callInThread)
    looks = PeriodicCall(reactor, "returning freed memory", TRIM_SECONDS, trimming.look)
    reactor.callWhenRunning(looks.start)
    return True


def resident_bytes() -> int:
    """Returns the process's resident memory in bytes."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Trimming:
    """Calls `trim`, `in_thread`, where the process has grown by `TRIM_BYTES` since it was
    smallest, or since the last time."""

    def __init__(
        self,
        trim: Callable[[], object],
        in_thread: Callable[[Callable[[], None]], object],
        resident: Callable[[], int] = resident_bytes,
    ) -> None:
        self._trim = trim
        self._in_thread = in_thread
        self._resident = resident
        self._least = resident()
        self._is_trimming = False

    def look(self) -> None:
        """Trims the heaps where it is time; to be called again and again."""
        if self._is_trimming:
            return
        resident = self._resident()
        if resident < self._least + TRIM_BYTES:
            self._least = min(self._least, resident)
            return
        self._is_trimming = True
        self._in_thread(self._run)

    def _run(self) -> None:
        try:
            self._trim()
            self._least = self._resident()
        finally:
            self._is_trimming = False
