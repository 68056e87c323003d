"""Whether the ports of several servers in one process are free, before the first of them begins."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import closing

from twisted.internet.error import CannotListenError


def check_free(host: str, ports: Iterable[int]) -> None:
    """Raises `CannotListenError` for the first of `ports` at `host` that is taken; 0 is one of the
    kernel's choice. A port may still be taken by the time when its server listens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in filter(None, ports):
        with closing(socket.socket(family, socket.SOCK_STREAM)) as tried:
            # As the reactor listens: connections of a former server do not keep it out.
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind((host, port))
            except OSError as error:
                raise CannotListenError(host, port, error) from error
