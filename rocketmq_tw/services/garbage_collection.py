"""How the garbage collector treats a server."""

import gc

#: Objects made and not freed until the youngest are looked at. A server's garbage is freed by its
#: reference counts; cycles are rare, and looking for them among all that lives costs milliseconds.
_YOUNG = 20_000
_MIDDLE = 20
_OLD = 50


def collect_rarely() -> None:
    """Lets the collector look for garbage less often."""
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)


def freeze_startup_objects() -> None:
    """Takes all objects that exist out of what the garbage collector looks through.

    To be called once a server is ready: what start-up made stays as long as the process does, and
    looking through it costs milliseconds. The little garbage among it is never freed."""
    gc.freeze()
