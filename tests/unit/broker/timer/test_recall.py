"""Request 370: a message that waits is taken back by its handle."""

from __future__ import annotations

from typing import Any

import pytest

from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.timer.part import Timer
from rocketmq_tw.message.ids import RecallHandle, decode_recall_handle
from rocketmq_tw.message.properties import parse_properties
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.send import RecallMessageRequestHeader
from tests.support.broker import BrokerInMemory
from tests.support.stores import START_MS
from tests.support.timers import bodies, delivered, let, timed
from tests.support.told_replicas import TOLD_AS_SAFE, answer_by

ENABLED = {"recall_message_enable": True}


@pytest.fixture
def broker() -> BrokerInMemory:
    return BrokerInMemory(broker=ENABLED)


def recalling(handle: str | None, topic: str = "Topic") -> RemotingCommand:
    header = RecallMessageRequestHeader(topic=topic, recall_handle=handle, producer_group="P")
    return RemotingCommand.request(RequestCode.RECALL_MESSAGE, header)


def recall(broker: BrokerInMemory, handle: str | None, topic: str = "Topic") -> RemotingCommand:
    answer = broker.request(recalling(handle, topic))
    assert answer is not None
    return answer


def handle_of(broker: BrokerInMemory, **changes: str) -> str:
    handle = RecallHandle("Topic", broker.config.broker_name, str(START_MS + 5001), "u1")
    return handle._replace(**changes).encode()


def test_a_send_answers_with_stocks_handle(broker: BrokerInMemory) -> None:
    answer = timed(broker, b"one", TIMER_DELAY_MS=1500, UNIQ_KEY="u1")
    handle = decode_recall_handle(answer.ext_fields["recallHandle"])
    # The slot that it waits for, and a millisecond.
    assert handle == ("Topic", "broker-a", str(START_MS + 1001), "u1")
    assert "recallHandle" not in timed(broker, b"two", DELAY=1).ext_fields
    assert "recallHandle" not in timed(broker, b"three").ext_fields


@pytest.mark.parametrize("delay", [2, 2.5, 700, 100_000])
def test_it_is_not_delivered_and_others_are(broker: BrokerInMemory, delay: float) -> None:
    ms = int(delay * 1000)
    timed(broker, b"before", TIMER_DELAY_MS=ms)
    answer = timed(broker, b"gone", TIMER_DELAY_MS=ms, UNIQ_KEY="u1")
    timed(broker, b"after", TIMER_DELAY_MS=ms, UNIQ_KEY="u2")
    taken = recall(broker, answer.ext_fields["recallHandle"])
    assert (taken.code, taken.ext_fields["msgId"]) == (ResponseCode.SUCCESS, "u1")
    let(broker, delay + 2, 0.01 if delay < 3 else delay / 100)
    assert bodies(broker) == [b"before", b"after"]
    assert broker.broker[Timer].books.counts.of("Topic") == 0


def test_at_the_last_moment(broker: BrokerInMemory) -> None:
    """A message whose recall was answered is never delivered, whatever waits for the disk."""
    answer = timed(broker, b"gone", TIMER_DELIVER_MS=START_MS + 2001, UNIQ_KEY="u1")
    let(broker, 2)
    assert recall(broker, answer.ext_fields["recallHandle"]).code == ResponseCode.SUCCESS
    let(broker, 2)
    assert bodies(broker) == []


def test_too_late(broker: BrokerInMemory) -> None:
    answer = timed(broker, b"one", TIMER_DELIVER_MS=START_MS + 2500, UNIQ_KEY="u1")
    let(broker, 2.01)
    assert recall(broker, answer.ext_fields["recallHandle"]).code == ResponseCode.ILLEGAL_OPERATION
    let(broker, 2)
    assert bodies(broker) == [b"one"]


def test_one_that_rolls(broker: BrokerInMemory) -> None:
    broker = BrokerInMemory(broker=ENABLED, timer_roll_window_slot=8)
    timed(broker, b"stays", TIMER_DELAY_SEC=30, UNIQ_KEY="u2")
    answer = timed(broker, b"gone", TIMER_DELAY_SEC=30, UNIQ_KEY="u1")
    let(broker, 11, 0.1)
    assert recall(broker, answer.ext_fields["recallHandle"]).code == ResponseCode.SUCCESS
    let(broker, 25, 0.1)
    assert bodies(broker) == [b"stays"]


def test_what_takes_it_back_is_stored_as_stock_stores_it(broker: BrokerInMemory) -> None:
    timed(broker, b"one", TIMER_DELAY_SEC=5, UNIQ_KEY="u1")
    recall(broker, handle_of(broker, timestamp=str(START_MS + 4001)))
    _, stored = delivered(broker, "rmq_sys_wheel_timer")
    assert stored.body == b"0"
    assert parse_properties(stored.properties) == {
        "TAGS": "_RECALL_TAG_",
        "TIMER_DEL_UNIQKEY": "Topic+u1",
        "UNIQ_KEY": "u1",
        "TIMER_DELIVER_MS": str(START_MS + 4001),
        "BORN_TIMESTAMP": str(START_MS),
        "PGROUP": "P",
        "TIMER_OUT_MS": str(START_MS + 4000),
        "REAL_TOPIC": "Topic",
        "REAL_QID": "0",
    }


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"handle": None}, ResponseCode.ILLEGAL_OPERATION),
        ({"handle": "!!!"}, ResponseCode.ILLEGAL_OPERATION),
        ({"topic": "Other"}, ResponseCode.ILLEGAL_OPERATION),
        ({"broker_name": "broker-b"}, ResponseCode.ILLEGAL_OPERATION),
        ({"timestamp": str(START_MS)}, ResponseCode.ILLEGAL_OPERATION),
        ({"timestamp": str(START_MS + 3 * 86_400_000)}, ResponseCode.ILLEGAL_OPERATION),
        ({"timestamp": "abc"}, ResponseCode.ILLEGAL_OPERATION),
    ],
)
def test_what_is_refused(
    broker: BrokerInMemory, changes: dict[str, Any], code: ResponseCode
) -> None:
    timed(broker, b"one", TIMER_DELAY_SEC=5, UNIQ_KEY="u1")
    handle = changes["handle"] if "handle" in changes else handle_of(broker, **changes)
    assert recall(broker, handle).code == code
    let(broker, 6)
    assert bodies(broker) == [b"one"]


def test_a_topic_that_is_none(broker: BrokerInMemory) -> None:
    assert recall(broker, handle_of(broker), "None").code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({}, ResponseCode.NO_PERMISSION),
        (ENABLED | {"start_accept_send_request_time_stamp": START_MS + 1}, 14),
        (
            ENABLED | {"broker_permission": 4, "allow_recall_when_broker_not_writeable": False},
            ResponseCode.SERVICE_NOT_AVAILABLE,
        ),
    ],
)
def test_where_nothing_is_taken_back(settings: dict[str, Any], code: int) -> None:
    broker = BrokerInMemory(broker=settings)
    assert recall(broker, handle_of(broker)).code == code


def test_a_slave_takes_nothing_back(broker: BrokerInMemory) -> None:
    broker.become(RoleState(Role.SLAVE, 1))
    assert recall(broker, handle_of(broker)).code == ResponseCode.SLAVE_NOT_AVAILABLE


def test_a_slave_that_takes_nothing_back_anyway_says_so_first() -> None:
    """As stock, which asks for its key before its role."""
    broker = BrokerInMemory()
    broker.become(RoleState(Role.SLAVE, 1))
    assert recall(broker, handle_of(broker)).code == ResponseCode.NO_PERMISSION


def test_twice(broker: BrokerInMemory) -> None:
    answer = timed(broker, b"gone", TIMER_DELAY_SEC=3, UNIQ_KEY="u1")
    timed(broker, b"stays", TIMER_DELAY_SEC=3)
    for _ in range(2):
        taken = recall(broker, answer.ext_fields["recallHandle"])
        assert (taken.code, taken.ext_fields["msgId"]) == (ResponseCode.SUCCESS, "u1")
    let(broker, 5)
    assert bodies(broker) == [b"stays"]


def test_one_that_nobody_sent(broker: BrokerInMemory) -> None:
    """Nobody looks whether it waits: there may be no message at all for the time."""
    timed(broker, b"stays", TIMER_DELAY_SEC=5, UNIQ_KEY="u2")
    taken = recall(broker, handle_of(broker))
    assert (taken.code, taken.ext_fields["msgId"]) == (ResponseCode.SUCCESS, "u1")
    let(broker, 7)
    assert bodies(broker) == [b"stays"]


def test_the_same_id_in_another_topic_stays(broker: BrokerInMemory) -> None:
    timed(broker, b"stays", TIMER_DELAY_SEC=5, UNIQ_KEY="u1")
    broker.add_topic("Other")
    assert recall(broker, handle_of(broker, topic="Other"), "Other").code == 0
    let(broker, 7)
    assert bodies(broker) == [b"stays"]


@pytest.mark.parametrize("permission", [0, 2, 4])
def test_the_permission_of_the_topic_is_not_asked(broker: BrokerInMemory, permission: int) -> None:
    """As in stock: what was sent when it was another may be taken back."""
    answer = timed(broker, b"gone", TIMER_DELAY_SEC=3, UNIQ_KEY="u1")
    broker.add_topic("Topic", perm=permission)
    assert recall(broker, answer.ext_fields["recallHandle"]).code == ResponseCode.SUCCESS
    let(broker, 5)
    assert bodies(broker) == []


def test_what_cannot_be_stored(broker: BrokerInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, "the disk is full")

    answer = timed(broker, b"stays", TIMER_DELAY_SEC=3, UNIQ_KEY="u1")
    monkeypatch.setattr(broker.commit, "append", refuse)
    refused = recall(broker, answer.ext_fields["recallHandle"])
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "the disk is full" in (refused.remark or "")


@pytest.mark.parametrize(("code", "told"), TOLD_AS_SAFE)
def test_what_is_told_holds(broker: BrokerInMemory, code: ResponseCode, told: ResponseCode) -> None:
    """The next master would deliver what it was not told to take back."""
    sent = timed(broker, b"gone", TIMER_DELAY_SEC=5, UNIQ_KEY="u1")
    timed(broker, b"other", TIMER_DELAY_SEC=5, UNIQ_KEY="u2")
    handle = sent.ext_fields["recallHandle"]
    assert answer_by(broker, recalling(handle), code).code == told
    assert recall(broker, handle).code == ResponseCode.SUCCESS
    let(broker, 7, 0.1)
    assert bodies(broker) == [b"other"]
    assert broker.broker[Timer].books.counts.of("Topic") == 0
