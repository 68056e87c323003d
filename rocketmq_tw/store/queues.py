"""All consume queues of a store, by topic and queue id."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import suppress
from functools import partial
from operator import attrgetter

from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.message.names import LMQ_PREFIX, is_storable
from rocketmq_tw.store.consume_queue import ConsumeQueue, QueueFiles
from rocketmq_tw.store.dispatch_entries import AnyDispatchEntry, BatchEntry, DispatchEntry
from rocketmq_tw.store.errors import IllegalMessageError, StoreError
from rocketmq_tw.store.handles import HandlePool, Unsynced
from rocketmq_tw.store.queue_extension import QueueExtension, QueueExtensions
from rocketmq_tw.store.queue_units import UNIT_SIZE
from rocketmq_tw.store.segments import Segments
from rocketmq_tw.store.unwritten import QueueTotals, Unwritten

_max_physical = attrgetter("max_physical")
#: Files that queues have open; fewer than the usual limit of 1024 descriptors leaves for sockets.
HANDLES = 256
_MAX_QUEUE_ID = 0x7FFFFFFF
#: Units that may be in memory since queues cannot be written, some 60 bytes each.
_MOST_UNWRITTEN = 1 << 20


class QueueTable:
    """All consume queues of a store. `unsynced` has what changed since the last checkpoint; up to
    `handles` files stay open. Raises `StoreError` where a file of `file_size` bytes would end
    within a unit."""

    def __init__(
        self,
        files: IFiles,
        directory: str,
        file_size: int,
        extensions: QueueExtensions,
        handles: int = HANDLES,
    ) -> None:
        if file_size % UNIT_SIZE:
            raise StoreError(
                f"mappedFileSizeConsumeQueue = {file_size} is no multiple of {UNIT_SIZE}"
            )
        self._files = files
        self._directory = directory
        self._pool = HandlePool(files, handles)
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        self._of_topic: dict[str, list[ConsumeQueue]] = {}
        self._waiting: list[ConsumeQueue] = []
        self._light = 0
        self._unwritten = Unwritten()
        self._totals = QueueTotals()
        self._extensions = extensions
        #: Whether queues have extensions, and whether what is put has extras there.
        self._extended = self._extending = extensions.are_written
        self.unsynced = Unsynced()
        #: A file of theirs was damaged as they were loaded, or that was not seen to its end.
        self.are_repaired = False
        self._shared = QueueFiles(
            self._pool,
            file_size,
            self.unsynced,
            self._unwritten,
            self._totals,
            self._make_directory,
        )

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(list(self._queues.values()))

    def __len__(self) -> int:
        return len(self._queues)

    def load(self, *, clean: bool) -> None:
        """Opens every queue that has a directory. `clean`: all that is there is durable."""
        self.are_repaired, repaired = True, False
        self._files.make_dirs(self._directory)
        if self._extending:
            self._files.make_dirs(self._extensions.directory)
        extended = self._files.list(self._extensions.directory)
        self._extended = self._extending or bool(extended)
        for topic in self._files.list(self._directory):
            if not is_storable(topic):
                continue
            for name in self._files.list(f"{self._directory}/{topic}"):
                if name.isascii() and name.isdigit() and str(int(name)) == name:
                    repaired |= self._new(topic, int(name)).load(clean=clean)
        for topic in extended:
            self._remove_lost_extensions(topic)
        self.are_repaired = repaired

    def _remove_lost_extensions(self, topic: str) -> None:
        """Removes the extensions of queues that are gone: a new queue of that name must not find
        them."""
        directory = f"{self._extensions.directory}/{topic}"
        own = {str(queue.queue_id) for queue in self.of_topic(topic)}
        for name in self._files.list(directory):
            if name not in own:
                self._files.remove_tree(f"{directory}/{name}")
        if not own:
            self._files.remove_tree(directory)

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Returns the queue; None where it never had a message."""
        return self._queues.get((topic, queue_id))

    def has(self, queue: ConsumeQueue) -> bool:
        """Returns whether a queue is one of these: not removed, nor replaced by another of its
        name."""
        return self._queues.get((queue.topic, queue.queue_id)) is queue

    def find_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Returns the queue; raises `IllegalMessageError` for a topic or id that cannot name
        one."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            if not is_storable(topic) or len(topic) > 255:
                raise IllegalMessageError(
                    f"the topic {topic!r} cannot be stored: use at most 127 of %, |, a-z, A-Z, "
                    "0-9, _ and -"
                )
            if not 0 <= queue_id <= _MAX_QUEUE_ID:
                raise IllegalMessageError(f"the queue id {queue_id} is out of range")
            queue = self._new(topic, queue_id)
        return queue

    def of_topic(self, topic: str) -> Sequence[ConsumeQueue]:
        """Returns the topic's queues, not to be changed."""
        return self._of_topic.get(topic, ())

    def topics(self) -> list[str]:
        """Returns all topics that have queues."""
        return list(self._of_topic)

    def put(self, entries: Iterable[AnyDispatchEntry]) -> list[AnyDispatchEntry]:
        """Buffers the units of messages until `write_pending`; returns those that their queues
        did not have yet and could take (see `ConsumeQueue.put`)."""
        return self._put(entries, extending=self._extending)

    def _put(
        self, entries: Iterable[AnyDispatchEntry], *, extending: bool
    ) -> list[AnyDispatchEntry]:
        queues = self._queues
        arrived: list[AnyDispatchEntry] = []
        for entry in entries:
            if entry.further:
                # As in stock, these have no extras.
                arrived += self._put(_in_further_queues(entry), extending=False)
            if not entry.in_queue:
                continue
            queue = queues.get((entry.topic, entry.queue_id))
            if queue is None:
                queue = self.find_or_create(entry.topic, entry.queue_id)
            if not queue.pending:
                self._waiting.append(queue)
            if isinstance(entry, BatchEntry):
                if not extending and queue.put_batch(
                    entry.queue_offset, entry.offsets, entry.sizes, entry.tags_codes
                ):
                    arrived.append(entry)
                else:
                    arrived += self._put(entry.one_by_one(), extending=extending)
            elif extending:
                extra = partial(
                    self._extensions.extra_of,
                    entry.topic,
                    entry.properties,
                    entry.tags_code,
                    entry.store_timestamp,
                )
                if queue.put_extended(entry.queue_offset, entry.physical_offset, entry.size, extra):
                    arrived.append(entry)
            elif queue.put(entry.queue_offset, entry.physical_offset, entry.size, entry.tags_code):
                arrived.append(entry)
        return arrived

    def write_pending(self) -> None:
        """Shows the buffered units to readers. Some may stay in memory until `write_out`, and so do
        the units of a queue that cannot be written; the other queues go on."""
        waiting, self._waiting = self._waiting, []
        self._unwritten.write_most()
        for queue in waiting:
            queue.write_pending()

    def drop_pending(self) -> None:
        """Forgets what is buffered: dispatch will bring it again."""
        waiting, self._waiting = self._waiting, []
        for queue in waiting:
            queue.drop_pending()

    def check_room(self) -> None:
        """Raises `OSError` where queues that cannot be written have too much in memory."""
        if self._unwritten.units > _MOST_UNWRITTEN:
            self._unwritten.write_all()

    @property
    def failure(self) -> str:
        """Why a queue could not be written when that was tried last; empty where all could."""
        return next(iter(self._unwritten.failures.values()), "")

    def write_in_steps(self) -> Iterator[None]:
        """Writes the units that are in memory only by now, a few queues in each step; those that
        cannot be written stay there."""
        return self._unwritten.write_in_steps()

    def write_out(self) -> None:
        """Writes all units that are in memory only; those that raise `OSError` stay there."""
        self._unwritten.write_all()

    @staticmethod
    def count_of(queues: Iterable[ConsumeQueue], end: int) -> tuple[int, int]:
        """Returns how many of them have files, and the sum of their max offsets, as a checkpoint
        counts them that knows the log only up to `end`."""
        known = queues if end >= 0 else ()
        counts = [q.max_offset if q.max_physical <= end else q.end_at(end) for q in known]
        return sum(map(bool, counts)), sum(counts)

    def remove_topic(self, topic: str) -> None:
        """Removes the topic's queues and their files."""
        self.forget_topic(topic)
        self.remove_files(topic)

    def remove_files(self, topic: str, queue_id: int | None = None) -> None:
        """Removes what files a topic's queues have or had, or one of them."""
        name = topic if queue_id is None else f"{topic}/{queue_id}"
        for directory in self._roots:
            # Files that cannot be removed are emptied when they are made again.
            with suppress(OSError):
                self._files.remove_tree(f"{directory}/{name}")

    @property
    def _roots(self) -> tuple[str, ...]:
        """Lists the directories that have a directory for each topic."""
        if self._extended:
            return self._directory, self._extensions.directory
        return (self._directory,)

    def forget_topic(self, topic: str) -> None:
        """Forgets the topic's queues; the caller removes their files."""
        self._forget(self._of_topic.pop(topic, ()))
        for directory in self._roots:
            self.unsynced.dirs.discard(f"{directory}/{topic}")
            self.unsynced.dirs.add(directory)

    def forget_queues(self, topic: str, queues: Set[ConsumeQueue]) -> None:
        """Forgets these queues of the topic, which has others; the caller removes their files."""
        self._of_topic[topic] = [q for q in self._of_topic[topic] if q not in queues]
        self._forget(queues)
        self.unsynced.dirs.update(f"{directory}/{topic}" for directory in self._roots)

    def _forget(self, queues: Iterable[ConsumeQueue]) -> None:
        gone = self.unsynced
        for queue in queues:
            del self._queues[queue.topic, queue.queue_id]
            self._light -= queue.topic.startswith(LMQ_PREFIX)
            queue.forget()
            for segments in _segments_of(queue):
                for start in segments.starts:
                    path = segments.path(start)
                    self._pool.forget(path)
                    gone.files.discard(path)
                gone.dirs.discard(segments.directory)

    def sync_names(self, topic: str) -> None:
        """Makes durable which files a topic's queues have; raises `OSError`."""
        roots = self._roots
        own = [each.directory for queue in self.of_topic(topic) for each in _segments_of(queue)]
        for directory in (*roots, *(f"{root}/{topic}" for root in roots), *own):
            if self._files.exists(directory):
                self._files.sync_dir(directory)

    def mark_names_unsynced(self) -> None:
        """Marks all names in directories as not durable: after a crash it is not known which
        are."""
        for queue in self:
            self._names_unsynced(queue)
            self.unsynced.dirs.update(each.directory for each in _segments_of(queue))

    def clear(self) -> None:
        """Removes all queues: there is no log that they could point into."""
        for topic in self.topics():
            self.remove_topic(topic)

    @property
    def furthest(self) -> ConsumeQueue | None:
        """The queue that reaches furthest in the log; None without queues."""
        return max(self._queues.values(), key=_max_physical, default=None)

    @property
    def max_physical(self) -> int:
        """The highest log offset that any queue knows of; -1 without messages."""
        furthest = self.furthest
        return -1 if furthest is None else furthest.max_physical

    @property
    def last_position(self) -> int:
        """The log offset of the newest record that a queue has; -1 where there is none."""
        # First the queue that reaches furthest in the log: few others are read then.
        queues = sorted(self._queues.values(), key=_max_physical, reverse=True)
        last = -1
        for queue in queues:
            if queue.max_physical <= last:
                break
            end = queue.unit(queue.max_offset - 1)
            if end is not None and end.is_written:
                last = max(last, end.position)
        return last

    @property
    def is_torn(self) -> bool:
        """Whether the last extra of a queue is lost."""
        return any(queue.is_torn for queue in self)

    @property
    def light(self) -> int:
        """How many light queues there are."""
        return self._light

    @property
    def with_files(self) -> int:
        """How many queues have a file: one that never got a message has none."""
        return self._totals.with_files

    @property
    def units(self) -> int:
        """The sum of all max offsets."""
        return self._totals.units

    def close(self) -> None:
        """Closes all files."""
        self._pool.close()

    def _new(self, topic: str, queue_id: int) -> ConsumeQueue:
        directory = f"{self._directory}/{topic}/{queue_id}"
        queue = self._queues[topic, queue_id] = ConsumeQueue(
            self._shared,
            directory,
            topic,
            queue_id,
            self._new_extension(topic, queue_id) if self._extended else None,
        )
        self._of_topic.setdefault(topic, []).append(queue)
        self._light += topic.startswith(LMQ_PREFIX)
        return queue

    def _make_directory(self, queue: ConsumeQueue) -> None:
        # A lost directory is built again from the log, so its name need not be durable at once.
        self._files.make_dirs(queue.segments.directory, durable=False)
        self._names_unsynced(queue)

    def _names_unsynced(self, queue: ConsumeQueue) -> None:
        self.unsynced.dirs |= {self._directory, f"{self._directory}/{queue.topic}"}

    def _new_extension(self, topic: str, queue_id: int) -> QueueExtension:
        root = self._extensions.directory
        directory = f"{root}/{topic}/{queue_id}"
        segments = Segments(self._pool, directory, self._extensions.file_size, self.unsynced)

        def make_directory() -> None:
            self._files.make_dirs(directory, durable=False)
            self.unsynced.dirs |= {root, f"{root}/{topic}"}

        return QueueExtension(segments, make_directory)


def _segments_of(queue: ConsumeQueue) -> Iterator[Segments]:
    yield queue.segments
    if queue.extension is not None:
        yield queue.extension.segments


def _in_further_queues(entry: AnyDispatchEntry) -> Iterator[DispatchEntry]:
    """Makes an entry for each further queue of a record."""
    assert isinstance(entry, DispatchEntry), "a batch names no queues"
    for topic, queue_id, queue_offset in entry.further:
        yield DispatchEntry(
            topic,
            queue_id,
            queue_offset,
            entry.physical_offset,
            entry.size,
            entry.tags_code,
            entry.store_timestamp,
            True,
            (),
            entry.properties,
        )
