"""Keeps the broker's tables in their files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.runtime.slices import InSlices, all_steps
from rocketmq_tw.runtime.threads import InThread
from rocketmq_tw.runtime.waiters import fire_all
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

T = TypeVar("T")

log = Logger()


class TableFile(Protocol):
    """What a table asks of its file."""

    def read(self, parse: Callable[[bytes], T]) -> T | None:
        """What `parse` makes of the file, or of its backup where the file is damaged; None
        where there is neither. Raises where neither can be used."""
        ...

    def write(self, data: bytes) -> None:
        """Replaces the content durably; raises `OSError`."""
        ...


def reported(failure: Failure) -> None:
    """The errback of those for whom the log's line of a failed write is enough."""
    failure.trap(RequestError)


class Keeper(Generic[T]):
    """Writes a table to its file: in a thread, since a disk may be slow, and one write at a time;
    all changes made meanwhile share the next one.

    `take` copies what the table holds, `encode` makes it bytes in the thread, and `restore` takes
    it back: where a write fails, the table is again what the file has, and everyone who waits is
    told, so that nobody relies on what a restart would forget. Very many may wait: they are told in
    steps, which `in_slices` goes through.
    """

    def __init__(
        self,
        file: TableFile,
        in_thread: InThread,
        take: Callable[[], T],
        encode: Callable[[T], bytes],
        restore: Callable[[T], None],
        in_slices: InSlices = all_steps,
    ) -> None:
        self._file = file
        self._in_thread = in_thread
        self._take = take
        self._encode = encode
        self._restore = restore
        self._in_slices = in_slices
        self._kept = take()
        self._waiting: list[Deferred[None]] = []
        self._running = False

    def loaded(self) -> None:
        """The table is what its file has."""
        self._kept = self._take()

    def keep(self) -> Deferred[None]:
        """Fires once the table as it is now is durable; fails with `RequestError` where it cannot
        be kept."""
        kept: Deferred[None] = Deferred()
        self._waiting.append(kept)
        self._write_next()
        return kept

    def when_idle(self) -> Deferred[None]:
        """Fires once no write runs or waits, however the last one ended."""
        if not self._running:
            return succeed(None)
        idle: Deferred[None] = Deferred()
        self._waiting.append(idle)
        return idle.addErrback(reported)

    def _write_next(self) -> None:
        if self._running or not self._waiting:
            return
        self._running = True
        waiting, self._waiting = self._waiting, []
        table = self._take()
        written = self._in_thread(lambda: self._file.write(self._encode(table)))
        written.addCallbacks(
            lambda _: self._written(table, waiting), lambda failure: self._failed(failure, waiting)
        )

    def _written(self, table: T, waiting: list[Deferred[None]]) -> None:
        self._kept = table
        self._tell(waiting, None)

    def _failed(self, failure: Failure, waiting: list[Deferred[None]]) -> None:
        log.failure("a change of the configuration cannot be kept", failure=failure)
        waiting, self._waiting = waiting + self._waiting, []
        self._restore(self._kept)
        reason = getattr(failure.value, "strerror", None) or failure.getErrorMessage()
        refusal = RequestError(ResponseCode.SYSTEM_ERROR, f"the change cannot be kept: {reason}")
        self._tell(waiting, Failure(refusal))

    def _tell(self, waiting: list[Deferred[None]], result: Failure | None) -> None:
        def told(_: object) -> None:
            self._running = False
            self._write_next()

        self._in_slices(fire_all(waiting, result)).addCallback(told)
