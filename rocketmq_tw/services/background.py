"""`twistd` without `-n`: the command waits until its server serves, and tells whether it does."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from twisted.application import service
from twisted.internet.defer import Deferred, succeed
from twisted.python import usage

#: What is read of a report at most; a pipe takes so much at once.
_REPORT_BYTES = 4096
#: What signals do to a program that has not asked for them.
_OF_A_COMMAND = (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGTERM, signal.SIG_DFL),
)
_FAILED = b"1 "
_STARTED = b"0"


class StartReport:
    """What the process tells the `twistd` command that started it in the background, once.

    twistd by itself says that all is well before the reactor runs, when a store has not been read
    yet. Without a report the command ends with status 1 when the process does."""

    def __init__(self) -> None:
        self._pipe: int | None = None

    def take_over(self, twistd: Any) -> None:
        """Takes the pipe to the waiting command out of twistd's options, if there is one."""
        self._pipe = twistd.pop("statusPipe", None)

    def started(self) -> None:
        """Lets the command end with status 0."""
        self._tell(_STARTED)

    def failed(self, reason: str) -> None:
        """Lets the command end with status 1 and the beginning of `reason`."""
        self._tell(_FAILED + reason.encode()[: _REPORT_BYTES - len(_FAILED)])

    def _tell(self, report: bytes) -> None:
        pipe, self._pipe = self._pipe, None
        if pipe is None:
            return
        try:
            os.write(pipe, report)
        except OSError:
            # The command was killed: nobody waits.
            pass
        finally:
            os.close(pipe)


#: A process has one command that waits for it.
start_report = StartReport()


def wait_for_report(_: object, pipe: int) -> int:
    """Reads the report of a server in the background from a pipe, says what it says, and returns
    the status of the command. Signals end the command, and not the server."""
    for number, handler in _OF_A_COMMAND:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)
    report = os.read(pipe, _REPORT_BYTES)
    if report == _STARTED:
        return 0
    reason = report.removeprefix(_FAILED).decode(errors="replace")
    if sys.__stderr__ is not None:
        sys.__stderr__.write(f"{reason or 'the server ended; its log says why'}\n")
    return 1


def tell_plainly() -> None:
    """Has the `twistd` command show a report as text: by itself it shows the first 100 bytes as
    Python writes them, within a line that says to look at the log."""
    from twisted.scripts._twistd_unix import UnixApplicationRunner

    UnixApplicationRunner._waitForStart = wait_for_report  # type: ignore[assignment,method-assign]


class _Reported(service.MultiService):
    def __init__(self, twistd: Any, when_started: Callable[[], Deferred[None]]) -> None:
        super().__init__()
        self._twistd = twistd
        self._when_started = when_started

    def startService(self) -> None:
        # Only now, and not when it is made, this is the process in the background.
        start_report.take_over(self._twistd)
        super().startService()
        # A server that cannot start has said so by itself.
        self._when_started().addCallback(lambda _: start_report.started())


def with_start_report(
    options: usage.Options,
    server: service.IService,
    when_started: Callable[[], Deferred[None]] = lambda: succeed(None),
) -> service.Service:
    """Returns a service of `server` that tells the command waiting for it how its start went.

    `options` are those of a command of twistd. `when_started` is asked once `startService` has
    returned."""
    reported = _Reported(options.parent, when_started)
    server.setServiceParent(reported)
    return reported
