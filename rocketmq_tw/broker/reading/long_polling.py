"""Reads that found nothing and wait: for a message of their queue, or for their time to end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rocketmq_tw.broker.interfaces import Arrived, IMessageStore, MessageFilter
from rocketmq_tw.broker.reading.waking import HeldRequest, Waking
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.runtime.slices import InSlices

#: Seconds between two looks at what is held, as in stock: a read is held so much longer at most.
CHECK_INTERVAL = 5.0
#: Reads held at once; a read too many is answered at once, with nothing.
DEFAULT_LIMIT = 100_000
#: So many messages that arrive together are asked one by one whether a held read wants them.
FEW_MESSAGES = 256
#: Stands for every queue of a topic.
ANY_QUEUE = -1
#: Queues that one step of the check looks at.
_STEP = 500

#: (a filter, the number of a run's first message asked about) -> may it want one of the run?
_Known = dict[tuple[MessageFilter, int], bool]


def may_want(wanted: MessageFilter, run: Arrived, start: int = 0) -> bool:
    """Whether `wanted` may leave in one of the messages of `run` from number `start` on."""
    by_unit, by_properties, weight, _ = wanted
    if by_properties is None:
        return by_unit is None or any(map(by_unit, run.tags_codes[start:]))
    if weight > 1 or run.count - start > FEW_MESSAGES:
        # To ask all takes too long here: the read looks at some and comes back.
        return True
    return any(
        (by_unit is None or by_unit(run.tags_codes[number]))
        and by_properties(run.properties_of(number))
        for number in range(start, run.count)
    )


class _Held(HeldRequest):
    """One read that waits."""

    __slots__ = ("deadline_ms", "offset", "queue")

    def __init__(
        self,
        queue: tuple[str, int],
        offset: int,
        wanted: MessageFilter,
        deadline_ms: int,
        peer: IPeer,
        resume: Callable[[], None],
    ) -> None:
        super().__init__(wanted, peer, resume)
        self.queue = queue
        self.offset = offset
        self.deadline_ms = deadline_ms

    def wants(self, run: Arrived, known: _Known) -> bool:
        """Whether one of them may match; `known` has what was found out of this run before."""
        in_front = max(self.offset - run.queue_offset, 0)
        if in_front >= run.count:
            return False
        if self.wanted.by_properties is None:
            return may_want(self.wanted, run, in_front)
        asked = (self.wanted, in_front)
        wants = known.get(asked)
        if wants is None:
            wants = known[asked] = may_want(self.wanted, run, in_front)
        return wants


class LongPolling:
    """Holds reads by queue.

    `arrived` is the store's arrival callback. What it wakes is resumed by `wake_ready`, which
    whoever dispatches calls at the end of its turn: a read then sees all that the turn brought.
    """

    def __init__(
        self,
        store: IMessageStore,
        config: BrokerConfig,
        now_ms: Callable[[], int],
        in_slices: InSlices,
        limit: int = DEFAULT_LIMIT,
    ) -> None:
        self._store = store
        self._config = config
        self._now_ms = now_ms
        self._limit = limit
        #: Sets that keep their order.
        self._queues: dict[tuple[str, int], dict[_Held, None]] = {}
        self._peers: dict[IPeer, set[_Held]] = {}
        self._waking = Waking(in_slices)
        self._held = 0

    def __len__(self) -> int:
        return self._held

    def check_interval(self) -> float:
        """Seconds until the next `check`, as the configuration has it now."""
        if self._config.long_polling_enable:
            return CHECK_INTERVAL
        return self._config.short_polling_time_mills / 1000

    def hold(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        wanted: MessageFilter,
        timeout_ms: int,
        peer: IPeer,
        resume: Callable[[], None],
    ) -> bool:
        """Calls `resume` once there is a message from `offset` on that may be wanted, or after
        `timeout_ms`; never where the peer is lost before. False: too many are held already.

        `queue_id` may be ANY_QUEUE, with offset 0: then a message of any queue of the topic will do
        that comes from now on."""
        if self._held >= self._limit:
            return False
        if not self._config.long_polling_enable:
            timeout_ms = self._config.short_polling_time_mills
        queue = (topic, queue_id)
        held = _Held(queue, offset, wanted, self._now_ms() + timeout_ms, peer, resume)
        self._queues.setdefault(queue, {})[held] = None
        of_peer = self._peers.get(peer)
        if of_peer is None:
            of_peer = self._peers[peer] = set()
            peer.when_lost(self._peer_lost)
        of_peer.add(held)
        self._held += 1
        return True

    def arrived(self, runs: Sequence[Arrived]) -> None:
        """These became readable: whoever waits for one of them is ready."""
        if not self._held:
            return
        for run in runs:
            for queue in ((run.topic, run.queue_id), (run.topic, ANY_QUEUE)):
                waiting = self._queues.get(queue)
                if waiting is not None:
                    known: _Known = {}
                    self._take(queue, [held for held in waiting if held.wants(run, known)])

    def wake_ready(self) -> None:
        """Resumes what arrivals woke, as fast as each peer takes it: one message may wake any
        number of reads. What is much, or has a slow filter, lets others in between."""
        self._waking.resume()

    def resume_all(self) -> None:
        """Resumes everything: the broker stops, or its role changed."""
        for queue, waiting in list(self._queues.items()):
            self._take(queue, list(waiting))
        self._waking.resume_all()

    def check(self) -> Iterator[None]:
        """Resumes what has waited its time, and what a message came for that no arrival told; a
        step for some queues, between which reads may come and go."""
        for number, queue in enumerate(list(self._queues), 1):
            waiting = self._queues.get(queue, {})
            now = self._now_ms()
            # Of any queue only arrivals tell.
            end = 0 if queue[1] == ANY_QUEUE else self._store.max_queue_offset(*queue)
            due = [held for held in waiting if end > held.offset or now >= held.deadline_ms]
            for start in range(0, len(due), _STEP):
                if start:
                    self.wake_ready()
                    yield
                self._take(queue, [held for held in due[start : start + _STEP] if held in waiting])
            if number % _STEP == 0:
                self.wake_ready()
                yield
        self.wake_ready()

    def _take(self, queue: tuple[str, int], taken: list[_Held]) -> None:
        if not taken:
            return
        for held in taken:
            self._forget(queue, held)
            self._peers[held.peer].discard(held)
        self._waking.add(taken)

    def _forget(self, queue: tuple[str, int], held: _Held) -> None:
        waiting = self._queues[queue]
        del waiting[held]
        self._held -= 1
        if not waiting:
            del self._queues[queue]

    def _peer_lost(self, peer: IPeer) -> None:
        for held in self._peers.pop(peer, ()):
            self._forget(held.queue, held)
