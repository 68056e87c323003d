"""Dispatch: brings what the log has into the consume queues and the index, in the order of the log.

Entries of what was just appended wait in memory. A replica's bytes, and all that could not be
dispatched at once, are read from the log again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Set

from rocketmq_tw.store.consume_queue import ConsumeQueue
from rocketmq_tw.store.contents import StoreContents
from rocketmq_tw.store.deleted_topics import is_first_again
from rocketmq_tw.store.dispatch_entries import (
    AnyDispatchEntry,
    DispatchEntry,
    EntryMaker,
)
from rocketmq_tw.store.errors import DamagedStoreError, NotWritableError
from rocketmq_tw.store.interface import Arrival
from rocketmq_tw.store.queue_extension import QueueExtensions

#: What one call of `run` does at most, in keys for the index, some 2 us each: a message may have
#: thousands. One message more may be begun.
_WORK = 8192
#: What a record costs that is read from the log, beside its keys.
_READ_WORK = 4
#: Keys that may wait in memory, and bytes of the log whose entries do, which keep properties; where
#: there are more, the log is read again.
_MOST_WAITING, _MOST_WAITING_BYTES = 1 << 18, 64 << 20


class Dispatching:
    """Dispatches the log of one store. `reached` is the log offset behind the last record
    dispatched, `last_timestamp` its store time in ms."""

    def __init__(
        self,
        contents: StoreContents,
        maker: EntryMaker,
        begin_anew: Callable[[ConsumeQueue], None],
        extensions: QueueExtensions,
    ) -> None:
        self.reached = 0
        self.last_timestamp = 0
        self.maker = maker
        self._log = contents.log
        self._queues = contents.queues
        self._index = contents.index
        self._deleted = contents.deleted
        self._begin_anew = begin_anew
        #: What the extra of a message costs, in keys for the index.
        self._extra_work = extensions.work
        self._arrivals: list[Arrival] = []
        #: By topic, those that want no other.
        self._arrivals_of: dict[str, list[Arrival]] = {}
        #: Whether the log is read for what comes next; else `wait` is told what is appended.
        self.from_log = False
        self._waiting: deque[AnyDispatchEntry] = deque()
        #: The work that those are.
        self._waiting_work = 0
        #: What `run` may still do.
        self._work_left = 0

    def begin(self, reached: int, last_timestamp: int) -> None:
        """Starts at `reached`, where recovery ended; what lies behind it is read from the log."""
        self.reached, self.last_timestamp = reached, last_timestamp
        self._clear()
        self.from_log = reached < self._log.end_offset

    def on_arrival(self, callback: Arrival, topic: str | None = None) -> Callable[[], None]:
        """Calls `callback` with what each dispatch made readable, of `topic` only where one is
        given, until the function returned is called."""
        callbacks = self._arrivals if topic is None else self._arrivals_of.setdefault(topic, [])
        callbacks.append(callback)
        return lambda: callbacks.remove(callback)

    def wait(self, entry: AnyDispatchEntry) -> None:
        """Takes the entry of a record that was appended last."""
        self._waiting.append(entry)
        work = len(entry.keys) + len(entry.further) + 1
        self._waiting_work += work + self._extra_work * entry.count
        waiting_bytes = entry.physical_offset + entry.size - self.reached
        if self._waiting_work > _MOST_WAITING or waiting_bytes > _MOST_WAITING_BYTES:
            self.read_from_log()

    def _work_of(self, entry: AnyDispatchEntry) -> int:
        """Returns the cost of dispatching an entry, counted in keys for the index."""
        return len(entry.keys) + len(entry.further) + 1 + self._extra_work * entry.count

    def wait_all(self, entries: Iterable[AnyDispatchEntry]) -> None:
        """Takes the entries of records that were appended last, in this order."""
        for entry in entries:
            if not self.from_log:
                self.wait(entry)

    def read_from_log(self) -> None:
        """Goes on with the log itself: records were added without entries, or some could not be
        dispatched."""
        self._clear()
        self.from_log = True

    def _clear(self) -> None:
        self._waiting.clear()
        self._waiting_work = 0

    def take_back(self, end: int) -> None:
        """Drops the entries of buffered records at and behind `end`, which the log has lost."""
        waiting = self._waiting
        while waiting and waiting[-1].physical_offset >= end:
            self._waiting_work -= self._work_of(waiting.pop())

    def forget_topics(self, topics: Set[str]) -> None:
        """Passes over the waiting entries of deleted topics when they come up."""
        self._waiting = deque(
            [_passed_over(entry) if entry.topic in topics else entry for entry in self._waiting]
        )
        self._waiting_work = sum(map(self._work_of, self._waiting))

    def cut(self, offset: int) -> None:
        """Ends at the log offset `offset`, where log, queues and index end now."""
        self._clear()
        self.reached = min(self.reached, offset)
        self.from_log = self.reached < self._log.end_offset

    def pass_over(self, offset: int) -> None:
        """Goes on at `offset`: nothing in front of it is to be dispatched."""
        self.reached = max(self.reached, offset)
        self.from_log = self.reached < self._log.end_offset

    def run(self, limit: int) -> int:
        """Dispatches the log up to the offset `limit`, a bounded amount of work at a time, and
        returns the number of messages: 0 where it cannot go on now."""
        messages, self._work_left = 0, _WORK
        while self.reached < limit and self._work_left > 0:
            before = self.reached
            messages += self._run_once(limit)
            if self.reached == before or not self.from_log:
                break
        return messages

    def _run_once(self, limit: int) -> int:
        """Dispatches all entries in memory, or else the next records of the log. Where entries in
        memory fail, they are read from the log again."""
        try:
            if self.from_log:
                entries, reached = self._read_entries(limit)
            else:
                entries, reached = self._waiting_entries(limit)
            self._queues.check_room()
            arrived = self._queues.put(entries)
            if self._index is not None:
                self._index.add(entries)
            self._queues.write_pending()
        except OSError as error:
            # What is not in its queue yet comes from the log again, next time.
            self._queues.drop_pending()
            self.read_from_log()
            raise NotWritableError(f"queues or index cannot be written: {error}") from error
        self.reached = reached
        if entries:
            self.last_timestamp = entries[-1].store_timestamp
        self.from_log = self.from_log and reached < self._log.end_offset
        if arrived:
            self._tell(arrived)
        return sum([entry.count for entry in entries])

    def _tell(self, arrived: list[AnyDispatchEntry]) -> None:
        for callback in tuple(self._arrivals):
            callback(arrived)
        for topic in self._arrivals_of.keys() & {run.topic for run in arrived}:
            of_topic = [run for run in arrived if run.topic == topic]
            for callback in tuple(self._arrivals_of[topic]):
                callback(of_topic)

    def _waiting_entries(self, limit: int) -> tuple[list[AnyDispatchEntry], int]:
        """Returns the entries in memory up to `limit`, and the log offset behind them."""
        waiting = self._waiting
        if (
            waiting
            and self._waiting_work <= self._work_left
            and waiting[-1].physical_offset + waiting[-1].size <= limit
        ):
            # All of it, as nearly always.
            self._waiting, self._waiting_work = deque(), 0
            return list(waiting), waiting[-1].physical_offset + waiting[-1].size
        entries: list[AnyDispatchEntry] = []
        reached = self.reached
        while waiting and self._work_left > 0:
            end = waiting[0].physical_offset + waiting[0].size
            if end > limit:
                break
            reached = end
            entries.append(waiting.popleft())
            work = self._work_of(entries[-1])
            self._waiting_work -= work
            self._work_left -= work
        return entries, reached

    def _read_entries(self, limit: int) -> tuple[list[AnyDispatchEntry], int]:
        """Reads the log's next entries up to `limit`; returns them with the log offset behind
        them."""
        scan = self._log.scan(self.reached, limit, check_body=False)
        entries: list[AnyDispatchEntry] = []
        of_head, left = self.maker.of_head, self._work_left
        of_each = _READ_WORK + self._extra_work
        for head in scan:
            entry = of_head(head)
            entries.append(entry)
            left -= of_each + len(entry.keys) + len(entry.further)
            if left <= 0:
                break
        self._work_left = left
        if scan.damaged and not entries:
            raise DamagedStoreError(f"the log has no sound record at {scan.position}")
        if self._deleted:
            covers = self._deleted.covers
            entries = [
                _passed_over(entry) if covers(entry.topic, entry.physical_offset) else entry
                for entry in entries
            ]
        return self._until_one_begins_anew(entries, scan.position)

    def _until_one_begins_anew(
        self, entries: list[AnyDispatchEntry], position: int
    ) -> tuple[list[AnyDispatchEntry], int]:
        """Returns the entries in front of the first message of a topic that was deleted and made
        again, and where the log goes on behind them; where that message comes first, its topic
        begins anew, once the message is durable.

        A replica learns of that from the log alone, see `beginnings`. Whatever the role is now: it
        may be no replica's any more.
        """
        met: set[tuple[str, int]] = set()
        for number, entry in enumerate(entries):
            key = entry.topic, entry.queue_id
            if entry.queue_offset == 0 and entry.in_queue:
                queue = self._queues.find(*key)
                begins = is_first_again(queue, entry.queue_offset, entry.physical_offset)
                if number and (begins or key in met):
                    return entries[:number], entry.physical_offset
                if begins and self._log.flushed_offset < entry.physical_offset + entry.size:
                    return [], self.reached
                if begins and queue is not None:
                    self._begin_anew(queue)
            if entry.in_queue:
                met.add(key)
        return entries, position


def _passed_over(entry: AnyDispatchEntry) -> DispatchEntry:
    """Takes the entry's place and goes nowhere but into further queues: these are not deleted."""
    return DispatchEntry(
        entry.topic,
        entry.queue_id,
        entry.queue_offset,
        entry.physical_offset,
        entry.size,
        0,
        entry.store_timestamp,
        in_queue=False,
        keys=(),
        properties=entry.properties if isinstance(entry, DispatchEntry) else b"",
        further=entry.further,
    )
