"""A consumer gives a message back: later again, or never again."""

from __future__ import annotations

from typing import Any

import pytest

from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.send import ConsumerSendMsgBackRequestHeader
from tests.support.broker import BrokerInMemory, ok
from tests.support.told_replicas import TOLD_AS_SAFE, answer_by

SCHEDULE = "SCHEDULE_TOPIC_XXXX"


def giving_back(offset: int = 0, **fields: Any) -> RemotingCommand:
    header = ConsumerSendMsgBackRequestHeader(
        **{"offset": offset, "group": "G", "delay_level": 0} | fields
    )
    return RemotingCommand.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)


def give_back(plane: BrokerInMemory, offset: int = 0, **fields: Any) -> RemotingCommand | None:
    return plane.request(giving_back(offset, **fields))


def test_the_first_time_waits_for_level_3() -> None:
    plane = BrokerInMemory()
    sent = ok(plane.send(b"x", properties={"TAGS": "a"}, flag=9))
    assert ok(give_back(plane)) == {}
    (message,) = plane.consume(SCHEDULE, 2)
    assert (message.body, message.flag, message.reconsume_times) == (b"x", 9, 1)
    assert message.tags == "a"
    wanted = {
        "RETRY_TOPIC": "Topic",
        "ORIGIN_MESSAGE_ID": sent["msgId"],
        "REAL_TOPIC": "%RETRY%G",
        "REAL_QID": "0",
        "DELAY": "3",
        "WAIT": "false",
    }
    assert wanted.items() <= message.properties.items()
    topic = plane.topics.get("%RETRY%G")
    assert topic is not None and (topic.perm, topic.read_queue_nums) == (6, 1)


def test_the_origin_is_kept_over_several_rounds() -> None:
    plane = BrokerInMemory()
    sent = ok(plane.send(b"x"))
    offset = 0
    for times in range(1, 4):
        ok(give_back(plane, offset))
        plane.clock.pump([0.5] * 150)
        message = plane.consume("%RETRY%G")[-1]
        assert message.reconsume_times == times
        assert message.properties["RETRY_TOPIC"] == "Topic"
        assert message.properties["ORIGIN_MESSAGE_ID"] == sent["msgId"]
        offset = message.physical_offset
    assert len(plane.consume("%RETRY%G")) == 3


def test_the_consumer_may_choose_the_level() -> None:
    plane = BrokerInMemory()
    plane.send()
    ok(give_back(plane, delay_level=1))
    assert len(plane.consume(SCHEDULE, 0)) == 1


@pytest.mark.parametrize("given", [{"delay_level": -1}, {"max_reconsume_times": 0}])
def test_dead(given: dict[str, int]) -> None:
    plane = BrokerInMemory()
    plane.send(b"x")
    ok(give_back(plane, **given))
    (message,) = plane.consume("%DLQ%G")
    assert (message.body, message.reconsume_times) == (b"x", 1)
    assert message.properties["RETRY_TOPIC"] == "Topic"
    assert message.properties["DELAY"] == "0"


def test_after_as_many_times_as_the_group_allows() -> None:
    plane = BrokerInMemory()
    plane.groups.update(SubscriptionGroupConfig(group_name="G", retry_max_times=1))
    plane.send()
    ok(give_back(plane))
    plane.clock.pump([0.5] * 30)
    ok(give_back(plane, plane.consume("%RETRY%G")[0].physical_offset))
    assert len(plane.consume("%DLQ%G")) == 1


def test_a_group_without_retry_queues_is_done_with_it() -> None:
    plane = BrokerInMemory()
    plane.groups.update(SubscriptionGroupConfig(group_name="G", retry_queue_nums=0))
    plane.send()
    end = plane.store.end_offset
    ok(give_back(plane))
    assert plane.store.end_offset == end


class TestRefusals:
    def test_no_such_message(self) -> None:
        plane = BrokerInMemory()
        plane.send()
        response = give_back(plane, 7)
        assert response is not None and response.code == ResponseCode.SYSTEM_ERROR
        assert "7" in str(response.remark)

    def test_no_such_group(self) -> None:
        plane = BrokerInMemory(broker={"auto_create_subscription_group": False})
        response = give_back(plane)
        assert response is not None
        assert response.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST

    def test_a_broker_that_may_not_be_written_to(self) -> None:
        response = give_back(BrokerInMemory(broker={"broker_permission": 4}))
        assert response is not None and response.code == ResponseCode.NO_PERMISSION

    def test_a_retry_topic_that_may_not_be_written_to(self) -> None:
        plane = BrokerInMemory()
        plane.add_topic("%RETRY%G", perm=4)
        response = give_back(plane)
        assert response is not None and response.code == ResponseCode.NO_PERMISSION

    def test_a_store_that_takes_nothing(self) -> None:
        plane = BrokerInMemory()
        plane.send()
        plane.commit._stopped = True
        response = give_back(plane)
        assert response is not None and response.code == ResponseCode.SERVICE_NOT_AVAILABLE


@pytest.mark.parametrize(("code", "told"), TOLD_AS_SAFE)
def test_it_is_safe_when_the_consumer_goes_on(code: ResponseCode, told: ResponseCode) -> None:
    """The next master would have no retry of a message that the group has passed."""
    plane = BrokerInMemory()
    ok(plane.send(b"x"))
    assert answer_by(plane, giving_back(), code).code == told
    assert len(plane.consume(SCHEDULE, 2)) == 1
