"""How the garbage collector treats a server."""

import gc

#: Objects made and not freed until the youngest are looked at. A server's garbage is freed by its
#: reference counts; cycles are rare, and looking for them among all that lives costs milliseconds.
_YOUNG = 20_000
_MIDDLE = 20
_OLD = 50


def look_rarely() -> None:
    """Lets the collector look for garbage less often."""
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)


def freeze_startup_objects() -> None:
    """Keeps the collector away from what start-up made: to be called once a server is ready. What
    garbage is among it, some dozens of objects, is not worth a look at all of them."""
    gc.freeze()
