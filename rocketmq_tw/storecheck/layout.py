"""Finds the files of a store, and what is known of them before the log is read."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

import attrs

from rocketmq_tw.storecheck.dledger import EntryLog
from rocketmq_tw.storecheck.findings import Findings, Remedy
from rocketmq_tw.storecheck.long_file import LongFile, directories
from rocketmq_tw.storecheck.lost import LostParts
from rocketmq_tw.storecheck.walk import LogWalk, PlainLog

#: Bytes of a queue's file where nothing else is configured.
STOCK_QUEUE_SIZE = 6_000_000


class NoStoreError(Exception):
    """There is no store that can be looked at; the text says what to do."""


@attrs.frozen
class Sizes:
    """Sizes of a store's files in bytes, None where the files themselves tell; slots and entries of
    an index file."""

    log: int | None = None
    queue: int | None = None
    extension: int | None = None
    timer_log: int | None = None
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000

    @property
    def are_given(self) -> bool:
        """Whether a configuration says them."""
        return self.queue is not None


@attrs.frozen
class Known:
    """What queues and index are to be judged by. The log starts at `log_start`; what is behind
    `confirmed` may be in no queue yet; topics of `deleted` had their messages in front of a log
    offset removed; of what is `lost` they may know still; queues of the topics `passed_over` are of
    kinds that are not looked at."""

    log_start: int
    #: Returns the file of the log in which a log offset is, and the byte there.
    log_name: Callable[[int], tuple[str, int]]
    #: Returns so many bytes of the log from a log offset on, or fewer.
    read_log: Callable[[int, int], bytes]
    confirmed: int | None = None
    was_closed: bool = True
    deleted: Mapping[str, int] = attrs.field(factory=dict)
    lost: LostParts = attrs.field(factory=LostParts)
    passed_over: Sequence[str] = ()

    def is_due(self, position: int) -> bool:
        """Returns whether queues and index must have the record at a log offset."""
        return self.confirmed is None or position < self.confirmed

    def is_astray(self, position: int) -> bool:
        """Returns whether what leads to a log offset, where no record of it is, is wrong: there is
        none of a record that has expired, or that is to be restored."""
        return position >= self.log_start and position not in self.lost

    @property
    def tail_remedy(self) -> Remedy:
        """What brings what is missing at an end: a start, where the store was not closed."""
        return Remedy.REPAIR if self.was_closed and self.confirmed is None else Remedy.START


class Store:
    """The directories of the store at `root`. Raises `NoStoreError` where none is there."""

    def __init__(self, root: str, sizes: Sizes, commit_log: str = "") -> None:
        self.root = root = root.rstrip("/") or "/"
        self.sizes = sizes
        if not os.path.isdir(root):
            raise NoStoreError(f"{root} is no directory")
        names = list(directories(root))
        members = [name for name in names if name.startswith("dledger-")]
        #: Where the files of the log are.
        self.log_path = commit_log.rstrip("/") or f"{root}/commitlog"
        self.is_log_inside = not commit_log
        if commit_log:
            parent, _, name = commit_log.rstrip("/").rpartition("/")
            self.log = LongFile(parent, name, sizes.log, keep_open=True)
        else:
            self.log = LongFile(root, "commitlog", sizes.log, keep_open=True)
        self.member = members[0] if members else ""
        if not members and not self.log.starts and "commitlog" not in names and not commit_log:
            raise NoStoreError(f"{root} is no store: it has no commitlog directory")
        self.entries = LongFile(root, f"{self.member}/data", sizes.log, keep_open=True)
        self.was_closed = not os.path.exists(f"{root}/abort")

    @property
    def log_start(self) -> int:
        """Where the oldest part of the log starts."""
        logs = [log for log in (self.log, self.entries) if log.starts]
        return logs[0].min_offset if logs else 0

    @property
    def data_size(self) -> int:
        """Bytes of the log that are to be read."""
        return self.log.data_size + (self.entries.data_size if self.member else 0)

    def read(self, size: int, position: int) -> bytes:
        """Returns bytes of the log."""
        return self._part(position).read(size, position)

    def name(self, position: int) -> tuple[str, int]:
        """Returns the file of the log in which an offset is, and the byte there."""
        return self._part(position).name(position)

    def _part(self, position: int) -> LongFile:
        is_entry = self.entries.starts and position >= self.entries.min_offset
        return self.entries if is_entry else self.log

    def walks(
        self,
        findings: Findings,
        advance: Callable[[int], object] = lambda count: None,
        *,
        check_body: bool = True,
        first: int = 0,
        lost: LostParts | None = None,
    ) -> list[LogWalk]:
        """Returns what reads the log, part after part, from the file on that has the offset
        `first`; `lost` gets the parts without a whole record that others follow."""
        # A broker that was stopped goes on where it ended, and looks at nothing behind that; a
        # member of a DLedger group always does.
        torn = Remedy.REPAIR if self.was_closed and not self.member else Remedy.START
        parts: list[tuple[LongFile, PlainLog]] = []
        if self.log.starts or not self.member:
            parts.append((self.log, PlainLog()))
        if self.member:
            index = LongFile(self.root, f"{self.member}/index", keep_open=True)
            parts.append((self.entries, EntryLog(index, findings)))
        return [
            LogWalk(
                log,
                findings,
                framing=framing,
                advance=advance,
                check_body=check_body,
                lost=lost,
                torn=torn,
                from_offset=max(log.min_offset, first - first % max(log.file_size, 1)),
            )
            for log, framing in parts
        ]
