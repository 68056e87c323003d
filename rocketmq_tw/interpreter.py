"""The Python that runs this, for the few places where it makes a difference."""

from __future__ import annotations

import sys

#: PyPy compiles loops while they run, so that a plain loop is faster there than functions in C that
#: CPython is better off with; and it frees what nobody has any more at some time, not at once.
IS_PYPY = sys.implementation.name == "pypy"
