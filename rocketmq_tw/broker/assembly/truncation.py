"""Cutting the end off the log, as one operation of the whole broker, and its one rule.

Parts keep offsets that follow from what the log has: how far a group has consumed, how far a delay
level is delivered, which half messages are settled. An offset that is ahead of its queue would pass
over the messages that take those places next, and a message whose delivery is cut off would never
come. So before any byte of the log goes, every part takes its offsets back to what the rest of the
log says, and makes that durable.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger
from zope.interface import Attribute, Interface

from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.record import RecordHead
from rocketmq_tw.runtime.fairness import Serial
from rocketmq_tw.runtime.listeners import Listeners
from rocketmq_tw.runtime.named_log import named
from rocketmq_tw.runtime.slices import Slices
from rocketmq_tw.store.interface import IMessageStore

#: Records of the log that are looked at in one step.
_STEP = 500

#: Told of a record that goes; what it returns is gone through before the next one.
See = Callable[[RecordHead], Iterator[None] | None]

log = Logger()


class LogCut:
    """A cut of the log of `store`: from now on the log ends at `end`. What lies behind is read
    once, for all parts that have derived offsets; a part that needs more than the ends of queues
    registers for it before. The ends of queues alone do not tell what is cut: the queues of a
    broker with a controller lack what is not confirmed, and after a kill also what is not confirmed
    again."""

    def __init__(self, store: IMessageStore, end: int) -> None:
        self.end = end
        self._store = store
        self._observers: list[See] = []
        self._began = False
        #: Topic -> queue -> queue offset -> where a message stands that stays and is not in the
        #: queue yet.
        self._unqueued: dict[str, dict[int, dict[int, int]]] = {}
        #: Topic and queue -> the first message that goes, and how many do.
        self._gone: dict[tuple[str, int], int] = {}
        self._counts: dict[tuple[str, int], int] = {}

    def observe(self, see: See) -> None:
        """Calls `see` with each record that goes, of all topics, in the order of the log. Some are
        in no queue yet: who counts what arrives there has not counted these. Raises `RuntimeError`
        once `scan` has begun."""
        self._check_not_begun()
        self._observers.append(see)

    def need_messages_of(self, topic: str) -> None:
        """Has `end_of`, `position` and `message` know of `topic`. Raises `RuntimeError` once `scan`
        has begun."""
        self._check_not_begun()
        self._unqueued.setdefault(topic, {})

    def scan(self) -> Iterator[None]:
        """Goes through the log, in steps; the questions below may be asked then."""
        self._began = True
        store, end = self._store, self.end
        for count, head in enumerate(store.records(min(end, store.dispatched_offset)), 1):
            if head.physical_offset >= end:
                self._count_gone(head)
                for see in self._observers:
                    yield from see(head) or ()
            elif head.topic in self._unqueued:
                unqueued = self._unqueued[head.topic].setdefault(head.queue_id, {})
                unqueued[head.queue_offset] = head.physical_offset
            if count % _STEP == 0:
                yield

    def _check_not_begun(self) -> None:
        if self._began:
            raise RuntimeError(
                "register before the log is gone through, not in the steps of rewind"
            )

    def _count_gone(self, head: RecordHead) -> None:
        for topic, queue_id, offset in self._store.places_of(head):
            self._gone.setdefault((topic, queue_id), offset)
            self._counts[topic, queue_id] = self._counts.get((topic, queue_id), 0) + 1

    def first_gone(self, topic: str, queue_id: int) -> int | None:
        """Returns the offset at which a queue ends once the log is cut; None where it loses
        nothing."""
        return self._gone.get((topic, queue_id))

    def end_of(self, topic: str, queue_id: int) -> int:
        """Returns where a queue ends once the log is cut; of a topic whose messages are needed."""
        first = self.first_gone(topic, queue_id)
        if first is not None:
            return first
        known = self._store.max_queue_offset(topic, queue_id)
        return max(known, max(self._unqueued[topic].get(queue_id, ()), default=-1) + 1)

    def count_gone(self, topic: str, queue_id: int) -> int:
        """Returns how many messages a queue loses."""
        return self._counts.get((topic, queue_id), 0)

    def position(self, topic: str, queue_id: int, offset: int) -> int | None:
        """Returns where a message stands that stays; None where the log has none at that offset."""
        position = self._unqueued[topic].get(queue_id, {}).get(offset)
        if position is None:
            for unit in self._store.queue_units(topic, queue_id, offset, 1):
                position = unit.position
        return None if position is None or position >= self.end else position

    def message(self, topic: str, queue_id: int, offset: int) -> StoredMessage | None:
        """Returns the message at an offset that stays; None where the log has none."""
        position = self.position(topic, queue_id, offset)
        return None if position is None else self._store.message_at(position)


class DerivedOffsets(NamedTuple):
    """What a part keeps that follows from the log, and how it goes back before that is cut.

    `rewind` is called with the cut before that is gone through, and asks it for what it has to know
    (`observe`, `need_messages_of`; it is no generator function then, whose body would run too late
    for that). The steps that it returns are made afterwards: they find out how far to go back, and
    do so where that needs no file. Where it does, `go_back` follows the steps of all parts, and
    fires once it is done. Then what is kept stands for nothing that goes, and `save` fires once
    that is on stable storage. `pause`, where there is one, is called before all this and fires once
    nothing moves what is kept; `resume` tells that it may go on, since the cut is over or has
    failed.
    """

    name: str
    rewind: Callable[[LogCut], Iterator[None]]
    save: Callable[[], Deferred[Any]]
    pause: Callable[[], Deferred[Any]] | None = None
    resume: Callable[[], object] = lambda: None
    go_back: Callable[[], Deferred[Any]] | None = None


class ILogEnd(Interface):
    """The end of the log, which `Truncation` cuts."""

    store: IMessageStore = Attribute("The store whose log it is.")

    def whole_end() -> Deferred[int]:
        """Makes the log durable and its confirmed part dispatched; fires with the offset behind its
        last whole record. Fails with what the disk or the store refuses."""

    def cut(end: int) -> Deferred[None]:
        """Ends log, queues and index at `end`, durably; fails where the store cannot."""


class Truncation:
    """Cuts the log, one cut after the other, by the rule of this module."""

    def __init__(self, log_end: ILogEnd, in_slices: Slices, log_name: str = "") -> None:
        self._log_end = log_end
        self._logger = named(log, log_name)
        self._in_slices = in_slices
        self._work = Serial()
        self._derived: list[DerivedOffsets] = []
        #: Told of the new end once the log was cut.
        self.after_cut = Listeners[int]("the log was cut")

    def register(self, derived: DerivedOffsets) -> None:
        """Has `derived` go back with each cut, behind those that were registered before."""
        self._derived.append(derived)

    def over(self) -> Deferred[None]:
        """Fires once nothing is being cut."""
        return self._work.run(lambda: None)

    def cut(self, end: int) -> Deferred[None]:
        """Ends the log at `end`, where a record must start; durable when it fires. Nothing may be
        appended meanwhile. Fails where a part or the store cannot go back; parts that went back
        before that stay so."""
        return self._work.run(self._cut, end)

    def end_at_whole_record(self) -> Deferred[None]:
        """Makes the log of a former slave one that messages can be appended to: all of it that is
        confirmed is in its queues, and a last record that is not whole is cut off. Fails where that
        cannot be."""
        return self._work.run(self._end_at_whole_record)

    @inlineCallbacks
    def _end_at_whole_record(self) -> Generator[Any, Any, None]:
        end = yield self._log_end.whole_end()
        if end < self._log_end.store.written_offset:
            yield self._cut(end)

    @inlineCallbacks
    def _cut(self, end: int) -> Generator[Any, Any, None]:
        store = self._log_end.store
        gone = store.end_offset - end
        self._logger.info("the log is cut at {end}, {gone} bytes go", end=end, gone=gone)
        paused: list[DerivedOffsets] = []
        try:
            for each in self._derived:
                if each.pause is not None:
                    paused.append(each)
                    yield each.pause()
            yield from self._go_back_and_cut(end)
        finally:
            # Also after a failure: nobody may come to cut again.
            for each in paused:
                each.resume()

    def _go_back_and_cut(self, end: int) -> Generator[Any, Any, None]:
        cut = LogCut(self._log_end.store, end)
        rewinds = [each.rewind(cut) for each in self._derived]
        yield self._in_slices(cut.scan())
        for steps in rewinds:
            yield self._in_slices(steps)
        for each in self._derived:
            if each.go_back is not None:
                yield each.go_back()
        for each in self._derived:
            yield each.save()
        yield self._log_end.cut(end)
        self.after_cut.tell(end)
