"""The interface of a message store: what it is asked, what it answers, and what it asks of its
log."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from zope.interface import Attribute, Interface

from rocketmq_tw.files.interface import DiskUsage
from rocketmq_tw.message.batch import Batch
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.properties import PropertiesMatch
from rocketmq_tw.message.record import RecordHead
from rocketmq_tw.store.place import OpenedAt
from rocketmq_tw.store.queue_extension import UnitExtra
from rocketmq_tw.structs import msgspec


class Appended(msgspec.Struct, frozen=True, gc=False):
    """Where messages went; `end_offset` is the log's end behind the last of them."""

    physical_offset: int
    end_offset: int
    queue_offset: int
    store_timestamp: int
    #: Offset message ids in upper-case hex, of a batch's messages with commas between them.
    message_ids: str


class GetStatus(Enum):
    """Why a read of a queue returned what it did; stock's GetMessageStatus."""

    FOUND = "found"
    NO_MATCHED_MESSAGE = "no_matched_message"
    MESSAGE_WAS_REMOVING = "message_was_removing"
    OFFSET_FOUND_NULL = "offset_found_null"
    OFFSET_OVERFLOW_BADLY = "offset_overflow_badly"
    OFFSET_OVERFLOW_ONE = "offset_overflow_one"
    OFFSET_TOO_SMALL = "offset_too_small"
    NO_MATCHED_LOGIC_QUEUE = "no_matched_logic_queue"
    NO_MESSAGE_IN_QUEUE = "no_message_in_queue"


#: Bytes of the messages of one answer, whatever is asked for and configured, unless its first one
#: alone is larger: clients take frames of 16 MiB, and would ask for what they cannot take for ever.
MOST_ANSWER_BYTES = 4 << 20


class QueueRead(NamedTuple):
    """What a read of a queue found: whole records, as they are in the log, joined in `data`."""

    status: GetStatus
    data: bytes
    messages: int
    next_offset: int
    min_offset: int
    max_offset: int
    suggest_slave: bool = False


#: (tag hash code of the consume queue) -> may it match?  None: every message matches.
TagMatch = Callable[[int], bool]
#: (what a queue's extension has of a message, its offset in the log) -> may it match?
ExtraMatch = Callable[[UnitExtra, int], bool]


class MessageFilter(NamedTuple):
    """Tells which messages of a queue a reader wants: `by_unit` rules out by what the queue itself
    has of a message, and `by_extra` by what its extension has, if it has one; `by_properties`
    decides by the message's properties; None leaves nothing out. Pulls, held reads and pops ask in
    the same way. Where `by_properties` takes `weight` times as long as a usual one, one read looks
    at so many times fewer messages."""

    by_unit: TagMatch | None = None
    by_properties: PropertiesMatch | None = None
    weight: int = 1
    by_extra: ExtraMatch | None = None


EVERY_MESSAGE = MessageFilter()


class Arrived(Protocol):
    """Messages that became readable in their queue, from `queue_offset` on: one, or the `count` of
    a batch; `size` is the bytes of all, `tags_codes` has each one's."""

    @property
    def topic(self) -> str: ...
    @property
    def queue_id(self) -> int: ...
    @property
    def queue_offset(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def tags_codes(self) -> Sequence[int]: ...
    def properties_of(self, number: int) -> bytes:
        """Returns the properties of one of them, counted from 0."""
        ...


class QueueUnit(Protocol):
    """Where a message of a queue stands in the log, the hash of its tag, or what else the queue
    has in its place, and what its extension has."""

    @property
    def position(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def tags_code(self) -> int: ...
    @property
    def extra(self) -> UnitExtra | None: ...


#: Called with what one dispatch made readable, in the order of the log.
Arrival = Callable[[Sequence[Arrived]], None]


class RecordScan(Protocol):
    """Records of a log in their order. `position` is behind the last one given out; `damaged` says,
    when no more come, that what stands there is no record."""

    position: int
    end: int
    damaged: bool

    def __iter__(self) -> Iterator[RecordHead]: ...


class IRecoveryReport(Protocol):
    """What a start found: `records` of the log were read from `start_offset` to its end at
    `end_offset`, and notes say, with offsets and bytes, what was changed; `clean`: the last stop
    was one."""

    clean: bool
    start_offset: int
    end_offset: int
    records: int
    notes: list[str]


class Disks(NamedTuple):
    """The use of the disk with the log, and of that with the rest of the store."""

    log: DiskUsage
    rest: DiskUsage


class ILog(Interface):
    """The log, as a message store asks it: a run of records, each whole in one of its files, that
    is appended to at its end and loses files at its front.

    Appends are buffered until `write`. One thread uses the log; only `fsync` may run in another
    one meanwhile, but not while `truncate_to` does. Errors are `StoreError`."""

    directory: str = Attribute("Where its files are.")
    file_size: int = Attribute("No record crosses a multiple of this.")
    front_size: int = Attribute("So many bytes of its own stand in front of each record.")
    file_starts: Sequence[int] = Attribute("Where each file starts, the oldest first.")
    files_end: int = Attribute("Behind the last file, whether it is filled or not.")
    min_offset: int = Attribute("Where the oldest file starts; the written end without one.")
    end_offset: int = Attribute("The end, with what is still buffered.")
    written_offset: int = Attribute("Up to here the files have it; `read` gives no more.")
    flushed_offset: int = Attribute("Up to here it is on stable storage.")
    own_from: int = Attribute("From here on this process made all since it opened the log.")
    failure: str = Attribute("Why nothing can be written any more; empty while all is well.")

    def places() -> Sequence[OpenedAt]:
        """Returns open files by which to see that all are where they were opened. Touches no
        disk."""

    def first_record(start: int) -> int:
        """Returns where the first record of the file stands that starts at `start`."""

    def modified_ms(start: int) -> int:
        """Returns when the file that starts at `start` was written last; see `IFile`."""

    def load(*, clean: bool, safe: int = -1) -> None:
        """Finds the files; `clean`: nothing interrupted the last one who wrote; `safe`: a
        checkpoint vouches for all in front of it. `end_at` must follow once recovery knows the
        end."""

    def scan(position: int, end: int, *, check_body: bool = True) -> RecordScan:
        """Reads the records from one that starts at `position`, up to `end` at most, whatever
        is written."""

    def peek(size: int, offset: int) -> bytes:
        """Returns what the files have, whatever is written; not past the end of a file."""

    def write_again(since: int) -> None:
        """Makes durable what the files have from `since` on, also where a sync of the last process
        failed."""

    def end_at(offset: int, *, cut: bool, since: int) -> None:
        """Ends recovery: the log ends at `offset`, behind its last sound record, and appends go on
        there. With `cut` what stands behind it is removed. Durable from `since` on."""

    def reserve(size: int) -> int:
        """Returns the offset at which a record of `size` bytes goes, perhaps in the next file.
        Raises `IllegalMessageError` where it is too large for any."""

    def push_fitting(data: bytes) -> bool:
        """Buffers a record at the end; False where its file has no room for it, and `reserve` must
        say where it goes."""

    def push(data: bytes) -> None:
        """Buffers a record at the offset that `reserve` gave."""

    def push_each(data: bytes, sizes: Sequence[int]) -> Sequence[int]:
        """Buffers the records of `sizes` bytes that `data` has, each at an offset of its own, which
        it is made to say; returns the offsets. Only where `front_size` is not 0."""

    def push_raw(data: bytes) -> None:
        """Buffers a replica's bytes, which may cross the ends of files."""

    def write() -> int:
        """Writes what is buffered and returns the end; where it raises, all that was buffered is
        dropped."""

    def fsync() -> int:
        """Makes what is written durable; returns the offset reached."""

    def read(size: int, offset: int) -> bytes:
        """Returns up to `size` written bytes, not past the end of a file; empty where there are
        none."""

    def truncate_to(offset: int) -> None:
        """Drops everything at and behind `offset`; durable when it returns."""

    def start_at(offset: int) -> None:
        """Lets an empty log begin elsewhere than at 0."""

    def remove_first() -> None:
        """Removes the oldest file, once the removals before it are durable, so that a power loss
        leaves no gap: it syncs where `has_unsynced_removals`. The caller leaves the last one
        alone."""

    has_unsynced_removals: bool = Attribute("Whether a power loss may bring removed files back.")

    def sync_removals() -> None:
        """Makes durable that files are removed; blocks, in any thread."""

    def close() -> None:
        """Closes all files; what is still buffered is gone."""


class ICheckpointWrite(Protocol):
    """A checkpoint that is prepared and not written yet."""

    def __call__(self) -> bool:
        """Syncs the files that changed and writes the checkpoint; blocks. Returns False where it
        was stopped."""
        ...

    def stop(self) -> None:
        """Ends a call that another thread makes, after the file that it is syncing; the next
        checkpoint syncs the others."""
        ...


class IMessageStore(Interface):
    """The message store. Synchronous and without a reactor: `broker/writing/commit.py` decides when
    to write, when to fsync in a thread, and which senders to answer. Appends are buffered until
    `write_pending`; a reader sees a message only after `dispatch`."""

    end_offset: int = Attribute("The log's end, with what is still buffered.")
    written_offset: int = Attribute("Up to here the log is in its files; readers see no more.")
    flushed_offset: int = Attribute("Up to here the log is on stable storage.")
    dispatched_offset: int = Attribute("Up to here messages are in their queues.")
    last_record_offset: int = Attribute("Where the newest queued record starts; -1: nowhere.")
    min_physical_offset: int = Attribute("Where the oldest commit-log file starts.")
    is_dispatched: bool = Attribute("Messages are in their queues as far as they may be.")
    cached_bytes: int = Attribute("How much of the log's end is taken to be in memory.")
    failure: str = Attribute("Why nothing can be stored before a restart; else empty.")
    refusal: str = Attribute("Why nothing can be stored now; else empty.")

    dispatch_limit: int | None = Attribute(
        "Nothing behind it is dispatched, nor by `load` if it is set before; None: no limit."
    )

    def load() -> IRecoveryReport:
        """Takes the lock, reads the checkpoint, recovers; raises `StoreError` that says why."""

    def append(message: StoredMessage, *, batch: Batch | None = None) -> Appended:
        """Appends one record, or with `batch` a record for each message of it, with consecutive
        queue offsets and all else as `message` has it. Sets store time, size and offsets of
        `message`; with a batch to its first record's. Raises `StoreError` where it cannot (too
        large, disk full, not writable)."""

    def append_raw(offset: int, data: bytes) -> None:
        """Appends a replica's log bytes, as they are, at exactly the end; raises `StoreError`."""

    def write_pending() -> int:
        """Writes all buffered appends with as few system calls as there are files touched;
        returns the end offset written."""

    def fsync() -> int:
        """Makes all written durable (callable from a thread); returns the offset reached."""

    def dispatch() -> int:
        """Puts what is written and not dispatched yet into consume queues and index, some 20 ms of
        work at most, and calls the arrival callbacks; returns the number of messages, 0 where
        nothing more can be done now."""

    def read_queue(
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        max_bytes: int,
        wanted: MessageFilter = EVERY_MESSAGE,
        *,
        check_fresh: bool = True,
    ) -> QueueRead:
        """Returns whole records from a queue offset on, up to `max_bytes` and `MOST_ANSWER_BYTES`;
        at least one where one is there. Damaged ones are left out; without `check_fresh` a body is
        taken to be what it was where this process stored it among the newest 256 MiB, which memory
        mostly has still: for readers that compare its CRC themselves."""

    def read_log(offset: int, size: int) -> bytes:
        """Returns raw log bytes for replication; never past the end of a file."""

    def message_at(physical_offset: int) -> StoredMessage | None:
        """Returns the record that starts at an offset; None where none does."""

    def record_at(physical_offset: int) -> bytes | None:
        """Returns the bytes of the record that starts at an offset; None where no sound one
        does."""

    def records(position: int) -> Iterator[RecordHead]:
        """Yields the heads of all whole records from `position` on, where one must start, in the
        order of the log; to be used up before the log is cut or its files are removed."""

    def scan(position: int) -> RecordScan:
        """Reads heads as `records` does, and tells how far whole records and filled ends of files
        go."""

    def max_queue_offset(topic: str, queue_id: int) -> int:
        """Returns the offset that the next message of the queue gets; 0 where there is no queue."""

    def min_queue_offset(topic: str, queue_id: int) -> int:
        """The oldest offset still readable; 0 where there is no queue."""

    def places_of(head: RecordHead) -> Iterable[tuple[str, int, int]]:
        """Topic, queue and offset of all units that a record of the log has, or gets once it is
        dispatched."""

    def queue_end_at(topic: str, queue_id: int, position: int) -> int | None:
        """The offset at which a queue would end if the log were cut at `position`; None where it
        has nothing behind that."""

    def offset_by_time(topic: str, queue_id: int, timestamp: int, *, upper: bool = False) -> int:
        """The first offset stored at or after `timestamp`; `upper`: the last one at or before."""

    def store_time(topic: str, queue_id: int, offset: int) -> int:
        """Store time of the message at a queue offset; -1 where there is none."""

    def earliest_store_time(topic: str, queue_id: int) -> int:
        """Store time of the queue's oldest message; -1 where there is none."""

    def queue_units(topic: str, queue_id: int, offset: int, count: int) -> Sequence[QueueUnit]:
        """What the consume queue itself has from an offset on, as far as it is still readable."""

    def queue_ids(topic: str) -> Sequence[int]:
        """The ids of a topic's queues that have files."""

    def queue_topics() -> Sequence[str]:
        """The topics that have queues, with files or without."""

    def search_by_key(
        topic: str, key: str, max_count: int, begin: int, end: int, found: list[int]
    ) -> Iterator[None]:
        """Adds to `found` the physical offsets that the index has for a key, at most `max_count`;
        in steps of a millisecond, between which anything else may be done with the store."""

    indexed: tuple[int, int] = Attribute(
        "Store time and physical offset of the last message in the index; 0 and 0 without one."
    )

    def settle_deletions() -> None:
        """Removes what is left of deleted queues, durably, so that `truncate_to` need not; in any
        thread, while no checkpoint is written. Raises `StoreError`."""

    def truncate_to(offset: int) -> Iterator[None]:
        """Drops the log at and behind `offset`, which must be where a record starts, and what
        queues and index say of it; the dispatch limit goes back with it. In steps, between which
        all may be read, topics may be removed, and what else would change the store is refused or
        waits. Durable at the end; a crash in the middle leaves a store that loads, with all that
        stands in front of `offset`. Raises `StoreError`; after one from half-way nothing can be
        stored before a restart.

        The caller sees to it that nothing else is under way: no `fsync` and no prepared
        checkpoint in another thread, no append that waits for one. Consumers' offsets, delays and
        held reads behind `offset` are its own to correct before it goes on."""

    def remove_topics(topics: Iterable[str]) -> None:
        """Removes the consume queues of topics. What was appended to them so far belongs to no
        queue any more, whatever is built again; what is appended from now on, to new ones. The next
        `fsync` makes it durable."""

    has_unsynced_deletions: bool = Attribute(
        "Whether the next `fsync` has topics' removals to sync."
    )

    def clean(
        now_ms: int, *, at_any_hour: bool = False, disks: Disks | None = None
    ) -> Iterator[int]:
        """Retention by age and disk ratio, in steps between which the store may be used; each gives
        the number of files that it removed, of the log's one at most. `at_any_hour`: what is too
        old goes now, not only at `deleteWhen`. `disks` is what was measured just now, in a thread;
        measured here without. A step waits for the disk where the one before it left unsynced
        removals, and nobody synced them."""

    has_unsynced_removals: bool = Attribute(
        "Whether a power loss may bring back files of the log that `clean` removed."
    )

    def sync_removals() -> None:
        """Makes durable what `clean` removed of the log; blocks, in any thread. Raises
        `OSError`."""

    unsynced_files: int = Attribute("How many files the next checkpoint has to sync.")

    def write_queues() -> Iterator[None]:
        """Steps that write what queues have in memory only, so that a checkpoint finds little of
        it; the store may change in between."""

    def prepare_checkpoint(*, thorough: bool = True) -> ICheckpointWrite | None:
        """What makes queues and index durable and says so in the checkpoint; None where nothing
        changed. It may be called in any thread, once the log is durable up to the `written_offset`
        of now, and raises `StoreError` before.

        Not `thorough`: what can be made again quickly from what is durable is left out."""

    def on_arrival(callback: Arrival, topic: str | None = None) -> Callable[[], None]:
        """Adds a listener to dispatch, told of the messages of `topic` only where one is given; the
        function returned removes it."""

    def close() -> None:
        """Writes, flushes, checkpoints and, where dispatch is complete, removes `abort`."""
