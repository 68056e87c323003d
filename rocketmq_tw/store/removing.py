"""Taking topics out of a store."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.message.names import is_storable
from rocketmq_tw.store.beginnings import former_part
from rocketmq_tw.store.checkpointing import Checkpointing
from rocketmq_tw.store.consume_queue import ConsumeQueue
from rocketmq_tw.store.deleted_topics import DeletedTopics, Deletion
from rocketmq_tw.store.interface import ILog
from rocketmq_tw.store.paths import StorePaths
from rocketmq_tw.store.queues import QueueTable
from rocketmq_tw.store.removed_queues import RemovedQueues


class TopicRemoval:
    """Removes the queues of topics, and notes that what the log has of them is of no queue."""

    def __init__(
        self,
        files: IFiles,
        paths: StorePaths,
        log: ILog,
        queues: QueueTable,
        deleted: DeletedTopics,
        checkpointing: Checkpointing,
    ) -> None:
        self._log = log
        self._queues = queues
        self._deleted = deleted
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
        """All that is there of them. Raises `OSError`, and then nothing is removed unless
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
        """It gets a first message again: removes what its topic had before, see `beginnings`.
        Raises `OSError` as `remove`."""
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
