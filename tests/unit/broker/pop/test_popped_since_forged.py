"""What anybody sends to the revive topic moves no group after a kill."""

from __future__ import annotations

import pytest

from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.pop import PopCheckPoint, PutBack
from tests.support.broker import BrokerInMemory, ok
from tests.support.killed_pops import HIDDEN_MS, killed, popping, send
from tests.support.network import FakePeer
from tests.support.pops import REVIVE, Popper, drain


def point(broker: BrokerInMemory, **fields: object) -> PopCheckPoint:
    now = broker.now_ms()
    made = {
        "broker_name": "broker-a",
        "group": "G",
        "topic": "Topic",
        "start_offset": 1,
        "offset_diffs": [0, 1],
        "count": 2,
        "invisible_time": HIDDEN_MS,
        "pop_time": now,
        "revive_time": now + HIDDEN_MS,
    }
    return PopCheckPoint(**made | fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("claim", "fields"),
    [
        ("", {}),
        ("1 3 4", {}),
        ("1 x", {}),
        ("3 1", {}),
        ("1 2", {}),
        ("-1 3", {"start_offset": -1}),
        ("1 900000", {"offset_diffs": [0, 700000]}),
        ("1 3", {"broker_name": "broker-b"}),
        ("1 3", {"broker_name": None}),
        ("1 3", {"group": "H"}),
        ("1 3", {"group": None}),
        ("1 3", {"topic": "Other"}),
        ("1 3", {"queue_id": 7}),
        ("2 3", {"start_offset": 2, "offset_diffs": [0]}),
        ("1 3", {}),
        # The second message was popped by nobody.
        ("1 3", {"offset_diffs": [0], "count": 1}),
    ],
)
def test_a_check_point_that_anybody_sent_moves_nobody(claim: str, fields: dict) -> None:
    broker, _ = popping()
    send(broker, "a", "b")
    made = point(broker, **fields)
    properties = {"TAGS": "ck"} | ({"POP_CLAIM": claim} if claim else {})
    ok(broker.send(encode_body(made), topic=REVIVE, properties=properties))
    again = killed(broker)
    popped = Popper(again, invisible_time=60_000).bodies()
    assert popped[:2] == [b"a", b"b"]


def test_a_mark_that_cannot_be_read_keeps_all_where_they_are() -> None:
    broker, popper = popping()
    send(broker, "a")
    popper.ack(*popper.pop())
    request = broker.send_request(b"{", topic=REVIVE, properties={"TAGS": "back"})
    # As if the broker itself had written it.
    ok(broker.request(request, FakePeer("127.0.0.1:10911")))
    assert drain(killed(broker)) == [b"a"]


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        encode_body(PutBack(group="G")),
        encode_body(PutBack(group="G", topic="Topic", offset=0)),
        encode_body(PutBack(group="G", topic="Topic", offset=-7)),
    ],
)
def test_a_mark_that_anybody_sent_moves_nobody(body: bytes) -> None:
    broker, popper = popping()
    send(broker, "a")
    popper.ack(*popper.pop())
    ok(broker.send(body, topic=REVIVE, properties={"TAGS": "back"}))
    assert drain(killed(broker)) == []
