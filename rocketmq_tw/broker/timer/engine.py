"""The timer's life: its books, what keeps them in files, and its work in the present role."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks, succeed
from twisted.logger import Logger

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.part import KeptTable, Periodic
from rocketmq_tw.broker.assembly.truncation import DerivedOffsets
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.stats.statistics import SAMPLE_SECONDS
from rocketmq_tw.broker.tables.topics.table import TopicTable
from rocketmq_tw.broker.timer.books import TimerBooks
from rocketmq_tw.broker.timer.keeping import PROGRESS_TABLE, TimerKeeper
from rocketmq_tw.broker.timer.places import TimedPlaces
from rocketmq_tw.broker.timer.progress import TimerCheckpoint
from rocketmq_tw.broker.timer.rewind import CutRewind
from rocketmq_tw.broker.timer.work import DeliveringTimer, FollowingTimer, TimerTools, TimerWork
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.metrics.instruments import Metric
from rocketmq_tw.runtime.interludes import in_slices_with
from rocketmq_tw.runtime.scope import Scope
from rocketmq_tw.wire.bodies.stats import TimedMessageCounts

#: Seconds between two looks for files of the timer log that are not needed any more.
RETENTION_SECONDS = 30

log = Logger()


class TimerEngine:
    """Lets timed messages wait in stock's wheel, and delivers them in a role that does so."""

    def __init__(self, host: Host, role: RoleHolder, writing: Writing, topics: TopicTable) -> None:
        self._host = host
        self._logger = host.named(log)
        self._role = role
        self._writing = writing
        self._topics = topics
        self._is_loaded = False
        self.books = TimerBooks(host, writing.store)
        self.keeper = TimerKeeper(host, writing.commit, self.books)
        self._places = TimedPlaces(writing.store, self.books)
        #: None while the broker has no role.
        self.work: TimerWork | None = None
        self._work_scope = Scope()
        rewind = CutRewind(host, writing.store, self.books, self.keeper)
        #: The place in time and in the timer's topic, with the wheel and its log.
        self.derived = DerivedOffsets(
            "the timer",
            rewind.look_behind,
            rewind.save,
            self._pause,
            self._resume,
            go_back=rewind.go_back,
        )

    def start(self) -> Deferred[Any] | None:
        """Fires once the files are read; fails with `StoreError` or `OSError`."""
        return self._host.in_thread(self._load)

    def _load(self) -> None:
        self.books.load()
        self._is_loaded = True

    def begin(self) -> None:
        """Begins the work of the present role, every part being in it."""
        work: TimerWork
        tools = TimerTools(self._host, self._writing, self.books, self.keeper, self._topics)
        # A slave's scope outlasts the times in which it acts for its master.
        scope = self._work_scope = Scope()
        scope.on_end(self._role.scope.on_end(scope.end))
        if self._role.delivers:
            work = DeliveringTimer(tools, scope)
        else:
            work = FollowingTimer(tools, scope)
        self.work = work
        work.begin()

    @inlineCallbacks
    def end(self) -> Generator[Deferred[Any], Any, None]:
        """Ends the work; fires once nothing of it is under way and the files are written."""
        work, self.work = self.work, None
        self._work_scope.end()
        if work is not None:
            yield work.end()
        yield self.save()

    @inlineCallbacks
    def close(self) -> Generator[Deferred[Any], Any, None]:
        """Writes and closes the files; fails where they cannot be written. The next start delivers
        a slot again that is delivered in part."""
        try:
            if self._is_loaded:
                yield self.keeper.save(always=True)
        finally:
            yield self._host.in_thread(self.books.files.close)

    @inlineCallbacks
    def save(self) -> Generator[Deferred[Any], Any, None]:
        """Writes what changed; fires once that is over. What failed is logged, and written with the
        next call."""
        self.pass_empty_slots()
        try:
            yield self.keeper.save()
        except Exception:
            self._logger.failure("the timer's files cannot be saved; trying again later")
        if self.work is not None:
            # Where too much was not written yet, or reading failed.
            self.work.let_in()

    def table(self) -> KeptTable:
        """Returns the counts, and what `save` writes with them; `start` has read the rest."""
        seconds = self._host.store_config.timer_flush_interval_ms / 1000
        return KeptTable(PROGRESS_TABLE, self.books.load_counts, self.save, seconds)

    def periodic(self) -> Iterable[Periodic]:
        """Yields what is done from time to time in any role."""
        yield Periodic("the retention of the timer log", RETENTION_SECONDS, self.expire)
        yield Periodic("rates of timed messages", SAMPLE_SECONDS, self.books.sample_rates)

    def expire(self) -> Deferred[Any]:
        """Removes files of the timer log that are not needed any more, and counts of topics that
        are gone."""
        books = self.books
        books.counts.keep_only(self._topics.all().keys())
        steps = books.files.remove_expired(self._writing.store.min_physical_offset, books.read_ms)
        return self.keeper.alone(
            lambda: in_slices_with(
                steps,
                lambda: books.files.log.has_unsynced_removals,
                books.files.log.sync_removals,
                self._host.in_slices,
                self._host.in_thread,
            )
        )

    def places(self) -> Iterator[int]:
        """Yields log offsets that still are needed, the first waiting message's among them: all of
        the log until it is known what waits."""
        if self._is_loaded:
            yield from self._places.all()
        else:
            yield 0

    # Truncation

    def _pause(self) -> Deferred[None]:
        return succeed(None) if self.work is None else self.work.pause()

    def _resume(self) -> None:
        """Goes on, where the role was not left meanwhile and is not just being entered."""
        if self.work is not None:
            self.work.begin()

    # How far it is

    def pass_empty_slots(self) -> bool:
        """Moves the place in time on, over slots that nothing waits for, and returns True, where
        messages are being delivered."""
        if self.work is None or not self.work.is_delivering:
            return False
        self.books.pass_empty_slots()
        return True

    def checkpoint(self) -> TimerCheckpoint | None:
        """Returns how far the timer is; where nothing is delivered here, as far as that is
        known."""
        if self.pass_empty_slots():
            return self.keeper.checkpoint()
        return self.books.progress.checkpoint

    def behind_ms(self) -> int:
        """Returns by how many ms the delivery is behind the clock; 0 where there is none."""
        if not self.pass_empty_slots():
            return 0
        return max(self._host.now_ms() - self.books.read_ms, 0)

    @property
    def messages_behind(self) -> int:
        """How many messages of the timer's topic are not in the wheel yet."""
        return self.books.messages_behind

    @property
    def enqueue_latency_ms(self) -> int:
        """How long the oldest message has waited that is not in the wheel yet."""
        return self.books.enqueue_latency_ms

    def counts(self) -> TimedMessageCounts:
        """Returns how many messages wait, by topic."""
        return self.books.counts.table()

    def snapshot(self) -> Iterable[Metric]:
        """Yields how many messages wait for the next seconds, minutes and hours."""
        return self.books.snapshot()
