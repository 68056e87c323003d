"""Decides where a server's log goes, and which lines it has."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from importlib.metadata import version
from typing import Any

from twisted.logger import (
    FilteringLogObserver,
    LegacyLogObserverWrapper,
    Logger,
    LogLevel,
    PredicateResult,
    textFileLogObserver,
)
from twisted.python import threadable
from twisted.python.logfile import LogFile

from rocketmq_tw.config.log import DEBUG, LogConfig
from rocketmq_tw.files.posix import is_open_at
from rocketmq_tw.interpreter import python_version
from rocketmq_tw.services.pid_file import name_of_server
from twisted import __version__ as twisted_version

log = Logger()

#: twistd takes no more than a name: its options and the configuration of the process's log.
_chosen: list[Any] = []

#: The mode of files of the log, in which names of topics and clients are: the first one would have
#: that of the user's umask, and later ones that of a daemon's.
FILE_MODE = 0o640


def take_over_log(twistd: Any, config: LogConfig, port: int | None = None) -> None:
    """Has twistd write the log as `config` says, to where its own options have it, unless they name
    an observer; where they name no file, in the background to `rmq-broker-10911.log`. `twistd` are
    its options; to be called while they are parsed. `port` tells servers of a kind apart."""
    if not twistd.get("logger"):
        _chosen[:] = twistd, config
        twistd["logger"] = f"{__name__}.make_observer"
        if not (twistd.get("nodaemon") or twistd.get("logfile")):
            # twistd's own twistd.log all servers of a directory would share.
            twistd["logfile"] = f"{name_of_server(twistd, port)}.log"


def say_version(twistd: Any) -> None:
    """Logs the versions, and which server `twistd`, whose options these are, is to run."""
    log.info(
        "rocketmq_tw {version} on Python {python} and Twisted {twisted}: {command}",
        version=version("rocketmq_tw"),
        python=python_version(),
        twisted=twisted_version,
        command=getattr(twistd, "subCommand", None),
    )


def is_wanted(level: str) -> Any:
    """Returns a predicate for the events that a log of this level has."""
    least = LogLevel.levelWithName(level)

    def decide(event: dict[str, Any]) -> Any:
        found = event.get("log_level") or LogLevel.info
        if found < least or (level != DEBUG and found <= LogLevel.info and _is_twisteds(event)):
            return PredicateResult.no
        return PredicateResult.maybe

    return decide


def _is_twisteds(event: dict[str, Any]) -> bool:
    """Returns whether Twisted speaks of itself: its version, factories that start, its main
    loop."""
    namespace = event.get("log_namespace") or ""
    return namespace == "log_legacy" or namespace.partition(".")[0] == "twisted"


def make_observer() -> Any:
    """Returns what writes the log that was taken over; twistd calls it once, by its name."""
    twistd, config = _chosen
    return FilteringLogObserver(_unfiltered(twistd, config), [is_wanted(config.log_level)])


def _unfiltered(twistd: Any, config: LogConfig) -> Any:
    """Returns the observer that twistd would make, but for a limit of the size of files."""
    # Nobody else wants the signal, as with twistd; without a handler it kills.
    is_taken = signal.getsignal(signal.SIGUSR1) is not signal.SIG_DFL
    if not is_taken:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    if twistd.get("syslog"):
        from twisted.python.syslog import SyslogObserver

        legacy: Any = SyslogObserver(twistd.get("prefix", "")).emit
        return LegacyLogObserverWrapper(legacy)
    path, in_foreground = twistd.get("logfile"), twistd.get("nodaemon")
    if path == "-" and not in_foreground:
        sys.exit("--logfile=-: a server in the background has no standard output: give -n too")
    if path == "-" or (in_foreground and not path):
        return textFileLogObserver(sys.stdout)
    # One that is there keeps its mode, and may be a device.
    mode = None if os.path.exists(path) else FILE_MODE & ~(twistd.get("umask") or 0)
    try:
        file = _AppendedFile.fromFullPath(
            path,
            defaultMode=mode,
            rotateLength=config.log_file_size,
            maxRotatedFiles=config.log_files_kept,
        )
    except OSError as error:
        sys.exit(f"cannot start: the log {path}: {error.strerror}: change --logfile")
    if not is_taken:
        signal.signal(signal.SIGUSR1, lambda *_: _begin_another(file))
    return textFileLogObserver(file)


class _AppendedFile(LogFile):
    """A file that others may write to or cut meanwhile, as logrotate's copytruncate does: each line
    goes to where its end is then, and takes nothing from others. They may move or remove it, too:
    lines go to it all the same, until another one is to begin."""

    #: What only one thread does at a time; the others are those of `LogFile`.
    synchronized = ["rotate"]

    def _openFile(self) -> None:
        super()._openFile()
        flags = fcntl.fcntl(self._file, fcntl.F_GETFL)
        fcntl.fcntl(self._file, fcntl.F_SETFL, flags | os.O_APPEND)

    def shouldRotate(self) -> bool:
        if not super().shouldRotate():
            return False
        # So much was written; what was cut counts no more.
        self.size = os.fstat(self._file.fileno()).st_size
        return bool(super().shouldRotate())

    def rotate(self) -> None:
        if self._is_there():
            super().rotate()
            return
        old = self._file
        try:
            self._openFile()
        except OSError:
            # As Twisted, where another one cannot be made: this one goes on.
            return
        old.close()

    def _is_there(self) -> bool:
        try:
            return is_open_at(self.path, self._file.fileno())
        except OSError:
            return False


threadable.synchronize(_AppendedFile)


def _begin_another(file: LogFile) -> None:
    from twisted.internet import reactor

    reactor.callFromThread(file.rotate)  # type: ignore[attr-defined]
