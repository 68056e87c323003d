"""Goes through time once more: where the log's end is cut off, with deliveries and waiting messages
that stand there, and where the clock was set back (docs/formats/timers.md, "The order of things").
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.truncation import LogCut
from rocketmq_tw.broker.timer.books import TimerBooks
from rocketmq_tw.broker.timer.delivered import DeliveredBehind
from rocketmq_tw.broker.timer.keeping import TimerKeeper
from rocketmq_tw.broker.timer.progress import TimerCheckpoint
from rocketmq_tw.message.names import TIMER_TOPIC
from rocketmq_tw.runtime.clock import is_ahead
from rocketmq_tw.store.interface import IMessageStore

#: Slots with entries that are looked at in one step then.
STEP_SLOTS = 1_000


class CutRewind:
    """Goes back before the log's end is cut: messages there wait no more, and messages that were
    delivered there wait again. Nothing may be let in or delivered meanwhile."""

    def __init__(
        self, host: Host, store: IMessageStore, books: TimerBooks, keeper: TimerKeeper
    ) -> None:
        self._host = host
        self._store = store
        self._books = books
        self._keeper = keeper
        self._found: tuple[LogCut, DeliveredBehind] | None = None

    def look_behind(self, cut: LogCut) -> Iterator[None]:
        """Finds out how far to go back; see `DerivedOffsets.rewind`."""
        delivered = DeliveredBehind(self._store, self._books, cut)
        self._found = cut, delivered
        return delivered.find()

    def go_back(self) -> Deferred[None]:
        """Goes back as far as `look_behind` found, in the files as in the books; fails where one
        cannot be written. See `DerivedOffsets.go_back`."""
        assert self._found is not None, "look_behind comes first"
        found, self._found = self._found, None
        return self._keeper.alone(lambda: self._go_back(*found))

    def save(self) -> Deferred[None]:
        """Fires once all files are durable, and fails where one cannot be written."""
        return self._keeper.save(always=True)

    @inlineCallbacks
    def _go_back(
        self, cut: LogCut, delivered: DeliveredBehind
    ) -> Generator[Deferred[Any], Any, None]:
        host, books = self._host, self._books
        known = books.progress.checkpoint or TimerCheckpoint()
        read_ms, until = books.read_ms, min(books.settled_until, known.master_queue_offset)
        if delivered.first is not None:
            read_ms = min(read_ms, delivered.first)
        for offset in (cut.first_gone(TIMER_TOPIC, 0), delivered.first_missing):
            if offset is not None:
                until = min(until, offset)
        checkpoint = known._replace(
            read_ms=min(known.read_ms, read_ms),
            queue_offset=min(books.queue_offset, until),
            master_queue_offset=until,
        )
        # First of all: whatever a crash leaves of the rest does no harm then.
        yield host.in_thread(lambda: books.progress.write(checkpoint))
        books.rewind(checkpoint, read_ms)
        yield host.in_slices(books.files.unlink_behind(cut.end))

        def note_log_position(position: int) -> None:
            log_position = min(checkpoint.log_position, position)
            books.progress.write(checkpoint._replace(log_position=log_position))

        yield host.in_thread(lambda: books.files.cut_unlinked(note_log_position))


def clock_is_behind(books: TimerBooks, now_ms: int) -> bool:
    """Returns whether the clock was set back, behind what is delivered."""
    return is_ahead(books.read_ms, now_ms)


def master_went_back(books: TimerBooks, master_ms: int, now_ms: int) -> bool:
    """Returns whether the clock of a slave's master was set back to `master_ms`, behind what it
    had delivered: a kill of it takes it back less, and from no time to come."""
    return is_ahead(books.read_ms, max(master_ms, now_ms)) and not is_ahead(master_ms, now_ms)


@inlineCallbacks
def rewind_to(host: Host, books: TimerBooks, time_ms: int) -> Generator[Deferred[Any], Any, None]:
    """Goes back to `time_ms`. What was delivered before its time by that is taken out of its slots,
    and does not come again, but for the slot that is delivered in part. Nothing may be let in,
    delivered or written meanwhile."""
    books.slot = None
    yield host.in_thread(lambda: books.files.wheel.keep_since(time_ms))
    yield host.in_slices(empty_slots(books, time_ms))


def empty_slots(books: TimerBooks, time_ms: int) -> Iterator[None]:
    """Empties the slots from `time_ms` on that are delivered, and goes back to the first of them,
    in steps."""
    wheel, first = books.files.wheel, books.rules.slot_of(time_ms)
    for count, (slot_ms, _) in enumerate(wheel.waiting(first), 1):
        if slot_ms < books.read_ms:
            wheel.clear(slot_ms)
        if count % STEP_SLOTS == 0:
            yield
    books.read_ms = min(books.read_ms, first)
