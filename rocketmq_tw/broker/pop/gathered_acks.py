"""Acknowledgements of one check point that come together are stored as one message.

A consumer is done with most messages of a pop at about the same time, and stock's clients send a
request for each. The revive topic has one record for those of a reactor turn, the `bAck` that a
batch acknowledgement is stored as (docs/formats/pop.md).
"""

from __future__ import annotations

from collections.abc import Hashable

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rocketmq_tw.broker.pop.check_points import ReviveLog
from rocketmq_tw.broker.writing.sink import PutResult
from rocketmq_tw.runtime.turns import IReactorTurns
from rocketmq_tw.runtime.waiters import fire_all
from rocketmq_tw.wire.bodies.pop import AckMsg, BatchAckMsg

#: Messages of one record; a pop gives 32.
MOST_MESSAGES = 128


class _Gathered:
    """Acknowledgements of one check point; `stored` fire once they are stored."""

    __slots__ = ("acks", "revive_queue_id", "stored")

    def __init__(self, revive_queue_id: int) -> None:
        self.revive_queue_id = revive_queue_id
        self.acks: list[AckMsg] = []
        self.stored: list[Deferred[PutResult]] = []

    def as_one(self) -> AckMsg:
        """Returns one acknowledgement of all messages."""
        first = self.acks[0]
        if len(self.acks) == 1:
            return first
        return BatchAckMsg(
            ack_offset=-1,
            ack_offsets=[ack.ack_offset for ack in self.acks],
            broker_name=first.broker_name,
            group=first.group,
            pop_time=first.pop_time,
            queue_id=first.queue_id,
            start_offset=first.start_offset,
            topic=first.topic,
        )


class GatheredAcks:
    """Gathers the acknowledgements of a reactor turn and puts them into `revive_log` at its end."""

    def __init__(self, revive_log: ReviveLog, turns: IReactorTurns) -> None:
        self._revive_log = revive_log
        self._turns = turns
        #: By revive queue and all that names the check point.
        self._gathered: dict[Hashable, _Gathered] = {}

    def put(self, ack: AckMsg, revive_queue_id: int) -> Deferred[PutResult]:
        """Stores the acknowledgement of one message; fires and fails as `ReviveLog.put_ack`."""
        if not self._gathered:
            # Written and flushed with all else of the turn, where that goes into one log.
            last = self._revive_log.put_last(self._store_all)
            last.addErrback(lambda _: self._turns.at_turn_end(self._store_all))
        key = (
            revive_queue_id,
            ack.topic,
            ack.group,
            ack.queue_id,
            ack.start_offset,
            ack.pop_time,
            ack.broker_name,
        )
        gathered = self._gathered.get(key)
        if gathered is None:
            gathered = self._gathered[key] = _Gathered(revive_queue_id)
        gathered.acks.append(ack)
        stored: Deferred[PutResult] = Deferred()
        gathered.stored.append(stored)
        if len(gathered.acks) == MOST_MESSAGES:
            self._store(self._gathered.pop(key))
        return stored

    def _store_all(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for of_one in gathered.values():
            self._store(of_one)

    def _store(self, gathered: _Gathered) -> None:
        def ended(result: PutResult | Failure) -> None:
            for _ in fire_all(gathered.stored, result):
                pass

        self._revive_log.put_ack(gathered.as_one(), gathered.revive_queue_id).addBoth(ended)
