"""Each change by an administrator is one line in the broker's log."""

from typing import Any

import pytest
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.admin.request_kinds import REQUESTS, Effect, ServerKind
from rocketmq_tw.message.ids import offset_message_id
from rocketmq_tw.net.interfaces import PeerIdentity
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig, SubscriptionGroupList
from rocketmq_tw.wire.bodies.queues import SetMessageRequestModeRequestBody
from rocketmq_tw.wire.bodies.topics import CreateTopicListBody, TopicConfig, TopicQueueMappingDetail
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.broker import BrokerInMemory
from tests.support.network import FakePeer
from tests.support.static_topics import hosting, item
from tests.support.transactions import GIVEN_UP, begin, connect, let

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


STATIC = TopicQueueMappingDetail(
    topic="Named", total_queues=4, bname="broker-a", hosted_queues={0: [item(0, "broker-a")]}
)
POP_MODE = SetMessageRequestModeRequestBody(topic="Topic", consumer_group="Named", mode="POP")
CHANGES: list[tuple[RequestCode, dict[str, str], Any]] = [
    (RequestCode.UPDATE_AND_CREATE_TOPIC, NEW_TOPIC, b""),
    (RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, NEW_TOPIC | {"force": "false"}, STATIC),
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
    (RequestCode.SET_MESSAGE_REQUEST_MODE, {}, POP_MODE),
    (RequestCode.RESET_MASTER_FLUSH_OFFSET, {"masterFlushOffset": "7"}, b""),
    (RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, {}, b"Named=5"),
    (RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, {}, b"Named"),
    (RequestCode.SET_COMMITLOG_READ_MODE, {"READ_AHEAD_MODE": "1"}, b""),
]
#: What clients send all the time, and not administrators alone.
OF_CLIENTS = {
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.RECALL_MESSAGE,
    RequestCode.END_TRANSACTION,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.POP_MESSAGE,
    RequestCode.PEEK_MESSAGE,
    RequestCode.ACK_MESSAGE,
    RequestCode.BATCH_ACK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    RequestCode.NOTIFICATION,
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.UNLOCK_BATCH_MQ,
    RequestCode.QUERY_ASSIGNMENT,
    RequestCode.CHECK_CLIENT_CONFIG,
    RequestCode.HEART_BEAT,
    RequestCode.UNREGISTER_CLIENT,
}
#: What brokers, name servers and controllers tell each other.
OF_SERVERS = {
    RequestCode.EXCHANGE_BROKER_HA_INFO,
    RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
    RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE,
}
#: What changes nothing at a broker: a client is given a message, there is no other store to bring
#: check points back from, and tables that are no files of RocksDB are not exported.
NO_CHANGE = {
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    RequestCode.POP_ROLLBACK,
    RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON,
}
#: What looks, beside that of commands.
LOOKS = {
    RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS,
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.GET_ALL_DELAY_OFFSET,
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_TIMER_CHECK_POINT,
    RequestCode.GET_TIMER_METRICS,
    RequestCode.POLLING_INFO,
    RequestCode.QUERY_CONSUME_TIME_SPAN,
    RequestCode.QUERY_CORRECTION_OFFSET,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
    RequestCode.QUERY_TOPICS_BY_CONSUMER,
}


def test_each_request_that_changes_a_broker_is_among_them() -> None:
    of_commands = {
        code: effect for code, (kind, effect) in REQUESTS.items() if kind is ServerKind.BROKER
    }
    looks = {code for code, effect in of_commands.items() if effect is Effect.LOOKS}
    # A test of its own has a half message for it.
    told = {code for code, _, _ in CHANGES} | {RequestCode.RESUME_CHECK_HALF_MESSAGE}
    known = told | OF_CLIENTS | OF_SERVERS | NO_CHANGE | LOOKS | looks
    assert set(BrokerInMemory().handlers) | set(of_commands) == known
    assert not told & (OF_CLIENTS | OF_SERVERS | NO_CHANGE | LOOKS | looks)


@pytest.mark.parametrize(
    "code, fields, body",
    CHANGES,
    ids=lambda value: value.name if isinstance(value, RequestCode) else "",
)
def test_who_changed_what_is_logged(code: RequestCode, fields: dict[str, str], body: Any) -> None:
    broker = BrokerInMemory()
    broker.add_topic("Topic")
    if code != RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP:
        broker.groups.update(SubscriptionGroupConfig(group_name="Named"))
    if code == RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG:
        said(broker, RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, body=b"Named=5")
    data = body if isinstance(body, bytes) else encode_body(body)
    peer = FakePeer(identity=PeerIdentity("alice"))
    with capturedLogs() as events:
        broker.request(RemotingCommand(code, ext_fields=fields, body=data), peer)
    lines = [line for line in map(formatEvent, events) if line and peer.address in line]
    assert len(lines) == 1
    assert f"{peer.address} (alice) at {peer.local_address} " in lines[0]
    if "Named" in str(fields) + str(body):
        assert "Named" in lines[0]


@pytest.fixture
def broker() -> BrokerInMemory:
    broker = BrokerInMemory(broker={"auto_create_subscription_group": True})
    broker.add_topic("Topic")
    return broker


def said(
    broker: BrokerInMemory, code: RequestCode, fields: dict[str, str] | None = None, body: Any = b""
) -> str:
    """What the one line about the change says behind the peer."""
    data = body if isinstance(body, bytes) else encode_body(body)
    peer = FakePeer()
    with capturedLogs() as events:
        broker.request(RemotingCommand(code, ext_fields=fields or {}, body=data), peer)
    (line,) = [line for line in map(formatEvent, events) if line and peer.address in line]
    return line.removeprefix(f"{peer.address} at {peer.local_address} ")


def test_what_a_topic_was_is_logged(broker: BrokerInMemory) -> None:
    made = said(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, NEW_TOPIC)
    assert made.endswith("(was not there)")
    line = said(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, NEW_TOPIC | {"perm": "4"})
    assert line == "makes or changes 1 topics: Named with perm=4 (was 6)"
    line = said(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, NEW_TOPIC | {"perm": "4"})
    assert line == "makes or changes 1 topics: Named with no change"
    topics = [TopicConfig(topic_name="Other"), TopicConfig(topic_name="Named", perm=2)]
    line = said(
        broker,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        body=CreateTopicListBody(topic_config_list=topics),
    )
    assert line.startswith("makes or changes 2 topics: ")
    assert "Other with all as by default (was not there), Named with " in line
    assert "perm=2 (was 4)" in line
    deleted = said(broker, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Named"})
    assert deleted.startswith("deletes the topics Named (was Named with perm=2)")


def test_what_a_group_was_is_logged(broker: BrokerInMemory) -> None:
    def group(tries: int) -> SubscriptionGroupConfig:
        return SubscriptionGroupConfig(group_name="Named", retry_max_times=tries)

    made = said(broker, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group(3))
    assert made.endswith("(was not there)")
    for number, (code, body) in enumerate(
        (
            (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group(4)),
            (
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
                SubscriptionGroupList(group_config_list=[group(5)]),
            ),
        ),
        3,
    ):
        line = said(broker, code, body=body)
        assert line.endswith(f": Named with retryMaxTimes={number + 1} (was {number})")
    deleted = said(broker, RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "Named"})
    assert deleted.startswith("deletes the group Named (was Named with retryMaxTimes=5)")


BAD_GROUP = SubscriptionGroupConfig(group_name="no group")
BAD_ATTRIBUTES = {"topic": "Topic", "attributes": "+nix=1"}


@pytest.mark.parametrize(
    ("code", "fields", "body"),
    [
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, BAD_GROUP),
        (
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            {},
            SubscriptionGroupList(group_config_list=[A_GROUP, BAD_GROUP]),
        ),
        (RequestCode.UPDATE_AND_CREATE_TOPIC, NEW_TOPIC | BAD_ATTRIBUTES, b""),
        (RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, FORBID | {"topic": "no topic"}, b""),
    ],
)
def test_of_what_is_refused_nothing_is_said_to_be_done(
    broker: BrokerInMemory, code: RequestCode, fields: dict[str, str], body: Any
) -> None:
    broker.groups.update(SubscriptionGroupConfig(group_name="Named"))
    data = body if isinstance(body, bytes) else encode_body(body)
    peer = FakePeer()
    with capturedLogs() as events:
        answer = broker.request(RemotingCommand(code, ext_fields=fields, body=data), peer)
    assert answer is not None and answer.code != 0
    assert [line for line in map(formatEvent, events) if line and peer.address in line] == []


def test_of_a_long_list_the_first_are_named(broker: BrokerInMemory) -> None:
    groups = [SubscriptionGroupConfig(group_name=f"G{number}") for number in range(120)]
    body = SubscriptionGroupList(group_config_list=groups)
    line = said(broker, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=body)
    assert line.startswith("makes or changes 120 groups: ")
    assert "G99 " in line and "G100 " not in line and line.endswith(" and 20 more")


def test_where_a_group_was_is_logged(broker: BrokerInMemory) -> None:
    for name in ("Named", "Source"):
        broker.groups.update(SubscriptionGroupConfig(group_name=name))
    broker.offsets.commit("Named", "Topic", 0, 7)
    line = said(broker, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RESET)
    assert line.startswith("reset Named in queues of Topic: 0: 0 (was 7), 1: 0 (was not there), ")
    broker.offsets.commit("Source", "Topic", 0, 3)
    line = said(broker, RequestCode.CLONE_GROUP_OFFSET, CLONE)
    assert line == "copied the offsets of Source to Named: Topic 0: 3 (was 0)"


def test_offsets_that_go_with_a_group_are_logged(broker: BrokerInMemory) -> None:
    broker.groups.update(SubscriptionGroupConfig(group_name="Named"))
    delete = {"groupName": "Named", "cleanOffset": "true"}
    line = said(broker, RequestCode.DELETE_SUBSCRIPTIONGROUP, delete)
    assert line.endswith(" and its offsets: nothing")
    for queue_id in range(120):
        broker.offsets.commit("Named", "Topic", queue_id, 7 + queue_id)
    line = said(broker, RequestCode.DELETE_SUBSCRIPTIONGROUP, delete)
    _, _, offsets = line.partition(" and its offsets: ")
    assert offsets.startswith("Named in Topic 0: 7, Named in Topic 1: 8, ")
    assert offsets.endswith("Named in Topic 99: 106 and more")


def test_offsets_that_go_with_a_topic_are_logged(broker: BrokerInMemory) -> None:
    broker.groups.update(SubscriptionGroupConfig(group_name="Named"))
    broker.offsets.commit("Named", "Topic", 3, 7)
    line = said(broker, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Topic"})
    assert line.endswith(" and the offsets in them: Named in Topic 3: 7")


def test_what_a_group_might_read_is_logged(broker: BrokerInMemory) -> None:
    broker.groups.update(SubscriptionGroupConfig(group_name="Named"))
    line = said(broker, RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, FORBID)
    assert line == "sets whether the group 'Named' may read 'Topic': False (was True)"


def test_how_a_group_read_a_topic_is_logged(broker: BrokerInMemory) -> None:
    broker.groups.update(SubscriptionGroupConfig(group_name="Named"))

    def mode(name: str) -> str:
        body = SetMessageRequestModeRequestBody(topic="Topic", consumer_group="Named", mode=name)
        return said(broker, RequestCode.SET_MESSAGE_REQUEST_MODE, body=body)

    assert mode("POP").endswith("(was not there)")
    assert mode("PULL").endswith(": Topic with mode=PULL (was POP)")


def test_what_limits_of_cold_reads_were_is_logged(broker: BrokerInMemory) -> None:
    update = RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG
    assert said(broker, update, body=b"Named=5").endswith(": Named=5 (was not there)")
    assert said(broker, update, body=b"Named=6").endswith(": Named=6 (was 5)")
    line = said(broker, RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, body=b"Named")
    assert line == "removes Named's limit of cold reads (was 6)"
    line = said(broker, RequestCode.SET_COMMITLOG_READ_MODE, {"READ_AHEAD_MODE": "1"})
    assert line == "sets the mode of reading ahead: 1 (was 0)"


def _parts(request: RemotingCommand) -> tuple[RequestCode, dict[str, str], bytes]:
    return RequestCode(request.code), dict(request.ext_fields or {}), request.body


def test_how_a_static_topic_lay_is_logged(broker: BrokerInMemory) -> None:
    def told(epoch: int, physical: int) -> str:
        queues = {queue: [item(0, "broker-a", queue)] for queue in range(physical)}
        request = hosting("broker-a", queues, epoch=epoch, physical=physical)
        return said(broker, *_parts(request))

    made = told(1, 1)
    assert made.startswith("makes or changes a static topic: Static with ")
    assert made.count(" (was not there)") == 2
    line = told(2, 2)
    assert "Static with readQueueNums=2 (was 1), writeQueueNums=2 (was 1), " in line
    _, _, mapping = line.rpartition(", Static with ")
    assert "epoch=2 (was 1)" in mapping
    assert mapping.count("(was ") == 2 and "(was {'0': [{" in mapping


def test_a_static_topic_that_is_refused_is_not_said_to_be_made(broker: BrokerInMemory) -> None:
    queues = {0: [item(0, "broker-a")]}
    said(broker, *_parts(hosting("broker-a", queues, epoch=2, physical=1)))
    peer = FakePeer()
    with capturedLogs() as events:
        answer = broker.request(hosting("broker-a", queues, epoch=1, physical=1), peer)
    assert answer is not None and answer.code != 0
    assert [line for line in map(formatEvent, events) if line and peer.address in line] == []


def test_what_became_of_a_half_message_before_is_logged() -> None:
    broker = BrokerInMemory(broker={"transaction_check_max": 2})
    connect(broker)
    begin(broker)
    let(broker, 6 + 3 * 30)
    (message,) = broker.consume(GIVEN_UP)
    given_up = offset_message_id("127.0.0.1", 10911, message.physical_offset)
    fields = {"topic": "Topic", "msgId": given_up}
    line = said(broker, RequestCode.RESUME_CHECK_HALF_MESSAGE, fields)
    assert line == (
        f"has half message {given_up} asked about again, from 0 times (was given up, asked about"
        " 2 times)"
    )
    peer = FakePeer()
    with capturedLogs() as events:
        again = broker.request(
            RemotingCommand(RequestCode.RESUME_CHECK_HALF_MESSAGE, ext_fields=fields), peer
        )
    assert again is not None and again.remark == "it waits already"
    assert [line for line in map(formatEvent, events) if line and peer.address in line] == []


def test_a_flush_offset_that_is_not_kept_is_logged(broker: BrokerInMemory) -> None:
    line = said(broker, RequestCode.RESET_MASTER_FLUSH_OFFSET, {"masterFlushOffset": "7"})
    assert line == "wants the master's flush offset to be 7: this broker keeps none"
