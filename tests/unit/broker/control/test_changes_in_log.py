"""Each change by an administrator is one line in the broker's log."""

from typing import Any

import pytest
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig, SubscriptionGroupList
from rocketmq_tw.wire.bodies.topics import CreateTopicListBody, TopicConfig
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.broker import BrokerInMemory
from tests.support.network import FakePeer

A_TOPIC = TopicConfig(topic_name="Named")
A_GROUP = SubscriptionGroupConfig(group_name="Named")
RESET = {"topic": "Topic", "group": "Named", "timestamp": "0", "isForce": "true"}
FORBID = {"group": "Named", "topic": "Topic", "readable": "false"}
CLONE = {"srcGroup": "Source", "destGroup": "Named", "topic": "Topic"}


NEW_TOPIC = {
    "topic": "Named",
    "defaultTopic": "TBW102",
    "readQueueNums": "4",
    "writeQueueNums": "4",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
}


@pytest.mark.parametrize(
    "code, fields, body",
    [
        (RequestCode.UPDATE_AND_CREATE_TOPIC, NEW_TOPIC, b""),
        (
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
            {},
            CreateTopicListBody(topic_config_list=[A_TOPIC]),
        ),
        (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Named"}, b""),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, A_GROUP),
        (
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            {},
            SubscriptionGroupList(group_config_list=[A_GROUP]),
        ),
        (RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "Named"}, b""),
        (RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, FORBID, b""),
        (RequestCode.CLONE_GROUP_OFFSET, CLONE, b""),
        (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RESET, b""),
        (RequestCode.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=4"),
        (RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, {}, b""),
        (RequestCode.CLEAN_UNUSED_TOPIC, {}, b""),
        (RequestCode.DELETE_EXPIRED_COMMITLOG, {}, b""),
    ],
    ids=lambda value: value.name if isinstance(value, RequestCode) else "",
)
def test_who_changed_what_is_logged(code: RequestCode, fields: dict[str, str], body: Any) -> None:
    broker = BrokerInMemory()
    broker.add_topic("Topic")
    if code != RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP:
        broker.groups.update(SubscriptionGroupConfig(group_name="Named"))
    data = body if isinstance(body, bytes) else encode_body(body)
    peer = FakePeer()
    with capturedLogs() as events:
        broker.request(RemotingCommand(code, ext_fields=fields, body=data), peer)
    lines = [line for line in map(formatEvent, events) if line and peer.address in line]
    assert len(lines) == 1
    if "Named" in str(fields) + str(body):
        assert "Named" in lines[0]


def test_what_it_was_before_is_logged_too() -> None:
    broker = BrokerInMemory(broker={"auto_create_subscription_group": True})

    def said(code: RequestCode, fields: dict[str, str], body: bytes = b"") -> list[str]:
        with capturedLogs() as events:
            broker.request(RemotingCommand(code, ext_fields=fields, body=body), FakePeer())
        return [line for line in map(formatEvent, events) if line and "was " in line]

    (made,) = said(RequestCode.UPDATE_AND_CREATE_TOPIC, NEW_TOPIC)
    assert "(was not there)" in made
    (changed,) = said(RequestCode.UPDATE_AND_CREATE_TOPIC, NEW_TOPIC | {"perm": "4"})
    before, after = changed.split("(was ")[1], changed.split("(was ")[0]
    assert "perm=6" in before and "perm=4" in after

    def group(tries: int) -> bytes:
        return encode_body(SubscriptionGroupConfig(group_name="Named", retry_max_times=tries))

    (made,) = said(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group(3))
    assert "(was not there)" in made
    (changed,) = said(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group(5))
    before, after = changed.split("(was ")[1], changed.split("(was ")[0]
    assert "retry_max_times=3" in before and "retry_max_times=5" in after
