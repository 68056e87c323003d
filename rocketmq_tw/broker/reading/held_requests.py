"""Requests that found nothing and are held until a message may have come or their time is up: what
pulls, pops and notifications have in common.

One message may wake any number of requests, and each of them reads again. So quick ones are resumed
at once while they are not many, all others a few in each turn of the reactor. Stock's
`PullRequestHoldService` and `PopLongPollingService`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

from twisted.logger import Logger

from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.runtime.slices import InSlices
from rocketmq_tw.store.interface import Arrived, MessageFilter

#: Stands for every queue of a topic.
ANY_QUEUE = -1
#: Requests with quick filters that are resumed in one go.
RESUMED_AT_ONCE = 200
#: Of so many messages that arrive together, a filter by properties is asked about each.
MOST_ASKED = 256

#: (a filter, number of the first message of a run) -> whether it may want one from there on.
Answers = dict[tuple[MessageFilter, int], bool]

Q = TypeVar("Q", bound=Hashable)

log = Logger()


#: Units of a run that a filter by tags is asked about without keeping the answer for equal filters.
QUICKLY_ASKED = 8


class HeldRequest(Generic[Q]):
    """A request that waits in `queue` for what `wanted` wants from `offset` on, up to the time
    `deadline_ms` of the clock of whatever holds it."""

    __slots__ = ("deadline_ms", "offset", "peer", "queue", "resume", "wanted")

    def __init__(
        self,
        queue: Q,
        wanted: MessageFilter,
        deadline_ms: int,
        peer: IPeer,
        resume: Callable[[], None],
        offset: int = 0,
    ) -> None:
        self.queue = queue
        # Messages that arrive are asked by their properties. Without the part that differs, the
        # filters of many requests are equal and are asked once.
        self.wanted = wanted if wanted.by_extra is None else wanted._replace(by_extra=None)
        self.deadline_ms = deadline_ms
        self.peer = peer
        self.resume = resume
        self.offset = offset

    def may_want(self, run: Arrived, answers: Answers) -> bool:
        """Returns whether it may want one of the messages of `run`; `answers` has what was found
        out about this run before."""
        first = max(self.offset - run.queue_offset, 0)
        if first >= run.count:
            return False
        if self.wanted.by_properties is None and (
            self.wanted.by_unit is None or run.count - first <= QUICKLY_ASKED
        ):
            return may_want(self.wanted, run, first)
        asked = (self.wanted, first)
        answer = answers.get(asked)
        if answer is None:
            answer = answers[asked] = may_want(self.wanted, run, first)
        return answer

    def go_on(self) -> None:
        """Calls `resume`, unless the peer is gone."""
        if self.peer.connected:
            try:
                self.resume()
            except Exception:
                log.failure("answering a held request of {peer} failed", peer=self.peer.address)


def may_want(wanted: MessageFilter, run: Arrived, first: int = 0) -> bool:
    """Returns whether `wanted` may leave in a message of `run`, from the one with number `first`
    on."""
    by_unit, by_properties, weight, _ = wanted
    if by_properties is None:
        return by_unit is None or any(map(by_unit, run.tags_codes[first:]))
    if weight > 1 or run.count - first > MOST_ASKED:
        # To ask about all takes too long here: the read looks at some and is held again.
        return True
    return any(
        (by_unit is None or by_unit(run.tags_codes[number]))
        and by_properties(run.properties_of(number))
        for number in range(first, run.count)
    )


class ResumeQueue:
    """Requests that were woken. They are resumed by `go_on`, in the order in which they were added,
    each once its peer keeps up; but quick ones pass by those with slow filters."""

    def __init__(
        self,
        in_slices: InSlices,
        go_on: Callable[[HeldRequest[Any]], None] = HeldRequest.go_on,
    ) -> None:
        self._in_slices = in_slices
        self._go_on = go_on
        self._woken: list[HeldRequest[Any]] = []
        #: Those that are too slow, or too many, for one turn of the reactor.
        self._postponed: deque[HeldRequest[Any]] = deque()
        self._is_under_way = False

    def __bool__(self) -> bool:
        """Returns whether `resume` has something to do."""
        return bool(self._woken)

    def add(self, woken: Iterable[HeldRequest[Any]]) -> None:
        """Has these resumed by the next call of `resume`."""
        self._woken += woken

    def resume(self) -> None:
        """Resumes what was added, and what is added meanwhile."""
        resumed = 0
        while self._woken:
            woken, self._woken = self._woken, []
            for held in woken:
                if held.wanted.weight > 1 or resumed >= RESUMED_AT_ONCE:
                    self._postponed.append(held)
                else:
                    resumed += 1
                    held.peer.when_ready(partial(self._go_on, held))
        if self._postponed and not self._is_under_way:
            self._is_under_way = True
            self._in_slices(self._resume_steps())

    def resume_all(self) -> None:
        """Resumes all now, since nothing may be resumed once a role is over."""
        woken, self._woken = [*self._postponed, *self._woken], []
        self._postponed.clear()
        for held in woken:
            held.peer.when_ready(partial(self._go_on, held))

    def _resume_steps(self) -> Iterator[None]:
        try:
            while self._postponed:
                held = self._postponed.popleft()
                held.peer.when_ready(partial(self._go_on, held))
                yield
        finally:
            self._is_under_way = False


class HeldRequests(Generic[Q]):
    """Requests by the queue for which they wait. A lost peer takes its own along.

    Where not all that wait for a queue are woken, the oldest are, or else the newest. A subclass
    says how many are held at most, which of them an arrival wakes, and when their time is up. What
    is woken is resumed by `resume_woken`, which the dispatcher calls at the end of its turn, so
    that a request that reads again finds all that the turn brought.
    """

    def __init__(self, in_slices: InSlices, *, newest_first: bool = False) -> None:
        self._newest_first = newest_first
        #: Dictionaries as sets that keep their order.
        self._queues: dict[Q, dict[HeldRequest[Q], None]] = {}
        #: Also those that were woken and have not gone on yet.
        self._of_peer: dict[IPeer, set[HeldRequest[Q]]] = {}
        self._resumed = ResumeQueue(in_slices, self._go_on)
        #: Resumes what was woken, as fast as each peer takes the answers; where these are many or
        #: have slow filters, others are served in between. No method, since each turn calls it.
        self.resume_woken = self._resumed.resume
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def count(self, queue: Q) -> int:
        """Returns how many requests wait for `queue`."""
        return len(self._queues.get(queue, ()))

    def resume_all(self) -> None:
        """Resumes everything now: the broker stops, or its role is over."""
        self.wake_all()
        self._resumed.resume_all()

    def wake_all(self) -> None:
        """Has everything resumed by the next `resume_woken`."""
        for waiting in list(self._queues.values()):
            self._wake(list(waiting))

    def _add(self, held: HeldRequest[Q]) -> None:
        waiting = self._queues.get(held.queue)
        if waiting is None:
            waiting = self._queues[held.queue] = {}
            self._queue_added(held.queue)
        waiting[held] = None
        self._count += 1
        of_peer = self._of_peer.get(held.peer)
        if of_peer is not None:
            of_peer.add(held)
            return
        self._of_peer[held.peer] = {held}
        # Last: a peer that was lost meanwhile takes the request along at once.
        held.peer.when_lost(self._peer_lost)

    def _is_held(self, held: HeldRequest[Q]) -> bool:
        return held in self._queues.get(held.queue, ())

    def _wake(self, woken: Collection[HeldRequest[Q]]) -> None:
        """Has these, all of which are held, resumed by the next `resume_woken`."""
        for held in woken:
            self._forget(held)
        self._resumed.add(woken)

    def _wake_for(self, queue: Q, run: Arrived | None, most: int | None = None) -> int:
        """Wakes up to `most` requests, or all, that wait for `queue` and may want one of `run`,
        whatever they want where that is None; returns how many."""
        waiting = self._queues.get(queue)
        if waiting is None:
            return 0
        woken: list[HeldRequest[Q]] = []
        answers: Answers = {}
        for held in reversed(waiting) if self._newest_first else waiting:
            if most is not None and len(woken) >= most:
                break
            if run is None or held.may_want(run, answers):
                woken.append(held)
        if woken:
            self._wake(woken)
        return len(woken)

    def _forget(self, held: HeldRequest[Q]) -> None:
        waiting = self._queues[held.queue]
        del waiting[held]
        self._count -= 1
        if not waiting:
            del self._queues[held.queue]
            self._queue_removed(held.queue)

    def _go_on(self, held: HeldRequest[Q]) -> None:
        of_peer = self._of_peer.get(held.peer)
        if of_peer is not None:
            of_peer.discard(held)
        held.go_on()

    def _peer_lost(self, peer: IPeer) -> None:
        woken = []
        for held in self._of_peer.pop(peer, ()):
            if self._is_held(held):
                self._forget(held)
            else:
                woken.append(held)
        for held in woken:
            self._never_goes_on(held)

    def _never_goes_on(self, held: HeldRequest[Q]) -> None:
        """Notes that the peer of a request was lost after it was woken, and before it went on; for
        subclasses that do not wake all."""

    def _queue_added(self, queue: Q) -> None:
        """Notes that a first request waits for `queue`; for subclasses with books of their own."""

    def _queue_removed(self, queue: Q) -> None:
        """Notes that no request waits for `queue` any more."""
