"""Keeps which messages wait for which slot of time, and how far the timer is
(docs/formats/timers.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from twisted.logger import Logger

from rocketmq_tw.broker.assembly.host import ConfigFile, Host
from rocketmq_tw.broker.stats.statistics import SAMPLE_SECONDS, SampledCount
from rocketmq_tw.broker.timer.counts import TimedCounts
from rocketmq_tw.broker.timer.progress import TimerCheckpoint, TimerProgress
from rocketmq_tw.broker.timer.rules import TimerRules
from rocketmq_tw.broker.timer.slots import DueSlot
from rocketmq_tw.files.interface import NoFileError
from rocketmq_tw.message.names import TIMER_TOPIC
from rocketmq_tw.message.tags import java_hash_code
from rocketmq_tw.metrics.instruments import Metric, gauge
from rocketmq_tw.runtime.listeners import Listeners
from rocketmq_tw.store.message_store import MessageStore
from rocketmq_tw.store.timer.timer_files import TimerFiles
from rocketmq_tw.store.timer.unit import TimerUnit

#: Seconds from now that monitoring tells apart, as stock's `timerDistList` has them.
_AHEAD = (5, 60, 300, 900, 3600, 14_400, 28_800, 86_400)

log = Logger()


class Waiting(NamedTuple):
    """What was found to wait: the places in the commit log of the messages from `queue_offset` on
    that have an entry, with their slots, the number of all waiting messages, and the last entry of
    each slot."""

    places: dict[int, int]
    number: int
    lasts: Sequence[int]


class _Late(NamedTuple):
    """Messages that wait behind their time: the offset of the first in the timer's topic, the
    earliest of their own slots, and the last slot in which they wait."""

    offset: int
    out_ms: int
    slot_ms: int


class TimerBooks:
    """The wheel and the timer log (`files`), the checkpoint (`progress`), the counts of each topic,
    and the timer's place in time (`read_ms`) and in its topic (`queue_offset`).

    An entry that comes too late for its own slot goes into the first slot that is not delivered.
    `entered_until` then stays in front of its message until that slot is over: a timer that goes on
    at a `read_ms` takes all messages before it for delivered whose own slot is over.
    """

    def __init__(self, host: Host, store: MessageStore) -> None:
        config = host.store_config
        self._store = store
        self._now_ms = host.now_ms
        self.rules = TimerRules(config)
        self.files = TimerFiles(
            host.files,
            store.paths.root,
            file_size=config.mapped_file_size_timer_log,
            precision_ms=self.rules.precision_ms,
        )
        self.progress = TimerProgress(host.files, store.paths.config)
        path = f"{store.paths.config}/timermetrics"
        self.counts = TimedCounts(ConfigFile(host.files, path), host.now_ms)
        #: Where a slot begins, in ms since 1970: all slots before it are delivered.
        self.read_ms = 0
        #: The slot at `read_ms` while it is being delivered.
        self.slot: DueSlot | None = None
        #: How many messages wait, less those that recall one.
        self.waiting = 0
        #: The next message of the timer's topic that may go into the wheel.
        self.queue_offset = 0
        #: Messages before it were in the wheel of the broker that told `read_ms`: those whose slot
        #: is before that were delivered.
        self.known_until = 0
        #: The offset that a slave's master has reached, and no slave passes; None on a master.
        self.master_queue_offset: int | None = None
        self._late: _Late | None = None
        #: Of all topics together, for rates.
        self._entered, self._delivered = SampledCount(), SampledCount()
        #: Told of each entry that goes into the wheel.
        self.added: Listeners[TimerUnit] = Listeners("a timed message went into the wheel")

    def load(self) -> None:
        """Reads all files except the counts, in any thread; raises `StoreError` or `OSError`. Where
        one of them was lost, all messages of the timer's topic are looked at again."""
        self.progress.load()
        checkpoint, store = self.progress.checkpoint, self._store
        known = checkpoint or TimerCheckpoint()
        self.read_ms = self._start_of_time(checkpoint)
        notes = self.files.load(
            log_position=known.log_position,
            since_ms=self.read_ms,
            commit_end=store.end_offset,
            clean=store.report is not None and store.report.clean,
            note_log_position=self.progress.note_log_position,
        )
        for note in notes:
            log.warn("timed messages: {note}", note=note)
        self.queue_offset = 0 if notes else known.queue_offset
        self.known_until = known.master_queue_offset
        if checkpoint is None:
            self.progress.take(TimerCheckpoint(self.read_ms))

    def load_counts(self) -> None:
        """Reads the counts; where that fails, they stay 0 until the next recount. Raises
        `NoFileError`, since they could not be written either."""
        try:
            self.counts.load()
        except NoFileError:
            raise
        except Exception:
            log.failure("the counts of timed messages cannot be read; they are counted anew")

    def _start_of_time(self, checkpoint: TimerCheckpoint | None) -> int:
        """Returns `read_ms` for a start: the checkpoint's; the present slot where there never was a
        timed message. Where the checkpoint is lost, as far back as stock lets messages wait."""
        rules, current = self.rules, self.rules.slot_of(self._now_ms())
        if checkpoint is not None and checkpoint.read_ms > 0:
            return rules.slot_of(checkpoint.read_ms)
        if checkpoint is None and not self._store.max_queue_offset(TIMER_TOPIC, 0):
            return current
        return max(current - rules.furthest_ms, 0)

    def make_again(self) -> None:
        """Looks at all messages of the timer's topic again where a slot is damaged; in any thread,
        while no slot is open and nobody else uses or writes the files. The next stretch takes in
        what has no entry. Raises `StoreError` or `OSError`."""
        self.files.make_again(self.read_ms, self.progress.note_log_position)
        self.queue_offset = 0

    # Place in the topic

    @property
    def entered_until(self) -> int:
        """All messages of the timer's topic before it wait in the slot of their time, or are
        delivered."""
        late = self._late
        if late is None or not late.out_ms < self.read_ms <= late.slot_ms:
            return self.queue_offset
        return min(self.queue_offset, late.offset)

    @property
    def settled_until(self) -> int:
        """As `entered_until`, with messages that were in the wheel before and are looked at
        again."""
        return max(self.entered_until, self.known_until)

    @property
    def queue_end(self) -> int:
        """Where the messages end that may go into the wheel now."""
        end, most = self._store.max_queue_offset(TIMER_TOPIC, 0), self.master_queue_offset
        return end if most is None else min(end, most)

    @property
    def messages_behind(self) -> int:
        """How many messages of the timer's topic are not in the wheel yet."""
        return max(self._store.max_queue_offset(TIMER_TOPIC, 0) - self.queue_offset, 0)

    @property
    def enqueue_latency_ms(self) -> int:
        """How long the oldest message has waited that is not in the wheel yet."""
        stored = -1
        if self.messages_behind:
            stored = self._store.store_time(TIMER_TOPIC, 0, self.queue_offset)
        return max(self._now_ms() - stored, 0) if stored > 0 else 0

    def next_position(self) -> int:
        """Returns the place in the commit log of the next message of the topic, or the log's
        end."""
        units = self._store.queue_units(TIMER_TOPIC, 0, self.queue_offset, 1)
        return units[0].position if units else self._store.end_offset

    def go_on(self, *, as_slave: bool) -> None:
        """Takes the place of the checkpoint: for a slave its master's, in time as well."""
        checkpoint = self.progress.checkpoint or TimerCheckpoint()
        known_until, store = checkpoint.master_queue_offset, self._store
        self.known_until = known_until
        if not as_slave:
            self.known_until = min(known_until, store.max_queue_offset(TIMER_TOPIC, 0))
        self.master_queue_offset = known_until if as_slave else None
        self._late = None
        offset = max(min(self.queue_offset, known_until), store.min_queue_offset(TIMER_TOPIC, 0))
        self.queue_offset = min(offset, store.max_queue_offset(TIMER_TOPIC, 0))
        if as_slave:
            self.go_to(self.rules.slot_of(checkpoint.read_ms))

    def follow(self, checkpoint: TimerCheckpoint) -> None:
        """Goes as far as a slave's master now is."""
        self.go_to(self.rules.slot_of(checkpoint.read_ms))
        self.master_queue_offset = self.known_until = checkpoint.master_queue_offset

    def take_back(self, checkpoint: TimerCheckpoint) -> None:
        """Goes as far as a slave is that delivered while its master, this broker, was away; nowhere
        where that is no further. Messages that the slave never had are looked at again: its place
        in time and the end of its messages belong together."""
        own = self.progress.checkpoint
        if own is None or checkpoint.read_ms > own.read_ms:
            self.progress.follow(checkpoint)
            self.go_to(self.rules.slot_of(checkpoint.read_ms))

    def rewind(self, checkpoint: TimerCheckpoint, read_ms: int) -> None:
        """Goes back to `checkpoint`, which was written, and to the slot at `read_ms`, which may be
        later than `checkpoint.read_ms`. What was read of a slot is read again."""
        self.progress.take(checkpoint)
        self.slot = None
        self.read_ms = read_ms
        self.queue_offset = checkpoint.queue_offset
        if self.master_queue_offset is not None:
            self.master_queue_offset = min(self.master_queue_offset, checkpoint.master_queue_offset)
        self.known_until = min(self.known_until, checkpoint.master_queue_offset)
        self._late = None

    def note_late(self, offset: int, out_ms: int, slot_ms: int) -> None:
        """Notes that the message at `offset` of the timer's topic waits in the slot at `slot_ms`,
        behind its own one at `out_ms`."""
        late = self._late or _Late(offset, out_ms, slot_ms)
        self._late = _Late(
            min(late.offset, offset), min(late.out_ms, out_ms), max(late.slot_ms, slot_ms)
        )

    def position(self) -> TimerCheckpoint:
        """Returns how far the timer is; without log position and version."""
        master = (
            self.settled_until if self.master_queue_offset is None else self.master_queue_offset
        )
        return TimerCheckpoint(self.read_ms, 0, self.entered_until, master)

    def sample_rates(self) -> None:
        """Takes a sample of the rates; to be called every `SAMPLE_SECONDS` of
        `stats.statistics`."""
        self._entered.sample()
        self._delivered.sample()

    def rates(self) -> tuple[float, float]:
        """Returns how many messages went into the wheel, and were delivered, per second."""
        return (
            self._entered.per_second(SAMPLE_SECONDS),
            self._delivered.per_second(SAMPLE_SECONDS),
        )

    def snapshot(self) -> Iterator[Metric]:
        """Yields how many messages wait for the next seconds, minutes and hours, each stretch from
        the end of the one before."""
        now = since = self.rules.slot_of(self._now_ms())
        for seconds in _AHEAD:
            until = now + seconds * 1000
            number = self.files.wheel.total(since, until)
            labels = {"timer_bound_s": str(seconds)}
            yield gauge("rocketmq_timer_message_snapshot", max(number, 0), labels)
            since = until

    # Slots

    def add(self, topic: str, unit: TimerUnit) -> None:
        """Lets a message for `topic` wait."""
        position, unit = self.files.add(unit, self.read_ms)
        self.counts.add(topic, unit.weight)
        self.waiting += unit.weight
        self._entered.total += 1
        self.counts.entered.add(topic)
        slot = self.slot
        if slot is not None and slot.slot == self.rules.slot_of(unit.time_ms):
            slot.add(position, unit)
        self.added.tell(unit)

    def count_delivered(self, topic: str) -> None:
        """Counts a message of `topic` that was delivered, or went into the wheel once more."""
        self._delivered.total += 1
        self.counts.delivered.add(topic)

    def go_to(self, read_ms: int) -> None:
        """Takes all slots before `read_ms` for delivered. What was read of the slot there is
        kept."""
        self.read_ms = read_ms
        if self.slot is not None and self.slot.slot != read_ms:
            self.slot = None

    def pass_empty_slots(self) -> None:
        """Moves `read_ms` on to the present slot, where no message waits for one between them."""
        if self.slot is None:
            current = self.rules.slot_of(self._now_ms())
            wheel = self.files.wheel
            if current > self.read_ms and wheel.next_time(self.read_ms, current) is None:
                self.read_ms = current

    def open_slot(self, slot_ms: int) -> DueSlot:
        """Begins to deliver a slot, which is to be read."""
        self.read_ms = slot_ms
        self.slot = DueSlot(slot_ms, self.rules, self._store.end_offset)
        return self.slot

    def close_slot(self, slot: DueSlot) -> None:
        """Ends the delivery of `slot`, of which nothing is left."""
        self.waiting -= self.files.number(slot.slot)
        self.read_ms = slot.slot + self.rules.precision_ms
        self.slot = None
        if self._late is not None and self._late.slot_ms <= slot.slot:
            self._late = None

    # Finding out what waits

    def find_waiting(self, position: int, since_ms: int) -> Waiting:
        """Finds the messages that wait for `since_ms` or later, and the places at or behind
        `position` of the commit log that have an entry; in any thread, while nothing is added."""
        wheel, places = self.files.wheel, dict[int, int]()
        wheel.keep_since(since_ms)
        number, lasts = 0, []
        for _, slot in wheel.waiting(since_ms):
            number += slot.number
            lasts.append(slot.last)
        # An acting slave may have passed a slot whose message it never had: nobody delivered that.
        for _ in self.files.offsets_from(position, places, since_ms):
            pass
        return Waiting(places, number, lasts)

    def count_by_topic(self, lasts: Sequence[int], topics: Collection[str]) -> Mapping[str, int]:
        """Counts the waiting messages of each of `topics`, in any thread. `lasts`: the positions of
        the last entries of all slots in which some wait. Raises `DamagedStoreError` where a slot
        lacks entries."""
        names = {java_hash_code(topic): topic for topic in topics}
        reader = self.files.log.reader()
        found: Counter[str] = Counter()
        for last in lasts:
            for _, unit in reader.chain(last):
                name = names.get(unit.topic_hash)
                if name is not None and not unit.is_void:
                    found[name] += unit.weight
        return found
