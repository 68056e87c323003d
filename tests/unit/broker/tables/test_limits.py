"""What requests put into tables for good is limited, in number and in size."""

from __future__ import annotations

from typing import Any

import pytest

from rocketmq_tw.broker.tables.changes import MAX_ENTRY_BYTES
from rocketmq_tw.broker.tables.groups import table as groups
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.tables.topics import queue_mappings
from rocketmq_tw.broker.tables.topics import table as topics
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.groups import (
    SimpleSubscriptionData,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
)
from rocketmq_tw.wire.bodies.topics import (
    CreateTopicListBody,
    LogicQueueMappingItem,
    TopicConfig,
    TopicQueueMappingDetail,
)
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.broker import BrokerInMemory

TOPIC = RequestCode.UPDATE_AND_CREATE_TOPIC
TOPICS = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST
STATIC = RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC
GROUP = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
GROUPS = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST


@pytest.fixture
def broker() -> BrokerInMemory:
    return BrokerInMemory()


def change(broker: BrokerInMemory, code: RequestCode, name: str, text: str = "") -> RemotingCommand:
    """The answer to a request that makes or changes an entry with a text of this length."""
    fields = {
        "topic": name,
        "defaultTopic": "TBW102",
        "readQueueNums": "1",
        "writeQueueNums": "1",
        "perm": "6",
        "topicFilterType": text or "SINGLE_TAG",
        "order": "false",
    }
    subscriptions = [SimpleSubscriptionData(topic="T", expression=text)]
    group = SubscriptionGroupConfig(group_name=name, subscription_data_set=subscriptions)
    topic = TopicConfig(topic_name=name, topic_filter_type=text)
    bodies: dict[RequestCode, Any] = {
        TOPICS: CreateTopicListBody(topic_config_list=[topic]),
        STATIC: mapping(broker, name),
        GROUP: group,
        GROUPS: SubscriptionGroupList(group_config_list=[group]),
    }
    body = encode_body(bodies[code]) if code in bodies else b""
    answer = broker.request(RemotingCommand(code, ext_fields=fields, body=body))
    assert answer is not None
    return answer


def mapping(broker: BrokerInMemory, name: str, queue: int = 0) -> TopicQueueMappingDetail:
    """One logic queue that this broker leads."""
    bname = broker.config.broker_name
    item = LogicQueueMappingItem(bname=bname, queue_id=queue)
    return TopicQueueMappingDetail(
        topic=name, bname=bname, total_queues=1, hosted_queues={queue: [item]}
    )


def test_no_request_makes_more_topics_than_there_is_room_for(
    broker: BrokerInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "MAX_ENTRIES", len(broker.topics.all()) + 1)
    assert change(broker, TOPIC, "First").code == ResponseCode.SUCCESS
    for code in (TOPIC, TOPICS, STATIC):
        answer = change(broker, code, "Second")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "deleteTopic" in (answer.remark or "")
        assert "Second" not in broker.topics
        assert broker.broker[Tables].mappings.get("Second") is None
        assert change(broker, code, "First").code == ResponseCode.SUCCESS


def test_no_request_makes_more_groups_than_there_is_room_for(
    broker: BrokerInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "MAX_ENTRIES", len(broker.groups.all()) + 1)
    assert change(broker, GROUP, "First").code == ResponseCode.SUCCESS
    for code in (GROUP, GROUPS):
        answer = change(broker, code, "Second")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "deleteSubGroup" in (answer.remark or "")
        assert "Second" not in broker.groups
        assert change(broker, code, "First").code == ResponseCode.SUCCESS


def test_no_request_makes_more_static_topics_than_name_servers_take(
    broker: BrokerInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_mappings, "MAX_MAPPINGS", 1)
    assert change(broker, STATIC, "First").code == ResponseCode.SUCCESS
    answer = change(broker, STATIC, "Second")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "deleteTopic" in (answer.remark or "")
    assert change(broker, STATIC, "First").code == ResponseCode.SUCCESS


@pytest.mark.parametrize("code", [TOPIC, TOPICS, GROUP, GROUPS])
def test_no_entry_is_larger_than_any_needs_to_be(broker: BrokerInMemory, code: RequestCode) -> None:
    table = broker.topics if code in (TOPIC, TOPICS) else broker.groups
    assert change(broker, code, "Large", "x" * (MAX_ENTRY_BYTES - 1_000)).code == 0
    before = table.all()["Large"]
    for name in ("Large", "New"):
        answer = change(broker, code, name, "x" * MAX_ENTRY_BYTES)
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert "shorten" in (answer.remark or "")
    assert table.all()["Large"] is before
    assert "New" not in table


def test_a_body_that_is_too_long_for_a_group_is_not_read(broker: BrokerInMemory) -> None:
    body = b"{" + b" " * 5 * MAX_ENTRY_BYTES
    answer = broker.request(RemotingCommand(GROUP, body=body))
    assert answer is not None and answer.code == ResponseCode.INVALID_PARAMETER
    assert "leave out" in (answer.remark or "")


def test_a_mapping_that_grows_by_each_request_ends_at_a_limit(
    broker: BrokerInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_mappings, "MAX_LIST_BYTES", 1_000)
    answers = []
    for queue in range(20):
        fields = {"topic": "T", "readQueueNums": "20", "writeQueueNums": "20", "perm": "6"}
        fields |= {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "order": "false"}
        body = encode_body(mapping(broker, "T", queue))
        request = RemotingCommand(STATIC, ext_fields=fields | {"force": "true"}, body=body)
        answer = broker.request(request)
        assert answer is not None
        answers.append(answer.code)
    assert answers[0] == ResponseCode.SUCCESS
    assert answers[-1] == ResponseCode.INVALID_PARAMETER
    kept = broker.broker[Tables].mappings.get("T")
    assert kept is not None and len(kept.hosted_queues) == answers.count(ResponseCode.SUCCESS)
