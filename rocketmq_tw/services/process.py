"""Prepares a server's process before anything else.

It makes the log safe to read, gives memory back, opens as many files as it may, counts time by a
clock that nobody sets, and stops once however many signals ask for it. And it names the Python that
the server runs on.
"""

import ctypes
import gc
import os
import re
import signal
import sys
from collections.abc import Callable
from typing import Any

from twisted.logger import ILogObserver, Logger, eventAsText, globalLogPublisher
from zope.interface import provider

from rocketmq_tw.interpreter import IS_PYPY
from rocketmq_tw.net.descriptors import raise_descriptor_limit
from rocketmq_tw.runtime.periodic import PeriodicCall
from rocketmq_tw.runtime.steady_time import use_monotonic_time

log = Logger()

#: Control characters, those that turn the direction of text or end a line, lone surrogates. The
#: log indents lines of one event behind the first, so a newline forges none.
_UNSAFE = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_IN_TEXT = re.compile(f"[{_UNSAFE}]")
_IN_FIELD = re.compile(f"[\n{_UNSAFE}]")


def escape_log() -> None:
    """Lets all observers of the process's log, now and later, see escaped events; to be called
    before logging begins. Calling it again changes nothing."""
    globalLogPublisher.removeObserver(escape_event)
    globalLogPublisher.addObserver(escape_event)


@provider(ILogObserver)
def escape_event(event: dict[str, Any]) -> None:
    """Writes unsafe characters in the texts of `event`, and newlines in its fields, as Python
    would: ESC becomes `\\x1b`.

    It changes the event itself: it has to be the first observer.
    """
    for name, value in event.items():
        if isinstance(value, str) and not name.startswith("log_") and _IN_FIELD.search(value):
            event[name] = _IN_FIELD.sub(_escaped, value)
    text = eventAsText(event, includeTimestamp=False, includeSystem=False)
    if not _IN_TEXT.search(text):
        return
    # It stands in what is no string, such as an exception, or in a traceback.
    event.pop("log_failure", None)
    event["log_format"] = "{log_escaped}"
    event["log_escaped"] = _IN_TEXT.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


#: Parameters of glibc's mallopt(3).
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
#: Bytes from which a block is mapped by itself and goes back to the kernel when it is freed. Each
#: use of such a block has the kernel make all its pages anew, which takes twenty times as long as
#: filling them; so no message and no frame of one is such a block.
MAPPED_FROM = 8 << 20
#: Free bytes at the end of an arena that are kept.
KEPT_FREE = 16 << 20
#: Heaps that threads share. Our threads mostly hold the interpreter's lock, so two are enough.
ARENAS = 2
#: How often it is looked whether the process has grown, in seconds, and by how many bytes it has
#: then when all that is free goes back to the kernel: that takes up to a millisecond for 3 MiB.
TRIM_SECONDS = 5.0
TRIM_BYTES = 32 << 20


def return_freed_memory(reactor: Any) -> bool:
    """Lets memory go back to the kernel when it is freed: large blocks at once, others a little
    later. False where the C library is not glibc. To be called before threads are started.

    Left alone, glibc raises both thresholds up to 32 and 64 MiB once a large block was freed, and
    gives threads arenas of their own, each of which may keep as much.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        library = ctypes.CDLL(None)
        mallopt, trim = library.mallopt, library.malloc_trim
    except (OSError, AttributeError):
        return False
    wanted = (
        (_M_MMAP_THRESHOLD, MAPPED_FROM),
        (_M_TRIM_THRESHOLD, KEPT_FREE),
        (_M_ARENA_MAX, ARENAS),
    )
    if not all(mallopt(parameter, value) == 1 for parameter, value in wanted):
        return False
    trimming = Trimming(lambda: trim(0), reactor.callInThread)
    looks = PeriodicCall(reactor, "returning freed memory", TRIM_SECONDS, trimming.trim_if_due)
    reactor.callWhenRunning(looks.start)
    return True


def resident_bytes() -> int:
    """Returns the process's resident memory in bytes."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Trimming:
    """Calls `trim`, `in_thread`, where the process has grown by `TRIM_BYTES` since it was
    smallest, or since the last time."""

    def __init__(
        self,
        trim: Callable[[], object],
        in_thread: Callable[[Callable[[], None]], object],
        resident: Callable[[], int] = resident_bytes,
    ) -> None:
        self._trim = trim
        self._in_thread = in_thread
        self._resident = resident
        self._least = resident()
        self._is_trimming = False

    def trim_if_due(self) -> None:
        """Trims the heaps where it is time; to be called again and again."""
        if self._is_trimming:
            return
        resident = self._resident()
        if resident < self._least + TRIM_BYTES:
            self._least = min(self._least, resident)
            return
        self._is_trimming = True
        self._in_thread(self._run)

    def _run(self) -> None:
        try:
            self._trim()
            self._least = self._resident()
        finally:
            self._is_trimming = False


# CPython frees a server's garbage by its reference counts, and a second collector looks for cycles,
# whole generations at once. PyPy has one collector: it goes by bytes, looks through what is old bit
# by bit, leaves out nothing, and has read its settings (PYPY_GC_*) from the environment before any
# of our code runs. So there it is left as it is.

#: Objects made and not freed until the youngest are looked at: cycles are rare, and looking for
#: them among all that lives costs milliseconds.
_YOUNG = 20_000
#: So many times until what was left over is looked at again: 100,000 objects, 30 ms, which come
#: together where thousands of clients connect.
_MIDDLE = 5
#: And so many times that until all are, where a quarter of them is new.
_OLD = 200


def collect_rarely() -> None:
    """Lets the collector look for cycles less often; without effect on PyPy."""
    if not IS_PYPY:
        gc.set_threshold(_YOUNG, _MIDDLE, _OLD)


def freeze_startup_objects() -> None:
    """Takes all objects that exist out of what the garbage collector looks through.

    To be called once a server is ready: what start-up made stays as long as the process does, and
    looking through it costs milliseconds. The little garbage among it is never freed. Without
    effect on PyPy."""
    if not IS_PYPY:
        gc.freeze()


def prepare_process(reactor: Any) -> None:
    """Makes the log safe to read, lets the process open all the files that it may and give memory
    back, and makes timers independent of the wall clock. To be called before logging begins and
    anything waits."""
    escape_log()
    raise_descriptor_limit()
    use_monotonic_time(reactor)
    return_freed_memory(reactor)
    obey_signals(reactor)


def obey_signals(reactor: Any) -> None:
    """Lets SIGINT and SIGTERM stop a server cleanly from now on, also before the reactor runs, and
    SIGHUP stop a server that has a terminal, as SIGTERM does, since it comes when that is
    closed; nohup(1) keeps it away. For a server without a terminal it changes nothing: scripts
    send it to have files read again. SIGUSR2, which would kill, changes nothing; SIGUSR1 is the
    log's. While a server stops, further signals change nothing."""
    signals = _Signals(reactor)
    signals.take_early()
    # The reactor installs its own before that.
    reactor.callWhenRunning(signals.take_over)
    reactor.addSystemEventTrigger("before", "shutdown", signals.stopping)


def _has_terminal() -> bool:
    """Returns whether the process belongs to a terminal; one that twistd has sent to the background
    does not."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


class _Signals:
    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._has_terminal = True
        self._is_stopping = False
        #: The one that came first before the reactor ran.
        self._early: int | None = None
        self._handlers: dict[int, Callable[..., object]] = {
            signal.SIGHUP: self._stop,
            signal.SIGINT: reactor.sigInt,
            signal.SIGTERM: reactor.sigTerm,
        }

    def take_early(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._remember)
        if signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL:
            signal.signal(signal.SIGUSR2, self._pass_over)

    def take_over(self) -> None:
        self._has_terminal = _has_terminal()
        for taken in self._handlers:
            if signal.getsignal(taken) is not signal.SIG_IGN:
                signal.signal(taken, self._handle)
        if self._early is not None:
            # Behind a stop that a refused start has asked for.
            self._reactor.callLater(
                0, self._reactor.callFromThread, self._handle, self._early, None
            )

    def stopping(self) -> None:
        self._is_stopping = True

    def _pass_over(self, number: int, frame: object) -> None:
        self._say("SIGUSR2 changes nothing: SIGTERM stops the server")

    def _remember(self, number: int, frame: object) -> None:
        # An exception would be lost in whatever is being started.
        if self._early is None:
            self._early = number
        else:
            # What is being started may hang.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _handle(self, number: int, frame: object) -> None:
        name = signal.Signals(number).name
        if self._is_stopping:
            self._say(f"{name}: the server is stopping")
            return
        if number == signal.SIGHUP and not self._has_terminal:
            self._say(
                "SIGHUP changes nothing: certificates are read again once they change, and keys are"
                " changed by rmqadmin updateBrokerConfig; SIGTERM stops the server"
            )
            return
        self._is_stopping = True
        self._say(f"{name}: the server stops")
        self._handlers[number](number, frame)

    def _say(self, text: str) -> None:
        # Not at once: a signal may come while the log's file is closed to begin another one.
        self._reactor.callFromThread(log.info, "{text}", text=text)

    def _stop(self, *_: object) -> None:
        self._reactor.callFromThread(self._reactor.stop)
