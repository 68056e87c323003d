"""A message store's log that is a Raft log: each record is the body of an entry, as stock's
DLedger commit log has it (docs/formats/dledger.md).

Only what is committed, and stored here, counts as written to a reader. What a leader appends has
its place at once, since the leader decides it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from zope.interface import implementer

from rocketmq_tw.message.layout import moved
from rocketmq_tw.raft.core.codes import Refused
from rocketmq_tw.raft.core.entry import ENTRY_HEADER_SIZE, Entry, largest_body, place
from rocketmq_tw.raft.record_scan import RecordsOfEntries
from rocketmq_tw.raft.store.member import MemberStore
from rocketmq_tw.store.errors import (
    DamagedStoreError,
    IllegalMessageError,
    NotWritableError,
    StoreError,
)
from rocketmq_tw.store.interface import ILog
from rocketmq_tw.store.place import OpenedAt
from rocketmq_tw.store.segments import Segments


class LogGroup(Protocol):
    """The group's member, as the log needs it, see `RaftNode`."""

    @property
    def trouble(self) -> str: ...

    def append(self, bodies: Sequence[bytes], end_pos: int, term: int) -> None: ...

    def drop_files_before(self, position: int) -> None: ...


@implementer(ILog)
class RaftLog:
    """See `ILog`. `open_member` opens the member's files, whose data files have `file_size` bytes
    each; no body has more than `largest` bytes.

    Once `group` is set, `lead` lets messages be appended, at the end of a log of which everything
    is committed, and `follow` ends that. `commit` tells how far it is committed.

    What is appended counts for the term of `lead` only: places and queue offsets were given by what
    this member knew then, and in another term somebody else may have appended."""

    front_size = ENTRY_HEADER_SIZE

    def __init__(
        self,
        open_member: Callable[[], MemberStore],
        file_size: int,
        largest: int,
        *,
        open_older: Callable[[], Segments | None] = lambda: None,
    ) -> None:
        """`open_older` opens the files of a plain log in front of the group's; None: none."""
        self._open_member = open_member
        self._member: MemberStore | None = None
        self._open_older = open_older
        self._older: Segments | None = None
        #: Where the group's part begins, behind a plain log.
        self._divide = 0
        self.file_size = file_size
        self._largest = min(largest, largest_body(file_size))
        self.group: LogGroup | None = None
        self.end_offset = self.written_offset = self.committed_offset = self.min_offset = 0
        self.failure = ""
        #: Where it ended when this member began to lead.
        self._lead_from = 0
        #: The term in which messages may be appended here.
        self._term: int | None = None
        #: Bodies of entries that `write` hands over, and where the first of them goes.
        self._bodies: list[bytes] = []
        #: Whether some were dropped of which `write` has not told yet.
        self._dropped = False

    @property
    def leads(self) -> bool:
        """Whether messages may be appended here."""
        return self._term is not None

    @property
    def trouble(self) -> str:
        """Why the member stores nothing for now; empty where it does."""
        return "" if self.group is None else self.group.trouble

    @property
    def member(self) -> MemberStore:
        """The member's files, once they are open."""
        if self._member is None:
            raise StoreError("the log is not loaded")
        return self._member

    @property
    def directory(self) -> str:
        """Where the group's files are."""
        return self.member.data.directory

    def places(self) -> Sequence[OpenedAt]:
        """See `ILog`."""
        return [] if self._member is None else self._member.places()

    @property
    def flushed_offset(self) -> int:
        """See `ILog`. All of the log: a message is announced only when a quorum has it on stable
        storage."""
        return self.written_offset

    @property
    def own_from(self) -> int:
        """See `ILog`. A follower has it from other members, whose disks may have spoiled it."""
        return self._lead_from if self.leads else self.end_offset

    @property
    def files_end(self) -> int:
        """Where the committed part ends: what lies behind may be replaced."""
        return self.committed_offset

    @property
    def file_starts(self) -> list[int]:
        """Where each file starts, the oldest first."""
        first = self.min_offset - self.min_offset % self.file_size
        every = [*(self._older.starts if self._older else ()), *self.member.data.starts]
        return [one for one in every if first <= one < self.committed_offset]

    def first_record(self, start: int) -> int:
        """See `ILog`."""
        return start + ENTRY_HEADER_SIZE if start >= self._divide else start

    def modified_ms(self, start: int) -> int:
        """See `ILog`."""
        older = start < self._divide and self._older
        return (older or self.member.data).file(start).modified_ms()

    def load(self, *, clean: bool, safe: int = -1) -> None:
        """See `ILog`. What a checkpoint vouches for was committed."""
        self._member = member = self._open_member()
        if safe >= 0:
            member.commit(member.last_index_before(safe))
        self._older = older = self._open_older()
        begin = member.begin_pos
        if older is not None and older.starts and (member.end_index < 0 or begin == older.end):
            self._divide, self.min_offset = older.end, older.starts[0]
        else:
            # An older log that the group's does not follow is not a part of it any more.
            self._divide = self.min_offset = begin
        self._end_at(max(member.end_pos_of(member.commit_index), self._divide))

    def _end_at(self, offset: int) -> None:
        self._dropped |= bool(self._bodies)
        self._bodies.clear()
        self.end_offset = self.written_offset = self.committed_offset = offset

    def scan(self, position: int, end: int, *, check_body: bool = True) -> RecordsOfEntries:
        """See `ILog`; a record's own offset will do as well."""
        return RecordsOfEntries(
            self._pread,
            self.file_size,
            max(position, self.min_offset),
            min(end, self.committed_offset),
            check_body=check_body,
        )

    def peek(self, size: int, offset: int) -> bytes:
        """See `ILog`."""
        return self.read(size, offset)

    def read(self, size: int, offset: int) -> bytes:
        """See `ILog`."""
        size = min(size, self.committed_offset - offset)
        if size <= 0 or offset < 0:
            return b""
        return self._pread(size, offset)

    def _pread(self, size: int, offset: int) -> bytes:
        if offset < self._divide and self._older is not None:
            return self._older.pread(size, offset)
        return self.member.data.pread(size, offset)

    def write_again(self, since: int) -> None:
        """See `ILog`. The files are the member's, who settles them when it is opened."""

    def end_at(self, offset: int, *, cut: bool, since: int) -> None:
        """See `ILog`: a log whose committed part is damaged is refused."""
        if offset != self.committed_offset:
            raise DamagedStoreError(
                f"entries behind {offset} hold damaged messages, though all up to"
                f" {self.committed_offset} were committed: restore the file from another member"
            )

    # Appending

    def lead(self, term: int) -> None:
        """Lets messages be appended: this member leads in `term`, and all of its log is
        committed."""
        self._term = term
        self._lead_from = self.end_offset

    def follow(self) -> None:
        """Ends appending: this member does not lead any more, and what was not committed may never
        be."""
        self._term = None
        self._end_at(self.committed_offset)

    def commit(self, entry: Entry) -> None:
        """Notes that all entries up to this one are committed and stored here."""
        self.committed_offset = entry.end_pos
        if not self.leads:
            self.end_offset = self.written_offset = entry.end_pos

    def begin_anew(self, position: int) -> None:
        """Drops all entries: the leader's log begins behind them, at `position`."""
        self._divide = self.min_offset = position
        self._end_at(position)

    def reserve(self, size: int) -> int:
        """See `ILog`."""
        if size > self._largest:
            raise IllegalMessageError(
                f"{size} bytes do not fit in an entry of {self._largest}: lower maxMessageSize"
            )
        return self._place(size) + ENTRY_HEADER_SIZE

    def _place(self, size: int) -> int:
        if not self.leads:
            raise NotWritableError("this broker does not lead its DLedger group")
        return place(self.end_offset, ENTRY_HEADER_SIZE + size, self.file_size)

    def push_fitting(self, data: bytes) -> bool:
        """See `ILog`."""
        if self._place(len(data)) != self.end_offset or len(data) > self._largest:
            return False
        self._push(data, self.end_offset)
        return True

    def push(self, data: bytes) -> None:
        """See `ILog`."""
        self._push(data, self._place(len(data)))

    def push_each(self, data: bytes, sizes: Sequence[int]) -> list[int]:
        """See `ILog`."""
        for size in sizes:
            self.reserve(size)
        offsets, start = [], 0
        for size in sizes:
            position = self._place(size)
            offsets.append(position + ENTRY_HEADER_SIZE)
            self._push(moved(data[start : start + size], offsets[-1]), position)
            start += size
        return offsets

    def _push(self, data: bytes, position: int) -> None:
        self._bodies.append(data)
        self.end_offset = position + ENTRY_HEADER_SIZE + len(data)

    def push_raw(self, data: bytes) -> None:
        """Raises `StoreError`: followers get entries, not bytes."""
        raise StoreError("a log of a DLedger group takes no bytes of another broker")

    def write(self) -> int:
        """See `ILog`: hands the records over to the group. Raises `NotWritableError` where this
        member cannot append, or stopped leading meanwhile, and then none is in the log."""
        dropped, self._dropped = self._dropped, False
        if not self._bodies and not dropped:
            return self.written_offset
        bodies, self._bodies = self._bodies, []
        end, self.end_offset = self.end_offset, self.written_offset
        if self.group is None or self._term is None or dropped:
            raise NotWritableError("this broker does not lead its DLedger group")
        try:
            self.group.append(bodies, self.written_offset, self._term)
        except Refused as refused:
            raise NotWritableError(f"the DLedger group refuses: {refused}") from refused
        self.end_offset = self.written_offset = end
        return end

    def fsync(self) -> int:
        """See `ILog`: the group does that before it commits."""
        return self.written_offset

    # The rest

    def truncate_to(self, offset: int) -> None:
        """Raises `StoreError`: what is committed stays, and the group alone cuts the rest."""
        raise StoreError("a log of a DLedger group is not truncated")

    def start_at(self, offset: int) -> None:
        """Raises `StoreError`: the group decides where its log begins."""
        raise StoreError("a log of a DLedger group begins where its leader's does")

    def remove_first(self) -> None:
        """See `ILog`; the file goes soon."""
        self.min_offset, first = self.file_starts[1], self.file_starts[0]
        if first < self._divide and self._older is not None:
            self._older.remove_first()
        elif self.group is not None:
            self.group.drop_files_before(self.min_offset)

    @property
    def has_unsynced_removals(self) -> bool:
        """See `ILog`. The group syncs its own before it goes on."""
        return self._older is not None and self._older.removed_may_return

    def sync_removals(self) -> None:
        """See `ILog`."""
        if self._older is not None:
            self._older.sync_removals()

    def close(self) -> None:
        """See `ILog`."""
        self._bodies.clear()
        member, self._member = self._member, None
        if member is not None:
            member.close()
        if self._older is not None:
            self._older.close()
