"""Sends to brokers in memory over the wire, and what was answered."""

from __future__ import annotations

from functools import partial
from typing import Any

from twisted.internet.testing import MemoryReactorClock

from rocketmq_tw.net.client import RemotingClient
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.broker import BrokerInMemory

#: Queues of the topic that is sent to, in turn.
QUEUES = 4
#: Seconds; short beside the periods of brokers.
TURN = 0.05


class NotedSends:
    """Sends messages with the bodies 1, 2, ... to `Topic`, and notes what is answered."""

    def __init__(self, clock: MemoryReactorClock, client: RemotingClient) -> None:
        self.clock = clock
        self.client = client
        self.sent = 0
        self.acknowledged: set[bytes] = set()
        #: Of each answer; -1 where none came.
        self.codes: list[int] = []

    @property
    def refused(self) -> int:
        return len(self.codes) - self.codes.count(ResponseCode.SUCCESS)

    def settle(self, seconds: float = 1.0) -> None:
        for _ in range(round(seconds / TURN)):
            self.clock.advance(TURN)

    def send_to(self, broker: BrokerInMemory, count: int = 1) -> None:
        for _ in range(count):
            self.sent += 1
            body = b"%d" % self.sent
            request = broker.send_request(body, queue_id=self.sent % QUEUES)
            answered = self.client.request(broker.address, request, 5)
            answered.addBoth(partial(self._note, body))

    def _note(self, body: bytes, response: Any) -> None:
        self.codes.append(response.code if isinstance(response, RemotingCommand) else -1)
        if self.codes[-1] == ResponseCode.SUCCESS:
            self.acknowledged.add(body)


def bodies_of(broker: BrokerInMemory) -> list[bytes]:
    """What a consumer of `Topic` reads of all its queues."""
    return [message.body for queue in range(QUEUES) for message in broker.consume("Topic", queue)]


def log_of(broker: BrokerInMemory, start: int = 0) -> bytes:
    """The commit log from an offset to its end."""
    store, pieces, at = broker.store, [], start
    while at < store.written_offset:
        pieces.append(store.read_log(at, 1 << 20))
        at += len(pieces[-1])
    return b"".join(pieces)
