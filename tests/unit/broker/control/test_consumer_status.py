"""Request 223: what connected consumers say of their offsets."""

from __future__ import annotations

from typing import Any

import pytest

from rocketmq_tw.broker.control import consumer_status
from rocketmq_tw.wire.bodies.base import decode_body, encode_body
from rocketmq_tw.wire.bodies.queues import ConsumerStatusBody, MessageQueue
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from tests.support.broker import BrokerInMemory
from tests.support.network import FakePeer

CODE = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS


def status_of(queues: int, offset: int = 7) -> bytes:
    table = {
        MessageQueue(topic="T", broker_name="broker-a", queue_id=number): offset
        for number in range(queues)
    }
    return encode_body(ConsumerStatusBody(message_queue_table=table))


def with_consumers(count: int) -> tuple[BrokerInMemory, list[FakePeer]]:
    broker = BrokerInMemory()
    peers = [FakePeer(f"127.0.0.1:{20_000 + number}") for number in range(count)]
    for number, peer in enumerate(peers):
        broker.heartbeat(f"c{number}", peer)
    return broker, peers


def ask(broker: BrokerInMemory, **fields: str) -> list[Any]:
    """Where the answer, or why there is none, will stand."""
    answered: list[Any] = []
    fields = {"topic": "T", "group": "G"} | fields
    request = RemotingCommand(CODE, ext_fields=fields)
    broker.handlers[CODE](request, FakePeer()).addBoth(answered.append)
    return answered


def tell(peer: FakePeer, body: bytes) -> None:
    command, answer = peer.requests.pop()
    assert command.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
    assert command.ext_fields["group"] == "G"
    answer.callback(command.response(body=body))


def test_each_consumer_is_asked_and_shown_by_its_id() -> None:
    broker, peers = with_consumers(3)
    answered = ask(broker)
    tell(peers[0], status_of(2))
    tell(peers[1], b"{what is this")
    assert not answered
    peers[2].lose()
    _, answer = peers[2].requests.pop()
    answer.errback(ConnectionError("gone"))
    table = decode_body(ConsumerStatusBody, answered[0].body).consumer_table
    assert {client: len(queues) for client, queues in table.items()} == {"c0": 2}
    answered = ask(broker, clientAddr="c1")
    assert not peers[0].requests
    tell(peers[1], status_of(1, 9))
    table = decode_body(ConsumerStatusBody, answered[0].body).consumer_table
    assert [list(queues.values()) for queues in table.values()] == [[9]]


def test_who_is_not_connected_cannot_be_asked() -> None:
    broker, _ = with_consumers(1)
    with pytest.raises(RequestError, match="no consumer of group Other is connected"):
        ask(broker, group="Other")


def test_many_consumers_are_asked_bit_by_bit() -> None:
    broker, peers = with_consumers(1_000)
    answered = ask(broker)
    assert 0 < sum(map(len, (peer.requests for peer in peers))) <= 200
    for _ in range(1_000):
        broker.clock.advance(0.001)
    for peer in peers:
        tell(peer, b"")
    assert answered[0].code == ResponseCode.SUCCESS


def test_what_is_large_is_read_in_a_thread() -> None:
    broker, peers = with_consumers(2)
    broker.threads.eager = False
    answered = ask(broker)
    tell(peers[0], status_of(5_000))
    tell(peers[1], status_of(1))
    assert not answered
    broker.threads.run()
    table = decode_body(ConsumerStatusBody, answered[0].body).consumer_table
    assert {client: len(queues) for client, queues in table.items()} == {"c0": 5_000, "c1": 1}


def test_what_consumers_may_tell_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_status, "MAX_STATUS_BYTES", 2_000)
    monkeypatch.setattr(consumer_status, "MAX_ALL_BYTES", 3_000)
    broker, peers = with_consumers(3)
    answered = ask(broker)
    tell(peers[0], b" " * 2_001)
    tell(peers[1], status_of(1))
    tell(peers[2], status_of(2))
    table = decode_body(ConsumerStatusBody, answered[0].body).consumer_table
    assert sorted(table) == ["c1", "c2"]
    answered = ask(broker)
    for peer in peers:
        tell(peer, status_of(20))
    assert "ask one client at a time" in answered[0].value.remark
