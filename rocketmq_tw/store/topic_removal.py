"""Removal of the queues of deleted topics.

When a topic is deleted its directory is moved aside, or the directory of each deleted queue where
others stay. It is removed, which may take long, once the note of the deletion is durable: after a
power loss before that the topic counts as not deleted, and a start moves its queues back.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.message.names import is_storable
from rocketmq_tw.store.checkpointing import Checkpointing
from rocketmq_tw.store.consume_queue import ConsumeQueue
from rocketmq_tw.store.contents import StoreContents
from rocketmq_tw.store.deleted_topics import Deletion, former_part
from rocketmq_tw.store.paths import StorePaths
from rocketmq_tw.store.queue_units import UNIT, UNIT_SIZE, Unit

_BLOCK = 4096 * UNIT_SIZE
#: What queues' extensions become beside the queues; these have numbers.
_EXTENSION = "ext"
#: Between topic and id in the name of a queue that was moved alone; no topic has it.
_ALONE = "@"


class RemovedQueues:
    """Queues that are to be removed: they are moved out of `queues`, their extensions out of
    `extensions`, into the directory 0 below `directory`, or into 1, 2 and so on where those before
    still have one of the same name."""

    def __init__(self, files: IFiles, queues: str, extensions: str, directory: str) -> None:
        self._files = files
        self._queues = queues
        self._extensions = extensions
        self._directory = directory
        #: Path -> the number of the note that must be durable before it is removed.
        self._doomed: dict[str, int] = {}
        #: Directories that names left, or came back into, and it may not be durable.
        self._parents = {queues, extensions}

    def load(self, deleted_at: Callable[[str], int]) -> None:
        """Removes what a former process left here, and moves back what is not deleted, as the power
        took the note of that: `deleted_at` gives the log offset of a topic's last deletion. Durable
        when it returns, so that notes may be forgotten."""
        files, left = self._files, dict[str, list[str]]()
        files.make_dirs(self._queues)
        files.make_dirs(f"{self._directory}/0")
        for level in files.list(self._directory):
            for name in files.list(f"{self._directory}/{level}"):
                left.setdefault(name, []).append(f"{self._directory}/{level}/{name}")
        # Topics first: queues that were moved alone belong into them.
        for name, paths in sorted(left.items(), key=lambda one: _ALONE in one[0]):
            topic, alone, _ = name.partition(_ALONE)
            first = self._first_of_queue if alone else self._first_position
            known = {path: first(path) for path in paths}
            back = [path for path in paths if known[path] >= deleted_at(topic)]
            if back:
                # Younger ones, and what stands in its place, have nothing that was ever durable.
                oldest = min(back, key=known.__getitem__)
                self._put_back(f"{oldest}/{_EXTENSION}", self._extensions, name)
                self._put_back(oldest, self._queues, name)
            for path in paths:
                files.remove_tree(path)
        self._sync_names()

    def _put_back(self, path: str, directory: str, name: str) -> None:
        if self._files.exists(path):
            place = _place(directory, name)
            parent, _, _ = place.rpartition("/")
            self._files.make_dirs(parent)
            self._files.remove_tree(place)
            self._files.rename(path, place)
            self._parents.add(parent)

    def clear(self, durable: int) -> None:
        """Removes what notes are about as `remove` does, but is durable when it returns; raises
        `OSError`."""
        self.remove(durable)
        if self._doomed:
            raise OSError(errno.EBUSY, "queues of deleted topics cannot be removed")
        self._sync_names()

    def _sync_names(self) -> None:
        """Makes renames and removals durable, also a former process's. Syncs the new parents
        first, then the old ones: a directory must not be durably at neither place."""
        for parent in sorted(self._parents):
            if self._files.exists(parent):
                self._files.sync_dir(parent)
        self._parents = {self._queues, self._extensions}
        for level in self._files.list(self._directory):
            self._files.sync_dir(f"{self._directory}/{level}")

    def take(self, topic: str, queue_id: int | None, note: int) -> None:
        """Moves the directory of a topic here, or the directory of one queue where the topic's
        others stay; `note` is the number of the deletion's note. Raises `OSError`, and then the
        directory is where it was."""
        name = topic if queue_id is None else f"{topic}{_ALONE}{queue_id}"
        source = _place(self._queues, name)
        if not self._files.exists(source):
            return
        level = 0
        while (path := f"{self._directory}/{level}/{name}") in self._doomed or (
            self._files.exists(path)
        ):
            level += 1
        if level:
            self._files.make_dirs(f"{self._directory}/{level}")
        self._files.rename(source, path)
        self._doomed[path] = note
        extension = _place(self._extensions, name)
        self._parents |= {source.rpartition("/")[0], extension.rpartition("/")[0]}
        if self._files.exists(extension):
            # A directory that stays is emptied when its files are made again.
            with suppress(OSError):
                self._files.rename(extension, f"{path}/{_EXTENSION}")

    def remove(self, durable: int) -> None:
        """Removes what notes up to number `durable` are about; in any thread, one call at a time.
        What cannot be removed is tried again the next time, and at the next start."""
        for path, note in list(self._doomed.items()):
            if note <= durable:
                try:
                    self._files.remove_tree(path)
                except OSError:
                    continue
                del self._doomed[path]

    def _first_position(self, path: str) -> int:
        """Returns where in the log the oldest message of these queues stands; -1 without one."""
        found = [
            self._first_of_queue(f"{path}/{name}")
            for name in self._files.list(path)
            if name != _EXTENSION
        ]
        return min((position for position in found if position >= 0), default=-1)

    def _first_of_queue(self, path: str) -> int:
        for name in self._files.list(path):
            if name == _EXTENSION:
                continue
            file = self._files.open(f"{path}/{name}")
            try:
                for offset in range(0, file.size(), _BLOCK):
                    data = file.pread(_BLOCK, offset)
                    for unit in UNIT.iter_unpack(data[: len(data) // UNIT_SIZE * UNIT_SIZE]):
                        if (one := Unit._make(unit)).is_written and not one.is_filler:
                            return one.position
            finally:
                file.close()
        return -1


def _place(directory: str, name: str) -> str:
    """Returns where a topic, or a queue alone, has its files below `directory`."""
    return f"{directory}/{name.replace(_ALONE, '/')}"


class TopicRemoval:
    """Removes the queues of topics, and notes that what the log has of them is of no queue."""

    def __init__(
        self,
        files: IFiles,
        paths: StorePaths,
        contents: StoreContents,
        checkpointing: Checkpointing,
    ) -> None:
        self._log = contents.log
        self._queues = contents.queues
        self._deleted = contents.deleted
        self._checkpointing = checkpointing
        self._removed = RemovedQueues(
            files, paths.consume_queue, paths.queue_extensions, paths.deleted_queues
        )

    def load(self) -> None:
        """Settles what a former process left half-way; in front of the queues' own load. Raises
        `OSError`."""
        self._deleted.load()
        self._removed.load(self._deleted.offset_of)

    def remove(self, topics: Collection[str]) -> None:
        """Removes all queues of these topics. Raises `OSError`, and then nothing is removed unless
        `DeletedTopics.is_stale` says so."""
        end = self._log.end_offset
        if self._log.failure:
            # What a write or a cut that failed left behind may be found by the next start.
            end = max(end, self._log.files_end)
        # In the same order each time, so that what fails in tests fails again.
        doomed = {topic: self._queues.of_topic(topic) for topic in sorted(topics)}
        self._note(doomed, end)
        for topic in doomed:
            self._remove_all(topic)

    def begin_anew(self, queue: ConsumeQueue) -> None:
        """Removes what the topic of `queue` had before, as it gets a first message again; see
        `beginnings`. Raises `OSError` as `remove`."""
        topic, of_topic = queue.topic, self._queues.of_topic(queue.topic)
        end, gone = former_part(queue, of_topic)
        self._note({topic: gone}, end)
        if len(gone) == len(of_topic):
            self._remove_all(topic)
            return
        for each in gone:
            self._take_away(topic, each.queue_id)
        self._queues.forget_queues(topic, set(gone))

    def _note(self, doomed: Mapping[str, Collection[ConsumeQueue]], end: int) -> None:
        last = self._checkpointing.last
        known = last.safe_offset, last.units
        self._deleted.note(
            [
                Deletion(topic, end, *self._queues.count_of(queues, last.safe_offset), *known)
                for topic, queues in doomed.items()
            ]
        )

    def _remove_all(self, topic: str) -> None:
        if is_storable(topic):
            self._take_away(topic)
        self._queues.forget_topic(topic)

    def _take_away(self, topic: str, queue_id: int | None = None) -> None:
        """Files of a topic, or of one queue."""
        try:
            self._removed.take(topic, queue_id, self._deleted.noted)
        except OSError:
            # Somebody may write in its place, so that nothing brings it back.
            self._deleted.is_stale = True
            self._deleted.sync()
            self._deleted.is_stale = False
            self._queues.remove_files(topic, queue_id)

    def settle(self) -> None:
        """Makes durable that what was deleted is gone; raises `OSError`."""
        self._deleted.sync()
        self._removed.clear(self._deleted.durable)

    def remove_files(self) -> None:
        """Removes what is left of queues whose deletion is durable; in any thread."""
        self._removed.remove(self._deleted.durable)
