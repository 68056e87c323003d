"""Senders that wait until a quorum has their messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from zope.interface import implementer

from rocketmq_tw.replication.interfaces import IReplicator
from rocketmq_tw.wire.codes import ResponseCode


class _Waiting(NamedTuple):
    end_offset: int
    deadline: float
    answer: Deferred[int]


@implementer(IReplicator)
class QuorumWaits:
    """Answers SUCCESS once the log is committed up to where somebody waits, SYSTEM_ERROR after
    `limit` seconds or where another member may lead: the message may be there or not, and its
    sender sends it again. `pending` tells how many entries wait, of `most` that may."""

    def __init__(
        self, clock: IReactorTime, limit: float, pending: Callable[[], int], most: int
    ) -> None:
        self._clock = clock
        self._limit = limit
        self._pending = pending
        self._most = most
        self._committed = 0
        self._waiting: deque[_Waiting] = deque()
        self._timer: IDelayedCall | None = None
        self._idle: list[Deferred[None]] = []

    def refusal(self) -> str:
        """See `IReplicator`."""
        if self._pending() > self._most:
            return f"over {self._most} messages wait for a quorum of the DLedger group"
        return ""

    def wait(self, end_offset: int) -> Deferred[int]:
        """See `IReplicator`; asked with ascending offsets."""
        if end_offset <= self._committed:
            return succeed(ResponseCode.SUCCESS)
        answer: Deferred[int] = Deferred()
        deadline = self._clock.seconds() + self._limit
        self._waiting.append(_Waiting(end_offset, deadline, answer))
        if self._timer is None:
            self._timer = self._clock.callLater(self._limit, self._expire)
        return answer

    def committed(self, offset: int) -> None:
        """The log is committed up to `offset`."""
        self._committed = offset
        waiting = self._waiting
        while waiting and waiting[0].end_offset <= offset:
            waiting.popleft().answer.callback(ResponseCode.SUCCESS)
        self._report_idle()

    def fail_all(self) -> None:
        """Another member may lead now."""
        waiting, self._waiting = self._waiting, deque()
        for one in waiting:
            one.answer.callback(ResponseCode.SYSTEM_ERROR)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._report_idle()

    def settled(self) -> Deferred[None]:
        """Fires once nobody waits."""
        idle: Deferred[None] = Deferred()
        self._idle.append(idle)
        self._report_idle()
        return idle

    def _expire(self) -> None:
        self._timer = None
        now = self._clock.seconds()
        waiting = self._waiting
        while waiting and waiting[0].deadline <= now:
            waiting.popleft().answer.callback(ResponseCode.SYSTEM_ERROR)
        if waiting:
            delay = max(0.001, waiting[0].deadline - now)
            self._timer = self._clock.callLater(delay, self._expire)
        self._report_idle()

    def _report_idle(self) -> None:
        if not self._waiting:
            idle, self._idle = self._idle, []
            for one in idle:
                one.callback(None)
