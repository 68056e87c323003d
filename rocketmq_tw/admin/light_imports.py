"""Twisted, and what reads .properties files, load more than commands use of them, which took a
third of the time in which a short command starts."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType
from typing import Any

#: Of asyncio, of which Twisted takes what coroutines are; for TLS it has OpenSSL.
_SSL = "ssl"
#: Twisted has its TLS wherever this is installed.
_OPENSSL = "OpenSSL"
#: All that Python has for HTTP: Twisted gives it another name, and readers of XML may fetch what
#: they read. Nothing here uses either.
_HTTP = ("http.cookiejar", "urllib.request")


class _LazyFinder:
    """Finds modules that are loaded when something of them is first used."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._names:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


def load_http_lazily() -> None:
    """Has what Python has for HTTP loaded when it is first used, for the life of the process."""
    sys.meta_path.insert(0, _LazyFinder(_HTTP))


@contextmanager
def tls_left_out(*, of_twisted: bool) -> Iterator[None]:
    """Has Twisted, while this lasts, loaded as where Python has no `ssl`, and with `of_twisted` as
    where OpenSSL is not installed: its reactor then has no TLS for the life of the process. Nothing
    is changed for what is loaded already."""
    modules: dict[str, Any] = sys.modules
    unused = (_SSL, _OPENSSL) if of_twisted else (_SSL,)
    left_out = [name for name in unused if name not in modules]
    # What Python takes for a module that cannot be imported.
    modules.update(dict.fromkeys(left_out))
    try:
        yield
    finally:
        for name in left_out:
            del modules[name]
