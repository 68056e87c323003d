"""How a server says that it cannot start."""

import atexit
import os
import sys
from typing import Any

from twisted.internet.error import CannotListenError
from twisted.logger import Logger

log = Logger()


def refuse_to_start(
    reactor: Any, error: BaseException | None, *, port_key: str = "listenPort"
) -> None:
    """Logs one line that says why, stops what has started, and ends with status 1.

    Raising instead would end twistd with a traceback and leave what started before as a crash
    does; and twistd has no status of its own for a reactor that was stopped. `port_key` is what to
    change where a port is taken.
    """
    log.critical("cannot start: {reason}", reason=reason_of(error, port_key))
    atexit.register(_exit_with_failure)
    reactor.callWhenRunning(reactor.stop)


def reason_of(error: BaseException | None, port_key: str) -> str:
    """What went wrong and, where a port is taken, what to change."""
    if isinstance(error, CannotListenError):
        where = f"{error.interface or '*'}:{error.port}"
        return f"{where} cannot be listened on ({error.socketError.strerror}): change {port_key}"
    return str(error)


def _exit_with_failure() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
