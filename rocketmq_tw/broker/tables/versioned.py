"""Tables whose every change is written to a file and has a version: topics, groups, static topics.

A change shows in the table at once and is written in a thread. The Deferred of the change fires
once it is in the file, or fails; then the table is again what the file has. The forms of the tables
in files and on the wire are in docs/formats/config-files.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.runtime.failures import FailuresInARow
from rocketmq_tw.runtime.listeners import Listeners
from rocketmq_tw.runtime.slices import InSlices, all_steps
from rocketmq_tw.runtime.threads import InThread, at_once
from rocketmq_tw.runtime.waiters import Waiters
from rocketmq_tw.store.table_files import CertainWrites
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.bodies.base import Body, DataVersion, decode_table, encode_body
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

T = TypeVar("T")
E = TypeVar("E")
B = TypeVar("B", bound=Body)

#: Encoded entries that are remembered though they left the table, before all are made anew.
_SPARE = 1024

log = Logger()


class TableFile(Protocol):
    """The file of a table."""

    path: str

    def read(self, parse: Callable[[bytes], T]) -> T | None:
        """Returns what `parse` makes of the file, or of its backup where the file is damaged; None
        where there is neither. Raises where neither can be used."""
        ...

    def write(self, data: bytes) -> None:
        """Replaces the content durably; raises `OSError`."""
        ...


def reported(failure: Failure) -> None:
    """Ends the failure of a change for which the line in the log is enough."""
    failure.trap(RequestError)


class VersionedTable(Generic[E, B]):
    """Name → entry, with a version that grows with each change, and a file.

    A subclass names the struct of the file and the wire (`BODY`) and the field of it that has the
    entries (`FIELD`). An entry is replaced and never changed. `entries` are built in: a table
    without a file begins with them. A subclass that has more than entries sets that before it
    calls this constructor. `now_ms` tells milliseconds since 1970.
    """

    BODY: ClassVar[type[Body]]
    FIELD: ClassVar[str]

    def __init__(
        self,
        file: TableFile,
        entries: dict[str, E],
        now_ms: Callable[[], int],
        in_thread: InThread = at_once,
        in_slices: InSlices = all_steps,
    ) -> None:
        self._file = file
        self._now_ms = now_ms
        self._entries = entries
        #: Told of names whose entries are gone.
        self.removed: Listeners[Sequence[str]] = Listeners("entries were removed")
        self.data_version = DataVersion(timestamp=now_ms())
        self._cache = EntryCache()
        self._writer: TableWriter[B] = TableWriter(
            file, in_thread, self.table, self.encode, self._take, in_slices
        )

    def load(self) -> None:
        """Adds what the file has; raises what the file's reading raises where it is damaged."""
        table = self._file.read(lambda data: decode_table(self.BODY, data))
        if table is not None:
            built_in = self._entries
            self._take(table)
            self._entries = built_in | self._entries
            self._writer.loaded()

    def save(self) -> Deferred[None]:
        """See `TableWriter.save`."""
        return self._writer.save()

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def all(self) -> Mapping[str, E]:
        """Returns the live table; not to be changed."""
        return self._entries

    def table(self) -> B:
        """Returns all entries as they are now with the version: what the file and the wire have."""
        return self._body(self._entries)

    def encode(self, table: B, *, whole: bool = True) -> bytes:
        """Returns `table` in its wire form; may be called in any thread. Not `whole`: it has some
        of the entries only."""
        entries = self._cache.encode(getattr(table, self.FIELD), whole=whole)
        return encode_body(msgspec.structs.replace(table, **{self.FIELD: entries}))

    def delete(self, *names: str) -> Deferred[None]:
        """Fires once it is in the file that none of the names has an entry; fails with
        `RequestError` where that cannot be, and then all is as it was."""
        found = [name for name in names if self._entries.pop(name, None) is not None]
        if not found:
            return self._writer.make_certain()
        return self._changed().addCallback(lambda _: self.removed.tell(found))

    def replace_all(self, table: B) -> None:
        """Takes over a master's table and its version; where they cannot be written, both are again
        what they were, and the next look at the master finds them to differ."""
        before = self._entries
        self._take(table)
        self._writer.write().addErrback(reported)
        if gone := before.keys() - self._entries.keys():
            self.removed.tell(list(gone))

    def touch(self) -> None:
        """Makes a new version of the same entries, for peers that have to look again."""
        self.data_version = self.data_version.next(self._now_ms(), self._state_version())

    def _state_version(self) -> int:
        """Returns the part of a version that grows with each change of the master."""
        return 0

    def _changed(self) -> Deferred[None]:
        """Makes a new version; fires once it is in the file, fails with `RequestError` where it
        cannot be."""
        self.touch()
        return self._writer.write()

    def _body(self, entries: Mapping[str, E]) -> Any:
        return self.BODY(**{self.FIELD: dict(entries), "data_version": self.data_version})

    def _take(self, table: Any) -> None:
        """Makes the table what `table` has, with its version."""
        self._entries = dict(getattr(table, self.FIELD))
        self.data_version = table.data_version


class TableWriter(Generic[T]):
    """Writes a table to its file in a thread, one write at a time; changes made meanwhile share the
    next one.

    `take` copies what the table holds, `encode` makes it bytes in the thread, and `restore` takes
    it back: where a write fails, the table is again what was written last, and all Deferreds that
    wait fail. There may be very many: they are fired in steps, which `in_slices` goes through.

    Where the file is not certain behind a failed write (`CertainWrites`), the table is written once
    more: with the next change, or by `save`.
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
        self._file = CertainWrites(file.write)
        self._failures = FailuresInARow(
            log, f"a change of {file.path} cannot be written and is taken back"
        )
        self._in_thread = in_thread
        self._take = take
        self._encode = encode
        self._restore = restore
        self._in_slices = in_slices
        self._written = take()
        self._waiting: Waiters[None] = Waiters()
        self._running = False

    def loaded(self) -> None:
        """Notes that the table is what its file has."""
        self._written = self._take()

    def write(self) -> Deferred[None]:
        """Fires once the table as it is now is durable; fails with `RequestError` where it cannot
        be written."""
        written = self._waiting.wait()
        self._write_next()
        return written

    def make_certain(self) -> Deferred[None]:
        """Fires as `write` does for a table that has not changed: at once, or once what a failed
        write left in the file is replaced."""
        return succeed(None) if self._file.is_certain else self.write()

    def save(self) -> Deferred[None]:
        """Fires once no write runs or waits, however the last one ended; what a failed one left in
        the file is replaced before, if that can be done now."""
        if not self._running:
            return self.make_certain().addErrback(reported)
        return self._waiting.wait().addErrback(reported)

    def _write_next(self) -> None:
        if self._running or not self._waiting:
            return
        self._running = True
        waiting, self._waiting = self._waiting, Waiters()
        table = self._take()

        def written(_: object) -> None:
            self._written = table
            self._failures.succeeded()
            self._tell(waiting.fire_in_steps(None))

        job = self._in_thread(lambda: self._file.write(self._encode(table)))
        job.addCallbacks(written, self._failed, errbackArgs=(waiting,))

    def _failed(self, failure: Failure, waiting: Waiters[None]) -> None:
        self._failures.failed(failure)
        later, self._waiting = self._waiting, Waiters()
        self._restore(self._written)
        reason = getattr(failure.value, "strerror", None) or failure.getErrorMessage()
        error = RequestError(ResponseCode.SYSTEM_ERROR, f"the change cannot be kept: {reason}")
        refusal = Failure(error)
        self._tell(chain(waiting.fire_in_steps(refusal), later.fire_in_steps(refusal)))

    def _tell(self, steps: Iterator[None]) -> None:
        def told(_: object) -> None:
            self._running = False
            self._write_next()

        self._in_slices(steps).addCallback(told)


@dataclass(frozen=True)
class TableContext:
    """What the tables of topics and of groups use. `lmq`: light queues are on, which have topics
    and groups that are in no table."""

    config: BrokerConfig
    role: RoleHolder
    now_ms: Callable[[], int]
    in_thread: InThread = at_once
    in_slices: InSlices = all_steps
    lmq: bool = False


class RoleTable(VersionedTable[E, B]):
    """A table that a master changes and a slave copies; its version tells the master's epoch."""

    def __init__(self, file: TableFile, entries: dict[str, E], context: TableContext) -> None:
        self._config = context.config
        self._role = context.role
        self._lmq = context.lmq
        super().__init__(file, entries, context.now_ms, context.in_thread, context.in_slices)

    def _state_version(self) -> int:
        return self._role.state_version


class EntryCache:
    """The entries of a table in their wire form, each encoded once.

    May be used in any thread, for a mapping that does not change meanwhile. An entry is known again
    by its identity, so a table replaces its entries and never changes them.
    """

    def __init__(self) -> None:
        self._encoded: dict[str, tuple[object, bytes]] = {}

    def encode(self, entries: Mapping[str, object], *, whole: bool = True) -> msgspec.Raw:
        """Returns `entries` in stock's form, to stand in a body instead of the mapping. Not
        `whole`: they are a part of the table."""
        encoded = self._encoded
        if whole and len(encoded) > 2 * len(entries) + _SPARE:
            encoded = self._encoded = {}
        parts = []
        for name, entry in entries.items():
            known = encoded.get(name)
            if known is None or known[0] is not entry:
                known = (entry, encode_body(name) + b":" + encode_body(entry))
                encoded[name] = known
            parts.append(known[1])
        return msgspec.Raw(b"{" + b",".join(parts) + b"}")
