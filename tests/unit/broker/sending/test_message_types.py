"""Topics that take one kind of message only, with `enableTopicMessageTypeCheck`."""

from __future__ import annotations

from typing import Any

import pytest

from rocketmq_tw.message.batch import BatchedMessage, encode_batch
from rocketmq_tw.message.types import message_type
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.codes import ResponseCode
from tests.support.broker import BrokerInMemory, ok

#: What makes a message one of a kind.
KINDS: dict[str, dict[str, str]] = {
    "NORMAL": {"TAGS": "a"},
    "FIFO": {"__SHARDINGKEY": "order-7"},
    "DELAY": {"DELAY": "3"},
    "TRANSACTION": {"TRAN_MSG": "true", "PGROUP": "P"},
}


def broker_with(kind: str | None, *, check: bool = True) -> BrokerInMemory:
    broker = BrokerInMemory(
        broker={"enable_topic_message_type_check": check, "enable_mixed_message_type": True}
    )
    attributes = None if kind is None else {"+message.type": kind}
    broker.topics.update(TopicConfig(topic_name="Topic", attributes=attributes))
    return broker


@pytest.mark.parametrize("sent", KINDS)
@pytest.mark.parametrize("wanted", KINDS)
def test_a_topic_takes_its_kind_only(wanted: str, sent: str) -> None:
    broker = broker_with(wanted)
    answer = broker.send(properties=KINDS[sent])
    assert answer is not None
    if wanted == sent:
        ok(answer)
        return
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert answer.remark is not None
    assert f"takes {wanted} messages, this one is {sent}" in answer.remark


@pytest.mark.parametrize("sent", KINDS)
@pytest.mark.parametrize("wanted", ["MIXED", "UNSPECIFIED", None])
def test_others_take_all(wanted: str | None, sent: str) -> None:
    ok(broker_with(wanted).send(properties=KINDS[sent]))


@pytest.mark.parametrize("sent", KINDS)
def test_as_brokers_of_stock_it_looks_at_no_kind_by_default(sent: str) -> None:
    ok(broker_with("FIFO", check=False).send(properties=KINDS[sent]))


@pytest.mark.parametrize("name", ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
def test_a_time_of_its_own_is_a_delay(name: str) -> None:
    assert message_type({name: "1", "__SHARDINGKEY": "k"}) == "DELAY"


def test_a_batch_is_of_one_kind() -> None:
    body = encode_batch([BatchedMessage(flag=0, body=b"x", properties=b"")])
    given: dict[str, Any] = {"batch": True, "body": body}
    ok(broker_with("NORMAL").send(**given))
    answer = broker_with("FIFO").send(**given)
    assert answer is not None and answer.code == ResponseCode.MESSAGE_ILLEGAL


def test_what_another_broker_passes_on_is_taken() -> None:
    ok(broker_with("FIFO").send(properties={"TRANSFER_FLAG": "true"}))
