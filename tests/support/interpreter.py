"""What a Python other than CPython lacks: a test that imports such a module is skipped.

The modules are named here only; a test that leans on CPython otherwise is marked `cpython_only`.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

import pytest

#: Whether objects are freed as soon as nobody has them, and the collector has CPython's functions.
IS_CPYTHON = sys.implementation.name == "cpython"

_NO_WHEEL = "is not built for this Python"
#: Top-level modules that such a Python may lack, and why. One that is there all the same is used.
_LACKED = {
    "grpc": _NO_WHEEL,
    "mypy": "checks the code the same on any Python, and CPython is faster",
    "numpy": _NO_WHEEL,
    "pandas": _NO_WHEEL,
    "py4j": "comes with pyspark",
    "pyarrow": _NO_WHEEL,
    "pyspark": "needs pyarrow",
    "ruff": _NO_WHEEL,
}


def cpython_only(reason: str) -> pytest.MarkDecorator:
    """Skips a test elsewhere; `reason` says what it leans on."""
    return pytest.mark.skipif(not IS_CPYTHON, reason=f"CPython only: {reason}")


def skip_what_lacks_modules() -> None:
    """Lets the import of a lacking module skip the test, or the file where it stands at its top;
    on CPython, where everything is installed, it fails as ever."""
    if not IS_CPYTHON:
        # Behind all others: it is asked for what none of them has found.
        sys.meta_path.append(_Lacking())


class _Lacking(MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        if name in _LACKED:
            pytest.skip(f"{name} {_LACKED[name]}", allow_module_level=True)


def free_as_cpython_has() -> None:
    """Frees on PyPy what nobody has any more; on CPython reference counts have done that, except
    for rings of objects, which stay."""
    if not IS_CPYTHON:
        collect_garbage()


def collect_garbage() -> None:
    """Frees what nobody has any more. PyPy calls finalizers behind the collection that found them,
    and what these let go is found by the next."""
    for _ in range(1 if IS_CPYTHON else 3):
        gc.collect()
