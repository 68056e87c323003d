"""Sends that wait until a quorum of the DLedger group has their messages.

Promises: docs/replication.md, "A log in a DLedger group".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from rocketmq_tw.replication.interfaces import IReplicator
from rocketmq_tw.runtime.alarm import Alarm
from rocketmq_tw.runtime.waiters import Waiters
from rocketmq_tw.wire.codes import ResponseCode


class _Waiting(NamedTuple):
    end_offset: int
    deadline: float
    answer: Deferred[int]


@implementer(IReplicator)
class QuorumWaits:
    """Answers a send with SUCCESS once the log is committed up to its end, with SYSTEM_ERROR after
    `limit` seconds or where another member may lead: the message may be there or not, and its
    sender sends it again. `pending` tells how many entries wait for the quorum, of `most` that
    may."""

    def __init__(
        self, clock: IReactorTime, limit: float, pending: Callable[[], int], most: int
    ) -> None:
        self._clock = clock
        self._limit = limit
        self._pending = pending
        self._most = most
        self._committed = 0
        self._waiting: deque[_Waiting] = deque()
        self._expiry = Alarm(clock, self._expire)
        self._idle = Waiters[None]()

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
        self._expiry.set_if_unset(self._limit)
        return answer

    def committed(self, offset: int) -> None:
        """Answers sends up to `offset`, to which the log is committed."""
        self._committed = offset
        waiting = self._waiting
        while waiting and waiting[0].end_offset <= offset:
            waiting.popleft().answer.callback(ResponseCode.SUCCESS)
        self._report_idle()

    def fail_all(self) -> None:
        """Answers all sends that wait with SYSTEM_ERROR, since another member may lead now."""
        waiting, self._waiting = self._waiting, deque()
        for one in waiting:
            one.answer.callback(ResponseCode.SYSTEM_ERROR)
        self._expiry.cancel()
        self._report_idle()

    def settled(self) -> Deferred[None]:
        """Fires once no send waits."""
        return self._idle.wait() if self._waiting else succeed(None)

    def _expire(self) -> None:
        now = self._clock.seconds()
        waiting = self._waiting
        while waiting and waiting[0].deadline <= now:
            waiting.popleft().answer.callback(ResponseCode.SYSTEM_ERROR)
        if waiting:
            self._expiry.set(max(0.001, waiting[0].deadline - now))
        self._report_idle()

    def _report_idle(self) -> None:
        if not self._waiting:
            self._idle.fire(None)
