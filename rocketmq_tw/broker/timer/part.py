"""Messages for a time of their own, as a part of the broker."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.assembly.config_file import ConfigFile
from rocketmq_tw.broker.assembly.host import Addresses, Host
from rocketmq_tw.broker.assembly.log_cut import LogCut
from rocketmq_tw.broker.assembly.part import KeptTable, Metric, Part, Periodic, TakeBack
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.timer.counts import TimedCounts
from rocketmq_tw.broker.timer.cut import go_back, take_back
from rocketmq_tw.broker.timer.delivered import Delivered
from rocketmq_tw.broker.timer.delivery import TimerDelivery
from rocketmq_tw.broker.timer.enqueue import TimerQueue
from rocketmq_tw.broker.timer.keeping import TimerKeeper
from rocketmq_tw.broker.timer.progress import TimerCheckpoint, TimerProgress
from rocketmq_tw.broker.timer.rates import Rate
from rocketmq_tw.broker.timer.recall import RecallRequests
from rocketmq_tw.broker.timer.redirect import TimerRedirect
from rocketmq_tw.broker.timer.rules import TimerRules
from rocketmq_tw.broker.timer.waiting import counting, start_of_time
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.broker.writing.redirects import Stage
from rocketmq_tw.message.names import TIMER_TOPIC
from rocketmq_tw.message.properties import TIMER_PROPERTIES
from rocketmq_tw.message.tags import java_hash_code
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.store.timer.timer_files import TimerFiles
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError

#: Seconds between two looks for files that are not needed any more, and at rates.
RETENTION_SECONDS = 30
RATE_SECONDS = 10
#: Seconds until what failed is tried again.
RETRY_DELAY = 1.0
#: Bytes of the timer log that may wait for their write; the topic waits then.
MOST_UNWRITTEN = 16 << 20

#: Places in the commit log of messages that wait already, how many wait, and what counts those of
#: each topic, where there are any.
_Found = tuple[set[int], int, Callable[[], Mapping[str, int]] | None]

log = Logger()


class Timer(Part):
    """Lets messages wait in stock's wheel, delivers them while the broker is the master, takes some
    back (370), and tells how far it is (60) and how many wait (61). With timerWheelEnable=false it
    keeps what it finds and follows its master only."""

    def __init__(
        self, host: Host, addresses: Addresses, role: RoleHolder, writing: Writing, tables: Tables
    ) -> None:
        config, store = host.store_config, writing.store
        self._host = host
        self._role = role
        self._writing = writing
        self._tables = tables
        self._store = store
        self.enabled = config.timer_wheel_enable
        self.progress = TimerProgress(host.files, store.paths.config)
        path = f"{store.paths.config}/timermetrics"
        self.counts = TimedCounts(ConfigFile(host.files, path), host.now_ms)
        self.rules = TimerRules(config)
        self.files = TimerFiles(
            host.files,
            store.paths.root,
            file_size=config.mapped_file_size_timer_log,
            precision_ms=self.rules.precision_ms,
        )
        self.queue = TimerQueue(
            store,
            self.files,
            self.rules,
            self.counts,
            lambda: self.delivery.read_ms,
            lambda position, unit: self.delivery.added(position, unit),
        )
        self.delivery = TimerDelivery(
            config,
            self.rules,
            self.files,
            store,
            writing.commit,
            self.counts,
            host.reactor,
            host.now_ms,
            host.in_thread,
            lambda: self.queue.offset,
            self.queue.slot_over,
            self._put_off,
        )
        self.keeper = TimerKeeper(
            self.files,
            self.progress,
            self.counts,
            writing.commit,
            host.in_thread,
            host.now_ms,
            self._position,
        )
        redirect = TimerRedirect(config, self.rules, self.files.number, host.now_ms)
        writing.redirects.by_property(Stage.TIMER, TIMER_PROPERTIES, redirect.redirect)
        self._recall = RecallRequests(
            host.config,
            config,
            tables.topics,
            writing.commit,
            redirect,
            lambda: addresses.store_host,
            host.now_ms,
        )
        self._loaded = self._is_ready = False
        #: Whether the topic may be let into the wheel now, and whether that is under way.
        self._open = self._pumping = False
        self._pumped: list[Deferred[None]] = []
        #: Counts changes of role and cuts: what was begun before one ends there.
        self._period = 0
        self._enqueue_rate = Rate(host.elapsed_ms)
        self._deliver_rate = Rate(host.elapsed_ms)
        if self.enabled:
            writing.dispatcher.on_dispatched(self._pump)
            self.progress.on_followed(self._followed)
            # At once: what it would append is refused from the moment when the role is another.
            role.on_end(self.delivery.pause)

    # The life of the part

    def start(self) -> Deferred[Any] | None:
        return self._host.in_thread(self._load) if self.enabled else None

    def _load(self) -> None:
        self.progress.load()
        checkpoint = self.progress.checkpoint
        store, now = self._store, self._host.now_ms()
        self.delivery.read_ms = start_of_time(checkpoint, store, self.rules, now)
        known = checkpoint or TimerCheckpoint()
        notes = self.files.load(
            log_position=known.log_position,
            since_ms=self.delivery.read_ms,
            commit_end=store.end_offset,
            clean=store.report is not None and store.report.clean,
            note_log_position=self.progress.note_log_position,
        )
        self._loaded = True
        self.queue.offset = known.queue_offset
        for note in notes:
            log.warn("timed messages: {note}", note=note)
            # All that waits is looked for again.
            self.queue.offset = 0
        if checkpoint is None:
            self.progress.take(TimerCheckpoint(self.delivery.read_ms))

    def tables(self) -> Iterable[KeptTable]:
        seconds = self._host.store_config.timer_flush_interval_ms / 1000
        yield KeptTable("the timer progress", self._load_progress, self._save, seconds)
        yield KeptTable("the counts of timed messages", self._load_counts, lambda: succeed(None))

    def _load_progress(self) -> None:
        if not self.enabled:
            self.progress.load()

    def _load_counts(self) -> None:
        try:
            self.counts.load()
        except Exception:
            log.failure("the counts of timed messages cannot be read; they are counted anew")

    def periodic(self) -> Iterable[Periodic]:
        if self.enabled:
            yield Periodic("the retention of the timer log", RETENTION_SECONDS, self._expire)
            yield Periodic("rates of timed messages", RATE_SECONDS, self._measure)

    def ready(self, state: RoleState) -> None:
        self._is_ready = True
        if self.enabled and (state.role is Role.MASTER or state.role.copies_log):
            self._begin(state.role)

    @inlineCallbacks
    def leave(self, state: RoleState) -> Generator[Deferred[Any], Any, None]:
        self._is_ready = False
        if self.enabled:
            yield self._pause()
            yield self._save()

    @inlineCallbacks
    def truncating(self, cut: LogCut) -> Generator[Deferred[Any], Any, TakeBack | None]:
        if not self.enabled:
            return None
        yield self._pause()
        delivered = Delivered(self._store, self.rules, self.files, self.delivery.read_ms, cut)
        return partial(self._take_back, cut, delivered)

    def truncated(self, end: int) -> None:
        # A role that is being entered begins with `ready` later.
        if self._is_ready:
            self.ready(self._role.state)

    @inlineCallbacks
    def stop(self) -> Generator[Deferred[Any], Any, None]:
        if not self.enabled:
            return
        try:
            if self._loaded:
                # The slot is delivered in part, and whoever goes on begins at a slot.
                self.delivery.put_off()
                yield self.keeper.save(always=True)
        finally:
            yield self._host.in_thread(self.files.close)

    # What it tells

    def handlers(self, role: Role) -> Mapping[int, Handler]:
        return {
            RequestCode.GET_TIMER_CHECK_POINT: self.checkpoint,
            RequestCode.GET_TIMER_METRICS: self.metrics_table,
        } | self._recall.handlers(role)

    def checkpoint(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Raises `RequestError` where there is none, as stock with its timer off: a zero would make
        a slave of stock believe that time starts anew."""
        checkpoint = self.progress.checkpoint
        if self.enabled and self._open and self._role.is_master:
            checkpoint = self.keeper.checkpoint()
        if checkpoint is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "no timer was ever at work here")
        return request.response(body=checkpoint.encode())

    def metrics_table(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        if not self.enabled:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "no timer: timerWheelEnable=false")
        return request.response(body=encode_body(self.counts.table()))

    def runtime_info(self) -> Mapping[str, str]:
        """With 0 for all of it where there is no timer, as stock's."""
        return {
            "timerReadBehind": str(self._behind_ms() // 1000),
            "timerOffsetBehind": str(self._messages_behind()),
            "timerCongestNum": str(max(self.delivery.waiting, 0)),
            "timerEnqueueTps": f"{self._enqueue_rate.value:.1f}",
            "timerDequeueTps": f"{self._deliver_rate.value:.1f}",
        }

    def metrics(self) -> Iterable[Metric]:
        yield Metric("rocketmq_timer_enqueue_lag", self._messages_behind())
        yield Metric("rocketmq_timer_dequeue_lag", max(self.delivery.waiting, 0))
        yield Metric("rocketmq_timer_dequeue_latency", self._behind_ms())
        yield Metric("rocketmq_timer_enqueue_total", self.queue.enqueued)
        yield Metric("rocketmq_timer_dequeue_total", self.delivery.delivered)

    def _behind_ms(self) -> int:
        if not self._open or not self._role.is_master:
            return 0
        return max(self._host.now_ms() - self.delivery.now_at(), 0)

    def _messages_behind(self) -> int:
        if not self.enabled:
            return 0
        return max(self._store.max_queue_offset(TIMER_TOPIC, 0) - self.queue.offset, 0)

    def _measure(self) -> None:
        self._enqueue_rate.measure(self.queue.enqueued)
        self._deliver_rate.measure(self.delivery.delivered)

    # The work

    def _position(self) -> TimerCheckpoint:
        told = self.queue.told
        if self._role.is_master or self.queue.limit is None:
            return TimerCheckpoint(self.delivery.now_at(), 0, told, told)
        return TimerCheckpoint(self.delivery.read_ms, 0, told, self.queue.limit)

    def _begin(self, role: Role) -> None:
        """Goes on where the checkpoint is; what waits already is found out in a thread first."""
        self._period += 1
        checkpoint = self.progress.checkpoint or TimerCheckpoint()
        queue, store = self.queue, self._store
        told = checkpoint.master_queue_offset
        queue.limit = None if role is Role.MASTER else told
        queue.known_until = told
        queue.slot_over()
        queue.offset = max(min(queue.offset, told), store.min_queue_offset(TIMER_TOPIC, 0))
        queue.offset = min(queue.offset, store.max_queue_offset(TIMER_TOPIC, 0))
        if role is not Role.MASTER:
            self.delivery.go_to(self.rules.slot_of(checkpoint.read_ms))
        if self.files.log.end == 0:
            self._found((set(), 0, None), self._period, role)
            return
        units = store.queue_units(TIMER_TOPIC, 0, queue.offset, 1)
        since = self.delivery.read_ms
        offset = units[0].position if units else store.end_offset
        found = self.keeper.alone(lambda: self._host.in_thread(lambda: self._find(offset, since)))
        found.addCallback(self._found, self._period, role)
        found.addErrback(self._not_found, self._period, role)

    def _find(self, offset: int, since_ms: int) -> _Found:
        wheel, waiting = self.files.wheel, set[int]()
        wheel.keep_since(since_ms)
        names = {java_hash_code(name): name for name in list(self._tables.topics.all())}
        number = sum(slot.number for _, slot in wheel.waiting(since_ms))
        for _ in self.files.offsets_from(offset, waiting):
            pass
        return waiting, number, counting(self.files, since_ms, names)

    def _found(self, found: _Found, period: int, role: Role) -> None:
        if period != self._period:
            return
        self.queue.waiting, self.delivery.waiting, count = found
        self._open = True
        if role is Role.MASTER:
            if count is not None:
                self._count(count)
            self.delivery.start()
        self._pump()

    def _count(self, count: Callable[[], Mapping[str, int]]) -> None:
        self.counts.begin_anew()
        counted = self._host.in_thread(count)
        counted.addCallback(self.counts.replace)
        counted.addErrback(lambda failure: log.failure("counting what waits", failure=failure))

    def _not_found(self, failure: Failure, period: int, role: Role) -> None:
        log.failure("what waits for its time cannot be found out; trying again", failure=failure)

        def again() -> None:
            if period == self._period:
                self._begin(role)

        self._host.reactor.callLater(RETRY_DELAY, again)

    @inlineCallbacks
    def _pause(self) -> Generator[Deferred[Any], Any, None]:
        """Fires once nothing is let in or delivered any more."""
        self._period += 1
        self._open = False
        if self._pumping:
            pumped: Deferred[None] = Deferred()
            self._pumped.append(pumped)
            yield pumped
        yield self.delivery.stop()

    def _followed(self) -> None:
        """A master was followed."""
        checkpoint = self.progress.checkpoint
        if checkpoint is None or not self._role.copies_log:
            return
        self.delivery.go_to(self.rules.slot_of(checkpoint.read_ms))
        self.queue.limit = self.queue.known_until = checkpoint.master_queue_offset
        self._pump()

    def _pump(self) -> None:
        if self._open and not self._pumping and self.queue.is_behind:
            self._pumping = True
            before = self.queue.offset
            self._host.in_slices(self._steps()).addBoth(self._ended, before)

    def _steps(self) -> Iterator[None]:
        steps = self.queue.steps()
        while self._may_go_on():
            for _ in steps:
                break
            else:
                return
            yield

    def _put_off(self, offset: int) -> None:
        message = self._store.message_at(offset)
        if message is not None:
            self.queue.late_from(message.queue_offset)

    @inlineCallbacks
    def _go_back(self) -> Generator[Deferred[Any], Any, None]:
        """The clock was set back: time is gone through once more from now on."""
        log.warn("the clock was set back; timed messages go on at the time that it is now")
        paused, period = self._pause(), self._period
        yield paused
        try:
            if period == self._period:
                yield self.keeper.alone(partial(go_back, self._host, self.files, self.delivery))
                yield self.keeper.save(always=True)
        except Exception:
            self._not_found(Failure(), period, Role.MASTER)
        else:
            if period == self._period:
                self._begin(Role.MASTER)

    def _may_go_on(self) -> bool:
        if self._open and self._role.is_master and self.delivery.is_ahead:
            self._go_back()
        stopped = self._host.store_config.timer_stop_enqueue
        return self._open and not stopped and self.files.log.unwritten <= MOST_UNWRITTEN

    def _ended(self, result: Any, before: int) -> None:
        self._pumping = False
        if isinstance(result, Failure):
            log.failure("timed messages are not let in; trying again later", failure=result)
        pumped, self._pumped = self._pumped, []
        for waiter in pumped:
            waiter.callback(None)
        if self.queue.is_behind and self.queue.offset > before:
            self._host.reactor.callLater(0, self._pump)
        else:
            self.delivery.caught_up()

    def _save(self) -> Deferred[None]:
        if not self.enabled:
            return self._save_followed()
        saved = self.keeper.save()
        saved.addErrback(
            lambda failure: log.failure(
                "what waits for its time is not saved; trying again later", failure=failure
            )
        )
        # Where something stood in the way before.
        return saved.addCallback(lambda _: self._pump())

    @inlineCallbacks
    def _save_followed(self) -> Generator[Deferred[Any], Any, None]:
        checkpoint = self.progress.checkpoint
        if checkpoint is not None and self.progress.is_dirty:
            yield self._writing.commit.make_durable()
            yield self._host.in_thread(lambda: self.progress.write(checkpoint))
            self.progress.take(checkpoint)

    def _expire(self) -> Deferred[Any]:
        self.counts.keep_only(self._tables.topics.all().keys())
        steps = self.files.remove_expired(self._store.min_physical_offset, self.delivery.read_ms)
        return self.keeper.alone(lambda: self._host.in_slices(steps))

    @inlineCallbacks
    def _take_back(self, cut: LogCut, delivered: Delivered) -> Generator[Deferred[Any], Any, None]:
        books = self.files, self.progress, self.queue, self.delivery
        yield self.keeper.alone(lambda: take_back(self._host, *books, cut, delivered))
        yield self.keeper.save(always=True)
