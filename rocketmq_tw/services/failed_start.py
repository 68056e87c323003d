"""Tells that a server cannot start, with the reason and what to change."""

import atexit
import errno
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.error import CannotListenError
from twisted.logger import Logger

from rocketmq_tw.services.background import start_report

log = Logger()

#: What another port helps against; anything else is about the address.
_OF_THE_PORT = (errno.EADDRINUSE, errno.EACCES)
#: What another path helps against; a full or failing disk is not of them.
_OF_THE_PATH = (
    errno.EACCES,
    errno.EEXIST,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
)


@dataclass(frozen=True)
class KeysToChange:
    """The keys that a user may have to change, in the form in which the user writes them."""

    port: str = "listenPort"
    address: str = "bindAddress"
    #: Key to the path that it has now.
    paths: Mapping[str, str] = field(default_factory=dict)


#: Those of a proxy that cannot listen.
PROXY_KEYS = KeysToChange(
    port="the proxy's grpcServerPort, remotingListenPort or remotingBrokerPorts"
)


class CannotListenAt(CannotListenError):
    """A port that cannot be listened on, with the `keys` for another one."""

    def __init__(self, host: str, port: int, error: OSError, keys: KeysToChange) -> None:
        super().__init__(host, port, error)
        self.keys = keys


def refuse_to_start(reactor: Any, error: BaseException | None, keys: KeysToChange) -> None:
    """Logs one line that says why and what to change, stops what has started, and ends with
    status 1.

    Raising instead would end twistd with a traceback and leave what started before as a crash
    does; and twistd has no status of its own for a reactor that was stopped.
    """
    reason = describe_failed_start(error, keys)
    log.critical("cannot start: {reason}", reason=reason)
    start_report.failed(f"cannot start: {reason}")
    atexit.register(_exit_with_failure)
    reactor.callWhenRunning(reactor.stop)


def describe_failed_start(error: BaseException | None, keys: KeysToChange) -> str:
    """Says what went wrong and, where an address or a path cannot be used, which key to change: of
    `keys`, or of those that the error names."""
    if isinstance(error, CannotListenAt):
        keys = error.keys
    if isinstance(error, CannotListenError):
        where = f"{error.interface or '*'}:{error.port}"
        key = keys.port if error.socketError.errno in _OF_THE_PORT else keys.address
        return f"{where} cannot be listened on ({error.socketError.strerror}): change {key}"
    if isinstance(error, OSError) and isinstance(error.filename, str):
        return f"{error.filename}: {error.strerror}{_advice(error, keys.paths)}"
    return str(error)


def _advice(error: OSError, paths: Mapping[str, str]) -> str:
    key = _key_of(error.filename, paths) if error.errno in _OF_THE_PATH else None
    if key is None:
        return ""
    is_inside = os.path.abspath(error.filename).startswith(os.path.abspath(paths[key]) + os.sep)
    # Where the place itself is none, what is in its way is no part of the store.
    is_place = is_inside and os.path.isdir(paths[key])
    if error.errno in (errno.ENOTDIR, errno.EEXIST) and is_place:
        return f": a directory belongs there, move away what is in its place or change {key}"
    if error.errno == errno.EISDIR and is_inside:
        return f": a file belongs there, move the directory away or change {key}"
    return f": change {key}"


def _key_of(path: str, paths: Mapping[str, str]) -> str | None:
    """Returns the key whose path is nearest: `path` is in it, or above it where a parent cannot be
    made."""
    wanted = os.path.abspath(path)
    places = {key: os.path.abspath(place) for key, place in paths.items() if place}
    near = [
        key
        for key, place in places.items()
        if os.path.commonpath((wanted, place)) in (wanted, place)
    ]
    return max(near, key=lambda key: len(places[key]), default=None)


def _exit_with_failure() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
