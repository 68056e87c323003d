"""Timed messages of a broker in memory."""

from __future__ import annotations

from typing import Any

from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.record import decode_records
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.broker import BrokerInMemory


def timed(broker: BrokerInMemory, body: bytes, queue_id: int = 0, **properties: Any) -> Any:
    """The answer to a send with properties."""
    values = {name: str(value) for name, value in properties.items()}
    answer = broker.send(body, properties=values, queue_id=queue_id)
    assert isinstance(answer, RemotingCommand)
    return answer


def let(broker: BrokerInMemory, seconds: float, step: float = 0.01) -> None:
    """So many seconds pass, in steps; what is to be done at the end is done."""
    for _ in range(round(seconds / step)):
        broker.clock.advance(step)
    for _ in range(5):
        broker.clock.advance(0)


def delivered(
    broker: BrokerInMemory, topic: str = "Topic", queue_id: int = 0
) -> list[StoredMessage]:
    """What a queue has."""
    found: list[StoredMessage] = []
    while True:
        read = broker.store.read_queue(topic, queue_id, len(found), 1000, 1 << 24)
        if not read.data:
            return found
        found += decode_records(read.data)


def bodies(broker: BrokerInMemory, topic: str = "Topic") -> list[bytes]:
    """What queue 0 has."""
    return [message.body for message in delivered(broker, topic)]
