"""Pops and notifications that are held: for a message of their group, or until their time is up.

A message wakes one request of a group that waits for its queue and one that waits for any queue,
not all: each of them tries again, and is held again where another one was faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from itertools import islice

from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.broker.pop.check_points import PoppedQueue
from rocketmq_tw.broker.reading.held_requests import ANY_QUEUE, HeldRequest, HeldRequests
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.message.names import RETRY_PREFIX, pop_retry_topic
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.runtime.alarm import LONGEST_WAIT, Alarm
from rocketmq_tw.runtime.lazy_heap import LazyHeap
from rocketmq_tw.runtime.slices import InSlices
from rocketmq_tw.store.interface import Arrived, MessageFilter
from rocketmq_tw.wire.headers.pop import NotificationRequestHeader, PopMessageRequestHeader

#: Milliseconds before its deadline at which a request is answered, as in stock.
EARLY_MS = 50
#: Deadlines that are looked at in one turn of the reactor.
_STEP = 500

#: Topic and group.
PoppedBy = tuple[str, str]


class HoldResult(Enum):
    """What became of a request that was to be held."""

    HELD = "held"
    FULL = "full"
    TIMED_OUT = "timed out"


class HeldPops(HeldRequests[PoppedQueue]):
    """Holds requests by topic, group and queue; `arrived` is a listener to arrivals in the store.
    `now_ms` is the time of day, in which clients say how long they wait, `elapsed_ms` a time that
    is never set, by which they are held. As in stock the oldest
    pops are woken, but the newest notifications, since a client may have given up an older one."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: IReactorTime,
        now_ms: Callable[[], int],
        elapsed_ms: Callable[[], int],
        in_slices: InSlices,
        *,
        newest_first: bool = False,
    ) -> None:
        super().__init__(in_slices, newest_first=newest_first)
        self._config = config
        self._clock = clock
        self._now_ms = now_ms
        self._elapsed_ms = elapsed_ms
        #: A topic, or a retry topic -> groups that want its messages, and the queues for which
        #: their requests wait.
        self._groups_of: dict[str, dict[PoppedBy, dict[int, None]]] = {}
        #: By the time to answer.
        self._deadlines: LazyHeap[HeldRequest[PoppedQueue]] = LazyHeap(self._is_held)
        self._alarm = Alarm(clock, self._resume_due, LONGEST_WAIT)
        self._soon = Alarm(clock, self.resume_woken)

    @property
    def deadlines(self) -> int:
        """How many deadlines are kept, also of requests that are not held any more."""
        return len(self._deadlines)

    def end_of(self, header: PopMessageRequestHeader | NotificationRequestHeader) -> int:
        """Returns when a request that has just come waits no more, in `elapsed_ms`, also once it
        was woken. One without a time, or with one to come by a client's clock that is ahead, waits
        from now on."""
        waited_ms = max(self._now_ms() - header.born_time, 0) if header.born_time else 0
        return self._elapsed_ms() + header.poll_time - waited_ms

    def hold(
        self,
        queue: PoppedQueue,
        end_ms: int,
        wanted: MessageFilter,
        peer: IPeer,
        resume: Callable[[], None],
    ) -> HoldResult:
        """Calls `resume` once there may be a message, or `EARLY_MS` before `end_ms`; never where
        the peer is lost before."""
        if self._count >= self._config.max_pop_polling_size:
            return HoldResult.FULL
        due_ms = end_ms - EARLY_MS
        if due_ms <= self._elapsed_ms():
            return HoldResult.TIMED_OUT
        if self.count(queue) > self._config.pop_polling_size:
            return HoldResult.FULL
        held = HeldRequest(queue, wanted, due_ms, peer, resume)
        self._add(held)
        self._deadlines.push(due_ms, held)
        self._set_alarm()
        return HoldResult.HELD

    def arrived(self, runs: Sequence[Arrived]) -> None:
        """Wakes of each group as many requests for any queue as there are messages, and as many
        for their queue."""
        if not self._count:
            return
        for run in runs:
            groups = self._groups_of.get(run.topic)
            if groups is None:
                continue
            is_retry = run.topic.startswith(RETRY_PREFIX)
            for (topic, group), queue_ids in list(groups.items()):
                # The messages of a retry topic are not filtered.
                wanted = None if is_retry else run
                self._wake_for((topic, group, ANY_QUEUE), wanted, run.count)
                if is_retry:
                    self._wake_for_retries(topic, group, queue_ids, run.count)
                else:
                    self._wake_for((topic, group, run.queue_id), wanted, run.count)

    def _wake_for_retries(
        self, topic: str, group: str, queue_ids: Iterable[int], most: int
    ) -> None:
        """Wakes up to `most` requests for some queue: each of them may get retried messages, whose
        topic has queues of its own."""
        for queue_id in list(islice(queue_ids, most + 1)):
            if queue_id != ANY_QUEUE and most > 0:
                most -= self._wake_for((topic, group, queue_id), None, most)

    def wake(self, queue: PoppedQueue) -> None:
        """Wakes one request that waits for any queue of the topic, and one that waits for `queue`:
        the group may pop more of it."""
        if not self._count:
            return
        topic, group, queue_id = queue
        self._wake_for((topic, group, ANY_QUEUE), None, 1)
        if queue_id != ANY_QUEUE:
            self._wake_for(queue, None, 1)
        if self._resumed:
            self._soon.set_if_unset(0)

    def _never_goes_on(self, held: HeldRequest[PoppedQueue]) -> None:
        # What it was woken for is there still, and no other one was.
        self.wake(held.queue)

    def _queue_added(self, queue: PoppedQueue) -> None:
        for topic in _topics_of(queue):
            groups = self._groups_of.setdefault(topic, {})
            groups.setdefault(queue[:2], {})[queue[2]] = None

    def _queue_removed(self, queue: PoppedQueue) -> None:
        for topic in _topics_of(queue):
            groups = self._groups_of[topic]
            del groups[queue[:2]][queue[2]]
            if not groups[queue[:2]]:
                del groups[queue[:2]]
                if not groups:
                    del self._groups_of[topic]

    def _set_alarm(self) -> None:
        due = self._deadlines.front
        if due is not None:
            seconds = due / 1000 - self._clock.seconds()
            self._alarm.set_no_later(seconds)

    def _resume_due(self) -> None:
        """Resumes requests whose time is up, some of them in each turn of the reactor."""
        now = self._elapsed_ms()
        for _ in range(_STEP):
            held = self._deadlines.take(now)
            if held is None:
                break
            if self._is_held(held):
                self._wake([held])
        self._set_alarm()
        self.resume_woken()


def _topics_of(queue: PoppedQueue) -> tuple[str, ...]:
    """Returns the topics whose messages a pop of this queue may get."""
    topic, group, _ = queue
    return (topic, pop_retry_topic(topic, group), pop_retry_topic(topic, group, 2))
