"""Messages that somebody sends to the timer's topic himself, as stock lets anybody do."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from rocketmq_tw.message.names import NOT_FOR_CLIENTS, TIMER_TOPIC
from rocketmq_tw.message.properties import join_properties
from rocketmq_tw.wire.codes import ResponseCode
from tests.support.broker import BrokerInMemory
from tests.support.stores import START_MS
from tests.support.timers import bodies, delivered, let, timed


def send_to_timer(broker: BrokerInMemory, body: bytes, properties: dict[str, Any]) -> None:
    own = {name: str(value) for name, value in properties.items()}
    answer = broker.send(body, topic=TIMER_TOPIC, properties=own)
    assert answer is not None and answer.code == ResponseCode.SUCCESS


def asks(topic: str = "Topic", queue_id: object = 0, out: object = 5, **more: Any) -> Any:
    return {"REAL_TOPIC": topic, "REAL_QID": queue_id, "TIMER_OUT_MS": out, **more}


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"TIMER_DELAY_SEC": 5},
        {"REAL_TOPIC": "Topic"},
        asks(out="abc"),
        asks(out=1 << 70),
        asks(queue_id="abc"),
        asks(queue_id=-1),
        asks(queue_id=1 << 40),
        asks(topic=""),
        asks(topic="../../etc"),
        asks(topic="x" * 300),
        asks(topic=TIMER_TOPIC),
        asks(topic=TIMER_TOPIC, out=START_MS + 3000),
        asks(out=5, TIMER_DEL_UNIQKEY="Topic+u1"),
        *(asks(topic=topic) for topic in sorted(NOT_FOR_CLIENTS)),
    ],
)
def test_what_makes_no_sense_goes_nowhere(properties: dict[str, Any]) -> None:
    broker = BrokerInMemory()
    timed(broker, b"before", TIMER_DELAY_SEC=3, UNIQ_KEY="u1")
    send_to_timer(broker, b"garbled", properties)
    timed(broker, b"behind", TIMER_DELAY_SEC=3)
    let(broker, 10, 0.1)
    assert bodies(broker) == [b"before", b"behind"]
    topics = Counter(head.topic for head in broker.store.records(0))
    assert topics == {TIMER_TOPIC: 3, "Topic": 2}


@pytest.mark.parametrize(
    "properties",
    [
        asks(out=-(10**18)),
        asks(out=START_MS + 3001),
        asks(TIMER_DELIVER_MS=10**19 - 1),
        asks(TIMER_DELAY_SEC=-(10**19 - 1)),
        asks(TIMER_ROLL_TIMES="abc", TIMER_ENQUEUE_MS="x", TIMER_DEQUEUE_MS="y"),
    ],
)
def test_what_says_where_to_comes_once(properties: dict[str, Any]) -> None:
    broker = BrokerInMemory()
    send_to_timer(broker, b"odd", properties)
    timed(broker, b"behind", TIMER_DELAY_SEC=6)
    let(broker, 10, 0.1)
    assert bodies(broker) == [b"odd", b"behind"]


def test_a_store_whose_wheel_has_one_for_the_timer_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """As stock lets it in."""
    broker = BrokerInMemory()
    timed(broker, b"one", TIMER_DELAY_SEC=3)
    (stored,) = delivered(broker, TIMER_TOPIC)
    properties = join_properties(
        {"REAL_TOPIC": TIMER_TOPIC, "REAL_QID": "0", "TIMER_OUT_MS": str(START_MS + 2000)}
    )
    found = broker.store.message_at

    def changed(offset: int) -> Any:
        message = found(offset)
        if message is not None and message.body == stored.body:
            message.properties, message.parsed = properties, None
        return message

    monkeypatch.setattr(broker.store, "message_at", changed)
    let(broker, 10, 0.1)
    assert len(delivered(broker, TIMER_TOPIC)) == 1
