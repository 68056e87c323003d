"""OpenSSL takes a third of the time in which a short command starts, and Twisted loads it with its
reactor wherever it is installed."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_NAME = "OpenSSL"


@contextmanager
def openssl_left_out() -> Iterator[None]:
    """Has Twisted, while this lasts, loaded as where OpenSSL is not installed: its reactor then has
    no TLS for the life of the process. Nothing is changed where OpenSSL is loaded already."""
    modules: dict[str, Any] = sys.modules
    if _NAME in modules:
        yield
        return
    # What Python takes for a module that cannot be imported.
    modules[_NAME] = None
    try:
        yield
    finally:
        del modules[_NAME]
