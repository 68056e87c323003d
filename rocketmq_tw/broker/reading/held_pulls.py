"""Pulls that are held: each for a message of its queue, or until its time is up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rocketmq_tw.broker.reading.held_requests import ANY_QUEUE, HeldRequest, HeldRequests
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.runtime.slices import InSlices
from rocketmq_tw.store.interface import Arrived, IMessageStore, MessageFilter

#: Seconds between two checks of held pulls, as in stock: a pull is held at most this much longer.
CHECK_INTERVAL = 5.0
#: Pulls held at once; one more is answered at once, without messages.
DEFAULT_LIMIT = 100_000
#: Queues, or requests of one queue, that one step of the check looks at.
_STEP = 500

#: Topic and queue id, which may be `ANY_QUEUE`.
PulledQueue = tuple[str, int]


class HeldPulls(HeldRequests[PulledQueue]):
    """Holds pulls up to `limit`; `arrived` is a listener to arrivals in the store.
    `elapsed_ms` tells milliseconds of a clock that is never set."""

    def __init__(
        self,
        store: IMessageStore,
        config: BrokerConfig,
        elapsed_ms: Callable[[], int],
        in_slices: InSlices,
        limit: int = DEFAULT_LIMIT,
    ) -> None:
        super().__init__(in_slices)
        self._store = store
        self._config = config
        self._elapsed_ms = elapsed_ms
        self._limit = limit

    def check_interval(self) -> float:
        """Seconds until the next `check`, as the configuration has it now."""
        if self._config.long_polling_enable:
            return CHECK_INTERVAL
        return min(self._config.short_polling_time_mills / 1000, CHECK_INTERVAL)

    def hold(
        self,
        queue: PulledQueue,
        offset: int,
        wanted: MessageFilter,
        timeout_ms: int,
        peer: IPeer,
        resume: Callable[[], None],
    ) -> bool:
        """Calls `resume` once the queue has a message from `offset` on that may be wanted, or
        after `timeout_ms`; never where the peer is lost before. False: too many are held.

        For `ANY_QUEUE`, with offset 0, a message of any queue of the topic that comes from now on
        will do."""
        if self._count >= self._limit:
            return False
        if not self._config.long_polling_enable:
            timeout_ms = min(timeout_ms, self._config.short_polling_time_mills)
        deadline = self._elapsed_ms() + timeout_ms
        self._add(HeldRequest(queue, wanted, deadline, peer, resume, offset))
        return True

    def arrived(self, runs: Sequence[Arrived]) -> None:
        """Wakes the pulls that may want one of these messages, which became readable."""
        if self._count:
            for run in runs:
                self._wake_for((run.topic, run.queue_id), run)
                self._wake_for((run.topic, ANY_QUEUE), run)

    def check(self) -> Iterator[None]:
        """Resumes pulls whose time is up, and those for which a message came that no arrival told
        of; a step for some of them, between which pulls may come and go."""
        for number, queue in enumerate(list(self._queues), 1):
            waiting = self._queues.get(queue, {})
            now = self._elapsed_ms()
            # For any queue only arrivals count.
            end = 0 if queue[1] == ANY_QUEUE else self._store.max_queue_offset(*queue)
            due = [held for held in waiting if end > held.offset or now >= held.deadline_ms]
            for start in range(0, len(due), _STEP):
                if start:
                    self.resume_woken()
                    yield
                self._wake([held for held in due[start : start + _STEP] if held in waiting])
            if number % _STEP == 0:
                self.resume_woken()
                yield
        self.resume_woken()
