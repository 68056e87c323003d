"""Keeps which topics were deleted when, so that no rebuild of the queues brings them back.

The log keeps the messages of a deleted topic until retention removes them. What stands in front of
a topic's deletion belongs to no queue any more; what stands behind it, to the topic that was made
again under that name. Format: docs/formats/deletedtopics.md.

A replica gets its master's log before its tables, and stock keeps no note of deletions. A queue
that knows a message then gets a first one, which nothing else explains but damage: no checksum
covers a record's queue offset. The topic counts as deleted at the earliest place that the log
allows: behind the last message of that queue, and of each that began in front of the place. Queues
that began behind it may be of the new topic and stay until they get a first message again. A queue
that knows no message, as retention or a power loss took what it had, says nothing: it goes on with
the next message that it gets.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from operator import attrgetter

from rocketmq_tw.files.atomic import write_atomic
from rocketmq_tw.files.interface import IFile, IFiles
from rocketmq_tw.message.record import RecordHead
from rocketmq_tw.store.checkpoint import Checkpoint
from rocketmq_tw.store.consume_queue import ConsumeQueue
from rocketmq_tw.store.dispatch_entries import EntryMaker
from rocketmq_tw.store.interface import ILog
from rocketmq_tw.structs import msgspec


class Deletion(msgspec.Struct, frozen=True):
    """A topic that was deleted where the log ended at `offset`. Of the queues and units that the
    checkpoint of that moment counts (it has `safe_offset` and `all_units`), `queues` and `units`
    were the topic's."""

    topic: str
    offset: int
    queues: int = 0
    units: int = 0
    safe_offset: int = -1
    all_units: int = 0


class DeletedTopics:
    """The file at `path`. `note` writes and does not block for the disk; `sync` makes it durable
    and may run in other threads."""

    def __init__(self, files: IFiles, path: str) -> None:
        self.is_stale = False
        self._files = files
        self._path = path
        self._file: IFile | None = None
        self._end = 0
        self._is_new = False
        #: How often something was noted, and how much of that is durable.
        self._noted = self._synced = 0
        #: Each note that is not durable: its place in the file, and its bytes.
        self._unsynced: dict[int, tuple[int, bytes]] = {}
        self._latest: dict[str, int] = {}
        self._all: list[Deletion] = []

    def __bool__(self) -> bool:
        return bool(self._latest)

    @property
    def unsynced(self) -> bool:
        """Whether something was noted that is not durable yet."""
        return self._synced < self._noted

    @property
    def noted(self) -> int:
        """The number of the last note."""
        return self._noted

    @property
    def durable(self) -> int:
        """The number of the last note that is durable, as all before it are."""
        return self._synced

    def load(self) -> None:
        """Reads the file; a line that is damaged was never durable. What it has is durable when it
        returns: a start acts on it. Raises `OSError`."""
        try:
            data = self._files.read(self._path)
        except FileNotFoundError:
            data = b""
        if data:
            self._is_new = True
            self._file = self._files.open(self._path)
            # Readable is also what the last process could not sync.
            self._add_unsynced(0, data)
            self.sync()
            self.close()
        self._set(filter(None, map(_parse, data.split(b"\n"))))
        self._end = len(data)

    def rewrite(self, min_offset: int, end_offset: int) -> None:
        """Drops notes of deletions in front of `min_offset`, where the log now begins, and those
        behind `end_offset`, where it ends, since new messages get these offsets. Durable when it
        returns."""
        kept = [
            msgspec.structs.replace(one, offset=min(one.offset, end_offset))
            for one in self._all
            if min(one.offset, end_offset) > min_offset
        ]
        if kept != self._all or self._end != len(_text(kept)):
            self._set(kept)
            self.close()
            self._replace(_text(kept))

    def forget(self, min_offset: int, checkpoint: Checkpoint) -> None:
        """Forgets the oldest deletions, of which the log, that begins at `min_offset` now, has
        nothing any more, and `checkpoint`, the last one, counts nothing. The file has them until it
        is written again."""
        known = checkpoint.safe_offset, checkpoint.units
        gone = 0
        for one in self._all:
            if one.offset > min_offset or (one.safe_offset, one.all_units) == known:
                break
            gone += 1
        for one in self._all[:gone]:
            if self._latest.get(one.topic, min_offset + 1) <= min_offset:
                del self._latest[one.topic]
        del self._all[:gone]

    def forget_counts(self) -> None:
        """Drops the counts of queues and units, once a checkpoint was written since all these
        deletions. Durable when it returns."""
        self._set([msgspec.structs.replace(one, queues=0, units=0) for one in self._all])
        self.close()
        self._replace(_text(self._all))

    def _replace(self, text: bytes) -> None:
        write_atomic(self._files, self._path, text)
        self._end = len(text)
        self._synced = self._noted
        self._unsynced.clear()

    def note(self, deletions: list[Deletion]) -> None:
        """Notes that topics were deleted. Raises `OSError`, and then they count as not deleted,
        unless `is_stale` says that half a note could not be taken back."""
        if not deletions:
            return
        if self._file is None:
            self._is_new = not self._files.exists(self._path)
            self._file = self._files.open(self._path, create=True)
        # In front of it a line feed: a torn line must not take this one along.
        text = b"\n" + _text(deletions)
        try:
            self._file.pwrite(text, self._end)
        except OSError:
            self.is_stale = True
            self._file.truncate(self._end)
            # A power loss may leave what was written and not the truncation.
            self._file.fsync()
            self.is_stale = False
            raise
        self._add_unsynced(self._end, text)
        self._end += len(text)
        if all(one.offset >= self._latest.get(one.topic, 0) for one in deletions):
            self._all += deletions
            self._latest.update((one.topic, one.offset) for one in deletions)
        else:
            self._set([*self._all, *deletions])

    def _add_unsynced(self, place: int, text: bytes) -> None:
        self._unsynced[self._noted + 1] = place, text
        self._noted += 1

    def take_back(self, end_offset: int) -> None:
        """Corrects the notes where the log lost what was buffered behind `end_offset`, since new
        messages get these offsets. A corrected note is durable when it returns, as a power loss may
        leave some of the lost bytes. Raises `OSError`, see `note`."""
        behind = sorted(topic for topic, offset in self._latest.items() if offset > end_offset)
        if behind:
            self.note([Deletion(topic, end_offset) for topic in behind])
            self.sync()

    def sync(self) -> None:
        """Makes all that was noted durable; raises `OSError`."""
        noted = self._noted
        if noted == self._synced or self._file is None:
            return
        unsynced = list(self._unsynced.items())
        notes = [(number, *note) for number, note in unsynced if number <= noted]
        # What a sync could not write the system has dropped, and the next one would say nothing of
        # it: so each writes again, and to a descriptor of its own, which is told of its errors.
        file = self._files.open(self._path)
        try:
            for _, place, text in notes:
                file.pwrite(text, place)
            file.fsync()
        finally:
            file.close()
        if self._is_new:
            self._files.sync_dir(self._path.rpartition("/")[0])
            self._is_new = False
        self._synced = max(self._synced, noted)
        for number, _, _ in notes:
            self._unsynced.pop(number, None)

    def covers(self, topic: str, position: int) -> bool:
        """Returns whether the record at a log offset is of a topic that was deleted since."""
        return position < self._latest.get(topic, 0)

    def topics(self) -> list[str]:
        """Returns all topics with a deletion that is not forgotten."""
        return sorted(self._latest)

    def offset_of(self, topic: str) -> int:
        """Returns the log offset where the topic was last deleted; 0 where it never was."""
        return self._latest.get(topic, 0)

    def since(self, checkpoint: Checkpoint) -> tuple[int, int]:
        """Returns how many of the queues and units that a checkpoint counts were deleted since."""
        known = checkpoint.safe_offset, checkpoint.units
        later = [one for one in self._all if (one.safe_offset, one.all_units) == known]
        return sum(one.queues for one in later), sum(one.units for one in later)

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _set(self, deletions: Iterable[Deletion]) -> None:
        self._all = []
        self._latest = {}
        # From the last one: it says where the topic's end is, whatever was said before.
        for one in reversed(list(deletions)):
            offset = min(one.offset, self._latest.setdefault(one.topic, one.offset))
            self._all.append(msgspec.structs.replace(one, offset=offset))
        self._all.reverse()


def _text(deletions: list[Deletion]) -> bytes:
    lines = [msgspec.json.encode(one) for one in deletions]
    return b"".join(b"%08x %b\n" % (zlib.crc32(line), line) for line in lines)


def _parse(line: bytes) -> Deletion | None:
    try:
        if int(line[:8], 16) == zlib.crc32(line[9:]):
            return msgspec.json.decode(line[9:], type=Deletion)
    except (ValueError, msgspec.MsgspecError):
        pass
    return None


def is_first_again(queue: ConsumeQueue | None, queue_offset: int, position: int) -> bool:
    """Returns whether the record at `position` of the log would be the first of a queue that knows
    one."""
    return queue_offset == 0 and queue is not None and 0 <= queue.max_physical <= position


_first_position = attrgetter("first_position")


def former_part(
    queue: ConsumeQueue, of_topic: Iterable[ConsumeQueue]
) -> tuple[int, list[ConsumeQueue]]:
    """Returns behind which log offset the topic of `queue` was deleted, and which of its queues
    went with it; `queue` gets a first message again."""
    end, gone = queue.max_physical, list[ConsumeQueue]()
    for each in sorted(of_topic, key=_first_position):
        if each.first_position >= end:
            break
        end = max(end, each.max_physical)
        gone.append(each)
    return end, gone


class Beginnings:
    """Tells where queues began anew, by reading a log that is not written to meanwhile. The log is
    read once more, at the first question."""

    def __init__(self, log: ILog, maker: EntryMaker, *, check_body: bool) -> None:
        self._log = log
        self._maker = maker
        self._check_body = check_body
        self._damaged: set[int] | None = None

    def is_genuine(self, head: RecordHead) -> bool:
        """Returns whether the queue of a record with queue offset 0 goes on behind it from there;
        not where it goes on from what it had."""
        if self._damaged is None:
            self._damaged = self._find_damaged(head.physical_offset)
        return head.physical_offset not in self._damaged

    def _find_damaged(self, start: int) -> set[int]:
        damaged: set[int] = set()
        last: dict[tuple[str, int], int] = {}
        for head in self._log.scan(start, self._log.files_end, check_body=self._check_body):
            key = head.topic, head.queue_id
            if head.queue_offset:
                first = last.pop(key, None)
                if first is not None and head.queue_offset > 1:
                    damaged.add(first)
            elif self._maker.of_head(head).in_queue:
                last[key] = head.physical_offset
        return damaged
