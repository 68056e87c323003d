"""Does the timer's work in a role: it lets messages into the wheel, and delivers them where the
role does that; a slave follows its master's checkpoint instead.

Rules: docs/formats/timers.md, "What becomes of a message".
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.tables.topics.table import TopicTable
from rocketmq_tw.broker.timer.books import TimerBooks, Waiting
from rocketmq_tw.broker.timer.delivery import TimerDelivery
from rocketmq_tw.broker.timer.intake import TimerIntake
from rocketmq_tw.broker.timer.keeping import TimerKeeper
from rocketmq_tw.broker.timer.progress import TimerCheckpoint
from rocketmq_tw.broker.timer.rewind import clock_is_behind, master_went_back, rewind_to
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.runtime.retries import RETRY_USUAL
from rocketmq_tw.runtime.scope import Scope
from rocketmq_tw.runtime.waiters import Waiters
from rocketmq_tw.store.errors import DamagedStoreError

#: Bytes of the timer log that may wait for their write; the topic waits then.
MOST_UNWRITTEN = 16 << 20

log = Logger()


class TimerTools(NamedTuple):
    """What the timer has in every role."""

    host: Host
    writing: Writing
    books: TimerBooks
    keeper: TimerKeeper
    topics: TopicTable


class TimerWork:
    """Lets messages into the wheel in stretches: each from `begin` to the next `pause`, or to the
    end of `scope`, the role's. What one stretch has begun does not go on in the next."""

    def __init__(self, tools: TimerTools, scope: Scope) -> None:
        self._host = tools.host
        self._logger = tools.host.named(log)
        self._store = tools.writing.store
        self._books = tools.books
        self._keeper = tools.keeper
        self._topics = tools.topics
        self._scope = scope
        self._stretch = Scope()
        self._stretch.end()
        #: None until it is found out, in each stretch, what waits already.
        self._intake: TimerIntake | None = None
        self._is_entering = False
        self._entered = Waiters[None]()
        self._is_between = False
        self._between_ended = Waiters[None]()
        scope.on_end(tools.writing.dispatcher.on_dispatched(self.let_in))

    @property
    def is_open(self) -> bool:
        """Whether messages may go into the wheel now."""
        return self._intake is not None and not self._stretch.is_over

    @property
    def is_delivering(self) -> bool:
        """Whether due messages are delivered now."""
        return False

    def begin(self) -> None:
        """Goes on where the checkpoint is, once a thread has found out what waits already."""
        stretch = self._next_stretch()
        self._position_books()
        books = self._books
        if books.files.log.end == 0:
            self._open(stretch, Waiting({}, 0, ()))
            return
        position, since_ms = books.next_position(), books.read_ms
        found = self._keeper.alone(
            lambda: self._host.in_thread(lambda: books.find_waiting(position, since_ms))
        )
        found.addCallback(lambda waiting: None if stretch.is_over else self._open(stretch, waiting))
        found.addErrback(self._failed, stretch)

    def pause(self) -> Deferred[None]:
        """Ends the stretch; fires once nothing goes into the wheel, or is delivered, any more."""
        self._next_stretch()
        return self._when_idle()

    def end(self) -> Deferred[None]:
        """Ends the work for good; fires as `pause` does."""
        return self.pause()

    def let_in(self) -> None:
        """Lets the messages into the wheel that are not there yet, in slices."""
        intake = self._intake
        if intake is None or self._stretch.is_over or self._is_entering:
            return
        if intake.is_behind:
            self._is_entering = True
            before = self._books.queue_offset
            steps = self._stretch.steps(self._while_allowed(intake.steps()))
            self._host.in_slices(steps).addBoth(self._let_in_ended, intake, before)

    def _next_stretch(self) -> Scope:
        self._stretch.end()
        self._intake = None
        stretch = self._stretch = Scope()
        stretch.on_end(self._scope.on_end(stretch.end))
        return stretch

    def _failed(self, failure: Failure, stretch: Scope) -> None:
        self._logger.failure("the timer's files cannot be read; trying again", failure=failure)
        stretch.later(self._host.reactor, RETRY_USUAL, self.begin)

    @inlineCallbacks
    def _between_stretches(
        self, work: Callable[[], Deferred[Any]]
    ) -> Generator[Deferred[Any], Any, None]:
        """Ends the stretch, does `work`, and begins the next one."""
        stretch = self._next_stretch()
        yield self._when_idle()
        if stretch.is_over:
            return
        self._is_between = True
        try:
            yield work()
        except Exception:
            self._failed(Failure(), stretch)
        else:
            if not stretch.is_over:
                self.begin()
        finally:
            self._is_between = False
            self._between_ended.fire(None)

    def _recount(self, stretch: Scope, lasts: Sequence[int]) -> None:
        books, topics = self._books, list(self._topics.all())
        books.counts.begin_recount()
        counted = self._host.in_thread(lambda: books.count_by_topic(lasts, topics))
        counted.addCallback(books.counts.replace)
        counted.addErrback(self._not_counted, stretch)

    def _not_counted(self, failure: Failure, stretch: Scope) -> None:
        if not failure.check(DamagedStoreError):
            self._logger.failure("timed messages cannot be counted", failure=failure)
        elif not stretch.is_over:
            self._logger.warn("timed messages: {why}", why=failure.getErrorMessage())
            self._found_damage()

    def _make_again(self) -> None:
        """Looks in the timer's topic for what the files do not lead to any more."""
        self._logger.warn("timed messages: all that wait are looked for again in the message log")
        self._between_stretches(self._make_files_again)

    @inlineCallbacks
    def _make_files_again(self) -> Generator[Deferred[Any], Any, None]:
        # What is delivered must not be taken in again, also where a crash comes meanwhile.
        yield self._keeper.save(always=True)
        yield self._keeper.alone(lambda: self._host.in_thread(self._books.make_again))

    def _while_allowed(self, steps: Iterator[None]) -> Iterator[None]:
        while self._may_go_on():
            for _ in steps:
                break
            else:
                return
            yield

    def _let_in_ended(self, result: Any, intake: TimerIntake, before: int) -> None:
        self._is_entering = False
        if isinstance(result, Failure):
            self._logger.failure(
                "moving messages from the timer topic into the timer's files failed; trying"
                " again later",
                failure=result,
            )
        self._entered.fire(None)
        if intake.is_behind and self._books.queue_offset > before:
            self._stretch.later(self._host.reactor, 0, self.let_in)
        else:
            self._caught_up()

    # What depends on the role

    def _position_books(self) -> None:
        """Moves the books to where the work goes on."""
        self._books.go_on(as_slave=False)

    def _open(self, stretch: Scope, waiting: Waiting) -> None:
        """Begins to let messages in: it is known by now which wait already."""
        self._books.waiting = waiting.number
        self._intake = TimerIntake(self._store, self._books, waiting.places)
        if self._books.files.log.end:
            self._recount(stretch, waiting.lasts)
        self.let_in()

    def _may_go_on(self) -> bool:
        """Returns whether one more step of the topic may be let in."""
        stopped = self._host.store_config.timer_stop_enqueue
        return not stopped and self._books.files.log.unwritten <= MOST_UNWRITTEN

    def _caught_up(self) -> None:
        """Goes on once the wheel has all messages that it may have now."""

    def _found_damage(self) -> None:
        """Goes on after a slot was found that lacks entries."""
        self._make_again()

    @inlineCallbacks
    def _when_idle(self) -> Generator[Deferred[Any], Any, None]:
        """Fires once nothing of an earlier stretch is under way."""
        if self._is_entering:
            yield self._entered.wait()
        if self._is_between:
            yield self._between_ended.wait()


class FollowingTimer(TimerWork):
    """The work on a slave: it goes no further than its master."""

    def __init__(self, tools: TimerTools, scope: Scope) -> None:
        super().__init__(tools, scope)
        scope.on_end(tools.books.progress.followed.add(self._followed))

    def _position_books(self) -> None:
        self._books.go_on(as_slave=True)

    def _followed(self) -> None:
        checkpoint, books = self._books.progress.checkpoint, self._books
        if checkpoint is None or self._is_between:
            # The next stretch begins where the checkpoint is.
            return
        if self.is_open and master_went_back(books, checkpoint.read_ms, self._host.now_ms()):
            self._logger.warn("the master's clock was set back; timed messages go on at its time")
            self._between_stretches(lambda: self._go_back(checkpoint))
            return
        books.follow(checkpoint)
        self.let_in()

    @inlineCallbacks
    def _go_back(self, checkpoint: TimerCheckpoint) -> Generator[Deferred[Any], Any, None]:
        host, books = self._host, self._books
        yield self._keeper.alone(lambda: rewind_to(host, books, checkpoint.read_ms))
        books.follow(checkpoint)
        yield self._keeper.save(always=True)


class DeliveringTimer(TimerWork):
    """The work of a master: due messages go to `writing.sink`."""

    def __init__(self, tools: TimerTools, scope: Scope) -> None:
        super().__init__(tools, scope)
        self._sink = tools.writing.delivery_sink
        #: None until the first stretch is open.
        self.delivery: TimerDelivery | None = None

    @property
    def is_delivering(self) -> bool:
        return self.is_open

    @inlineCallbacks
    def end(self) -> Generator[Deferred[Any], Any, None]:
        """See `TimerWork`; notes how far all is delivered."""
        yield super().end()
        if self.delivery is not None:
            self._books.progress.reached(self._books.position())

    def _open(self, stretch: Scope, waiting: Waiting) -> None:
        self.delivery = TimerDelivery(
            self._host, self._store, self._sink, self._books, stretch, self._make_again
        )
        self.delivery.start()
        super()._open(stretch, waiting)

    def _found_damage(self) -> None:
        # Not while a slot is open: what is delivered of it would come again.
        assert self.delivery is not None, "a stretch that counts has one"
        self.delivery.found_damage()

    def _may_go_on(self) -> bool:
        if clock_is_behind(self._books, self._host.now_ms()):
            self._go_back_to_now()
            return False
        return super()._may_go_on()

    def _go_back_to_now(self) -> None:
        self._logger.warn("the clock was set back; timed messages go on at the time that it is now")
        self._between_stretches(self._rewind_to_now)

    @inlineCallbacks
    def _rewind_to_now(self) -> Generator[Deferred[Any], Any, None]:
        host, books = self._host, self._books
        yield self._keeper.alone(lambda: rewind_to(host, books, host.now_ms()))
        yield self._keeper.save(always=True)

    def _caught_up(self) -> None:
        if self.delivery is not None:
            self.delivery.caught_up()

    @inlineCallbacks
    def _when_idle(self) -> Generator[Deferred[Any], Any, None]:
        yield super()._when_idle()
        if self.delivery is not None:
            yield self.delivery.when_idle()
