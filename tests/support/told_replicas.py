"""Replicas of a broker in memory that say their word when the test does."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import implementer

from rocketmq_tw.replication.interfaces import IReplicator
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.broker import BrokerInMemory

#: What replicas and the disk say, and what is answered where SUCCESS has to hold.
TOLD_AS_SAFE = [
    (ResponseCode.SUCCESS, ResponseCode.SUCCESS),
    (ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.SUCCESS),
    (ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SYSTEM_ERROR),
    (ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.SYSTEM_ERROR),
]


@implementer(IReplicator)
class ToldReplicas:
    """What waits for them does so until `say`."""

    def __init__(self) -> None:
        self.waiting: list[Deferred[int]] = []
        self.why_not = ""

    def refusal(self) -> str:
        return self.why_not

    def wait(self, end_offset: int) -> Deferred[int]:
        self.waiting.append(Deferred())
        return self.waiting[-1]

    def say(self, code: int) -> None:
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each.callback(code)


def answer_by(broker: BrokerInMemory, request: RemotingCommand, code: int) -> RemotingCommand:
    """The answer to a request that waits for replicas, once they have said `code`."""
    former, replicas = broker.commit.replicator, ToldReplicas()
    broker.commit.replicator = replicas
    try:
        result: Any = broker.request(request)
        assert result is None, "it waits"
        broker.clock.advance(0)
        while replicas.waiting:
            replicas.say(code)
            broker.clock.advance(0)
    finally:
        broker.commit.replicator = former
    (answer,) = [reply for reply in broker.peer.replies if reply.opaque == request.opaque]
    return answer
