"""Cuts the end off a store, in steps between which others may read it.

First the queues and the index lose their entries for it, then the log loses it, file by file, and
then the notes of deleted topics. A reader between two steps sees queues that end too early, never a
message that is gone. A crash on the way leaves a store that has not dispatched all of its log,
which a start repairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rocketmq_tw.store.checkpointing import Checkpointing
from rocketmq_tw.store.contents import StoreContents
from rocketmq_tw.store.errors import StoreError
from rocketmq_tw.store.topic_removal import TopicRemoval

#: Work of one step: 1 for a queue that is looked at, and so much more where it is cut.
STEP_WORK, _OF_CUT = 1_000, 50


class Cutting:
    """Cuts the end off one store; calls `moved` with each new end of the log. While `is_under_way`,
    nothing may be appended, dispatched or claimed by a checkpoint. After a cut that failed this
    holds for good: new units would stand behind a gap in queues and index. `begun`: so many cuts so
    far."""

    def __init__(
        self,
        contents: StoreContents,
        checkpointing: Checkpointing,
        removal: TopicRemoval,
        moved: Callable[[int], None],
    ) -> None:
        self.is_under_way = False
        self.begun = 0
        self._log = contents.log
        self._queues = contents.queues
        self._index = contents.index
        self._checkpointing = checkpointing
        self._deleted = contents.deleted
        self._removal = removal
        self._moved = moved

    def check(self, offset: int) -> None:
        """Raises `StoreError` unless the log can be cut at that offset."""
        log = self._log
        if not log.min_offset <= offset <= log.end_offset:
            raise StoreError(
                f"cannot truncate to {offset}: the log has {log.min_offset} to {log.end_offset}"
            )

    def run(self, offset: int) -> Iterator[None]:
        """Ends log, queues and index at the log offset `offset`, in steps; see
        `IMessageStore.truncate_to`. Raises `OSError` from half-way, and `StoreError` where the log
        itself cannot be cut."""
        self.is_under_way = True
        self.begun += 1
        # Before anything shrinks: a checkpoint must never claim more than there is.
        self._checkpointing.before_cut(offset)
        yield from self._cut_queues(offset)
        if self._index:
            self._checkpointing.before_index_cut(offset)
            yield from self._index.cut(offset)
        # Where offsets are met again they do not tell any more what stood in front of a
        # deletion.
        self._removal.settle()
        # An empty file that was made ahead goes with the last one: the log never ends behind what
        # was written.
        ends = [start for start in self._log.file_starts if offset < start < self._log.end_offset]
        for start in reversed(ends):
            self._end_log(start)
            yield
        # Of deletions that came in between.
        self._removal.settle()
        self._end_log(offset)
        self._deleted.rewrite(0, offset)
        self.is_under_way = False

    def _cut_queues(self, offset: int) -> Iterator[None]:
        work = 0
        for queue in self._queues:
            # It may have been deleted meanwhile.
            if self._queues.has(queue):
                if queue.max_physical > offset:
                    queue.cut_behind(offset)
                    work += _OF_CUT
                queue.next_offset = queue.max_offset
            work += 1
            if work >= STEP_WORK:
                yield
                work = 0

    def _end_log(self, offset: int) -> None:
        self._log.truncate_to(offset)
        self._moved(offset)
