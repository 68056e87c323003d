"""How the C library keeps memory that was freed."""

import ctypes
import sys

#: Parameters of glibc's mallopt(3).
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
#: Bytes from which a block is mapped by itself and goes back to the kernel when it is freed.
MAPPED_FROM = 1 << 20
#: Free bytes at the end of an arena that are kept.
KEPT_FREE = 8 << 20
#: Heaps that threads share. Those of ours mostly hold the interpreter's lock, so two are enough.
ARENAS = 2


def return_freed_memory() -> bool:
    """Lets large blocks go back to the kernel when they are freed; False where the C library is
    not glibc. To be called before threads are started.

    Left alone, glibc raises both thresholds up to 32 and 64 MiB once a large block was freed, and
    gives threads arenas of their own, each of which may keep as much.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    wanted = (
        (_M_MMAP_THRESHOLD, MAPPED_FROM),
        (_M_TRIM_THRESHOLD, KEPT_FREE),
        (_M_ARENA_MAX, ARENAS),
    )
    return all(mallopt(parameter, value) == 1 for parameter, value in wanted)
