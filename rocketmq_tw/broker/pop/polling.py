"""Pops and notifications that found nothing and wait: for a message, or for their time to end.

They wait by topic, group and queue, oldest first. A message wakes as many of a group as it may
serve, not all: whoever is woken tries again, and waits again where another one was faster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from heapq import heappop, heappush
from itertools import count

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from rocketmq_tw.broker.interfaces import Arrived, MessageFilter
from rocketmq_tw.broker.pop.positions import PoppedQueue
from rocketmq_tw.broker.reading.long_polling import ANY_QUEUE, may_want
from rocketmq_tw.broker.reading.waking import HeldRequest, Waking
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.message.names import RETRY_PREFIX, pop_retry_topic
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.runtime.slices import InSlices

#: Milliseconds before its end at which a held request is over, as in stock.
EARLY_MS = 50
#: Held requests that are looked at in one turn because their time is up.
_STEP = 500


class Polling(Enum):
    """What became of a request that was to be held."""

    HELD = "held"
    FULL = "full"
    TIMED_OUT = "timed out"


class _Held(HeldRequest):
    """One request that waits."""

    __slots__ = ("deadline_ms", "queue")

    def __init__(
        self,
        queue: PoppedQueue,
        deadline_ms: int,
        wanted: MessageFilter,
        peer: IPeer,
        resume: Callable[[], None],
    ) -> None:
        super().__init__(wanted, peer, resume)
        self.queue = queue
        self.deadline_ms = deadline_ms


class HeldPops:
    """`arrived` is the store's arrival callback. What it wakes is resumed by `wake_ready`, which
    whoever dispatches calls at the end of its turn. `now_ms` is the time of day, in which clients
    say how long they wait."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: IReactorTime,
        now_ms: Callable[[], int],
        in_slices: InSlices,
    ) -> None:
        self._waking = Waking(in_slices)
        self._config = config
        self._clock = clock
        self._now_ms = now_ms
        #: Sets that keep their order.
        self._queues: dict[PoppedQueue, dict[_Held, None]] = {}
        #: A topic, or a retry topic -> queues whose pops want its messages, and how many do.
        self._topics: dict[str, dict[tuple[str, str], int]] = {}
        self._peers: dict[IPeer, set[_Held]] = {}
        self._by_time: list[tuple[int, int, _Held]] = []
        self._numbers = count()
        self._timer: IDelayedCall | None = None
        self._held = 0

    def __len__(self) -> int:
        return self._held

    def count(self, topic: str, group: str, queue_id: int) -> int:
        """How many requests of a group wait for this queue; -1 stands for any queue."""
        return len(self._queues.get((topic, group, queue_id), ()))

    def hold(
        self,
        queue: PoppedQueue,
        deadline_ms: int,
        wanted: MessageFilter,
        peer: IPeer,
        resume: Callable[[], None],
    ) -> Polling:
        """Calls `resume` once there may be a message, or at `deadline_ms`; never where the peer is
        lost before."""
        if self._held >= self._config.max_pop_polling_size:
            return Polling.FULL
        if self._now_ms() > deadline_ms - EARLY_MS:
            return Polling.TIMED_OUT
        waiting = self._queues.setdefault(queue, {})
        if len(waiting) > self._config.pop_polling_size:
            return Polling.FULL
        held = _Held(queue, deadline_ms, wanted, peer, resume)
        waiting[held] = None
        for topic in self._topics_of(queue):
            groups = self._topics.setdefault(topic, {})
            groups[queue[:2]] = groups.get(queue[:2], 0) + 1
        of_peer = self._peers.get(peer)
        if of_peer is None:
            of_peer = self._peers[peer] = set()
            peer.when_lost(self._peer_lost)
        of_peer.add(held)
        self._held += 1
        heappush(self._by_time, (deadline_ms - EARLY_MS, next(self._numbers), held))
        self._set_timer()
        return Polling.HELD

    def arrived(self, runs: Sequence[Arrived]) -> None:
        """These became readable: of each group, as many are ready as there are messages."""
        if not self._held:
            return
        for run in runs:
            groups = self._topics.get(run.topic)
            if groups is None:
                continue
            # All queues of the group's pops, for its retry topic has queues of its own.
            is_retry = run.topic.startswith(RETRY_PREFIX)
            for topic, group in list(groups):
                left = run.count
                for queue_id in (ANY_QUEUE, run.queue_id):
                    left -= self._take((topic, group, queue_id), left, None if is_retry else run)

    def wake(self, topic: str, group: str, queue_id: int) -> None:
        """There is more for one that waits for this queue, or for any."""
        if not self._held:
            return
        if not self._take((topic, group, ANY_QUEUE), 1, None) and queue_id != ANY_QUEUE:
            self._take((topic, group, queue_id), 1, None)
        if self._waking:
            self._clock.callLater(0, self.wake_ready)

    def wake_ready(self) -> None:
        """Resumes what was woken, as fast as each peer takes it; what is much, or has a slow
        filter, lets others in between."""
        self._waking.resume()

    def resume_all(self) -> None:
        """Resumes everything: the broker stops, or its role changed."""
        for queue, waiting in list(self._queues.items()):
            self._take(queue, len(waiting), None)
        self._waking.resume_all()

    def _topics_of(self, queue: PoppedQueue) -> tuple[str, ...]:
        """Whose messages a pop of this queue may get."""
        topic, group, _ = queue
        return (topic, pop_retry_topic(topic, group), pop_retry_topic(topic, group, 2))

    def _take(self, queue: PoppedQueue, most: int, run: Arrived | None) -> int:
        """Makes up to `most` ready that want one of `run`; returns how many."""
        waiting = self._queues.get(queue)
        if waiting is None:
            return 0
        taken: list[_Held] = []
        #: A filter -> whether it may want one of `run`; those of a group are mostly the same one.
        known: dict[MessageFilter, bool] = {}
        for held in waiting:
            if len(taken) >= most:
                break
            if run is not None:
                wants = known.get(held.wanted)
                if wants is None:
                    wants = known[held.wanted] = may_want(held.wanted, run)
                if not wants:
                    continue
            taken.append(held)
        for held in taken:
            self._forget(held)
            self._peers[held.peer].discard(held)
        self._waking.add(taken)
        return len(taken)

    def _forget(self, held: _Held) -> None:
        waiting = self._queues[held.queue]
        del waiting[held]
        if not waiting:
            del self._queues[held.queue]
        for topic in self._topics_of(held.queue):
            groups = self._topics[topic]
            groups[held.queue[:2]] -= 1
            if not groups[held.queue[:2]]:
                del groups[held.queue[:2]]
                if not groups:
                    del self._topics[topic]
        self._held -= 1

    def _set_timer(self) -> None:
        seconds = max(self._by_time[0][0] - self._now_ms(), 0) / 1000
        if self._timer is not None and self._timer.active():
            if self._timer.getTime() <= self._clock.seconds() + seconds:
                return
            self._timer.cancel()
        self._timer = self._clock.callLater(min(seconds, 1.0), self._look)

    def _look(self) -> None:
        """Resumes what has waited its time, some of them in each turn; looks at least once a
        second, for the time may be set."""
        now, looked = self._now_ms(), 0
        while self._by_time and looked < _STEP:
            looked += 1
            deadline, _, held = self._by_time[0]
            waits = held in self._queues.get(held.queue, ())
            if waits and deadline > now:
                break
            heappop(self._by_time)
            if waits:
                self._forget(held)
                self._peers[held.peer].discard(held)
                self._waking.add([held])
        self._timer = None
        if self._by_time:
            self._set_timer()
        self.wake_ready()

    def _peer_lost(self, peer: IPeer) -> None:
        for held in self._peers.pop(peer, ()):
            self._forget(held)
