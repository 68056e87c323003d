"""The Python that runs this, for the few places where it makes a difference."""

from __future__ import annotations

import os
import sys

#: PyPy compiles loops while they run, so that a plain loop is faster there than functions in C that
#: CPython is better off with; and it frees what nobody has any more at some time, not at once.
IS_PYPY = sys.implementation.name == "pypy"
#: What distributions install here is built with profiles, though not by this option of configure.
_OF_DISTRIBUTION = "/usr"
#: How much of the heap a step of PyPy's collector of garbage looks through, such as 1M: PyPy reads
#: this variable when it starts.
_PYPY_GC_STEP = "PYPY_GC_INCREMENT_STEP"


def python_version() -> str:
    """Returns the version; of PyPy its own too, and whether its collector of garbage is as it
    starts, with steps of up to 15 ms; of a CPython that was built without optimizations that:
    servers take some sixth more CPU with it (docs/performance-code.md)."""
    # A command of rmqadmin, which loads this too, does without.
    import platform

    text = platform.python_version()
    own = getattr(sys, "pypy_version_info", None)
    if own is not None:
        unset = "" if os.environ.get(_PYPY_GC_STEP) else f", {_PYPY_GC_STEP} is not set"
        return f"{text} (PyPy {'.'.join(map(str, own[:3]))}{unset})"
    return text if _is_optimized() else f"{text} (built without --enable-optimizations)"


def _is_optimized() -> bool:
    """Returns whether this Python was built with profiles, as far as it says so."""
    import sysconfig

    options = str(sysconfig.get_config_var("CONFIG_ARGS") or "")
    return sys.base_prefix == _OF_DISTRIBUTION or "--enable-optimizations" in options
