"""Sends that wait until a quorum of the DLedger group has their messages.

Promises: docs/replication.md, "A log in a DLedger group".
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from rocketmq_tw.replication.interfaces import IReplicator
from rocketmq_tw.runtime.deadlines import Deadlines
from rocketmq_tw.runtime.waiters import Waiters
from rocketmq_tw.wire.codes import ResponseCode


@implementer(IReplicator)
class QuorumWaits:
    """Answers a send with SUCCESS once the log is committed up to its end, with SYSTEM_ERROR after
    `limit` seconds or where another member may lead: the message may be there or not, and its
    sender sends it again. `pending` tells how many entries wait for the quorum, of `most` that
    may."""

    def __init__(
        self, clock: IReactorTime, limit: float, pending: Callable[[], int], most: int
    ) -> None:
        self._pending = pending
        self._most = most
        self._committed = 0
        #: Answers, with the end of what each waits for.
        self._waiting = Deadlines[Deferred[int], int](clock, limit, self._expired)
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
        self._waiting.add(answer, end_offset)
        return answer

    def committed(self, offset: int) -> None:
        """Answers sends up to `offset`, to which the log is committed."""
        self._committed = offset
        while (first := self._waiting.first()) and first[1] <= offset:
            answer, _ = first
            self._waiting.take(answer)
            answer.callback(ResponseCode.SUCCESS)
        self._report_idle()

    def fail_all(self) -> None:
        """Answers all sends that wait with SYSTEM_ERROR, since another member may lead now."""
        for answer, _ in self._waiting.take_all():
            answer.callback(ResponseCode.SYSTEM_ERROR)
        self._report_idle()

    def settled(self) -> Deferred[None]:
        """Fires once no send waits."""
        return self._idle.wait() if self._waiting else succeed(None)

    def _expired(self, answer: Deferred[int], _: int) -> None:
        answer.callback(ResponseCode.SYSTEM_ERROR)
        self._report_idle()

    def _report_idle(self) -> None:
        if not self._waiting:
            self._idle.fire(None)
