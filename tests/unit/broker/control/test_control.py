"""What clients and administrators ask of a broker, apart from messages."""

import errno
import os
from datetime import datetime
from typing import Any

import javaproperties
import pytest
from msgspec.structs import force_setattr
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs
from twisted.python.failure import Failure

from rocketmq_tw.broker.assembly.config_file import ConfigFile
from rocketmq_tw.broker.assembly.handlers import merge_handlers
from rocketmq_tw.broker.clients.client_requests import MAX_HEARTBEAT_BYTES
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.tables.groups import GroupTable
from rocketmq_tw.broker.tables.topic_requests import parse_attributes
from rocketmq_tw.config.change import change
from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.net.errors import RequestTimeout
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.consumers import (
    ConsumeQueueBody,
    ConsumerConnection,
    ConsumerIdList,
    ProducerConnection,
)
from rocketmq_tw.wire.bodies.groups import GroupForbidden
from rocketmq_tw.wire.bodies.heartbeat import HeartbeatData
from rocketmq_tw.wire.bodies.kv import KVTable
from rocketmq_tw.wire.bodies.locks import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from rocketmq_tw.wire.bodies.offsets import (
    ConsumeStats,
    MessageQueue,
    ResetOffsetBody,
    TopicStatsTable,
)
from rocketmq_tw.wire.bodies.registration import decode_registration
from rocketmq_tw.wire.bodies.stats import BrokerStatsData
from rocketmq_tw.wire.bodies.topics import CreateTopicListBody, TopicConfig, TopicConfigTable
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.broker_admin import ViewBrokerStatsDataRequestHeader
from rocketmq_tw.wire.headers.clients import (
    GetConsumerConnectionListRequestHeader,
    GetConsumerListByGroupRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetProducerConnectionListRequestHeader,
    UnregisterClientRequestHeader,
)
from rocketmq_tw.wire.headers.groups import (
    DeleteSubscriptionGroupRequestHeader,
    GetConsumeStatsRequestHeader,
)
from rocketmq_tw.wire.headers.offsets import (
    CloneGroupOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    ResetOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketmq_tw.wire.headers.pull import QueryConsumeQueueRequestHeader
from rocketmq_tw.wire.headers.topics import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicStatsInfoRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)
from tests.support.broker import BrokerInMemory, Threads
from tests.support.network import FakePeer
from tests.support.roles import a_master
from tests.support.stores import queues_of


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles(MemoryFiles())


@pytest.fixture
def plane(files: FaultyFiles) -> BrokerInMemory:
    made = BrokerInMemory(files)
    made.topics.update(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2))
    return made


@pytest.fixture
def registrations(plane: BrokerInMemory) -> list[RemotingCommand]:
    """What the broker tells its name server from now on."""
    told: list[RemotingCommand] = []

    def register(request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        told.append(request)
        return request.response()

    plane.network.serve("10.0.0.1:9876", {RequestCode.REGISTER_BROKER: register})
    force_setattr(plane.config, "namesrv_addr", "10.0.0.1:9876")
    return told


#: No table can be written.
FULL = [
    Fault("pwrite", f"/store/config/{table}", errno.ENOSPC)
    for table in ("topics", "subscriptionGroup")
]


def refused(code: ResponseCode):
    """A context that wants a refusal with this code."""
    return pytest.raises(RequestError, match=f"^{int(code)} ")


def new_topic(name: str = "New", **fields: object) -> CreateTopicRequestHeader:
    values: dict[str, object] = {
        "topic": name, "default_topic": "TBW102", "read_queue_nums": 4, "write_queue_nums": 4,
        "perm": 6, "topic_filter_type": "SINGLE_TAG", "order": False,
    }  # fmt: skip
    return CreateTopicRequestHeader(**(values | fields))  # type: ignore[arg-type]


# Clients


def test_a_heartbeat_registers_the_client_and_makes_its_retry_topic(plane: BrokerInMemory) -> None:
    response = plane.heartbeat("c1", plane.peer, producer="P")
    assert response.ext_fields == {"isSupportHeartBeatV2": "true", "isSubChange": "true"}
    retry = plane.topics.get("%RETRY%G")
    assert retry is not None
    assert (retry.read_queue_nums, retry.perm) == (1, 6)
    assert plane.clients.subscription("G", "T") is not None
    assert len(plane.clients.producers("P")) == 1


def test_a_known_fingerprint_needs_no_subscriptions(plane: BrokerInMemory) -> None:
    first = plane.heartbeat("c1", plane.peer, heartbeat_fingerprint=7)
    assert first.ext_fields["isSubChange"] == "false"
    second = plane.heartbeat("c1", plane.peer, topics=(), heartbeat_fingerprint=7, without_sub=True)
    assert second.ext_fields["isSubChange"] == "false"
    assert plane.clients.subscription("G", "T") is not None


def test_the_retry_topic_of_an_ordered_topic_is_ordered(plane: BrokerInMemory) -> None:
    plane.topics.mark_ordered(["T"])
    plane.heartbeat("c1", plane.peer)
    assert plane.topics.all()["%RETRY%G"].order


@pytest.mark.parametrize(
    "body",
    [b"", b"[1", b"{}", b'{"clientID":"' + b"x" * MAX_HEARTBEAT_BYTES + b'"}'],
    ids=["empty", "broken", "no client id", "too large"],
)
def test_a_wrong_heartbeat_is_refused(plane: BrokerInMemory, body: bytes) -> None:
    with refused(ResponseCode.SYSTEM_ERROR):
        plane.ask(RequestCode.HEART_BEAT, body=body)


def test_a_group_without_configuration_is_not_registered() -> None:
    plane = BrokerInMemory(broker={"auto_create_subscription_group": False})
    plane.heartbeat("c1", plane.peer)
    assert plane.clients.consumer_group("G") is None
    assert plane.topics.get("%RETRY%G") is None


def test_consumers_are_listed_until_they_leave(plane: BrokerInMemory) -> None:
    header = GetConsumerListByGroupRequestHeader(consumer_group="G")
    with refused(ResponseCode.SYSTEM_ERROR):
        plane.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
    other = FakePeer("127.0.0.1:50001")
    plane.heartbeat("c1", plane.peer)
    plane.heartbeat("c2", other)
    found = plane.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
    assert decode_body(ConsumerIdList, found.body).consumer_id_list == ["c1", "c2"]
    leaving = UnregisterClientRequestHeader(client_id="c2", consumer_group="G")
    plane.ask(RequestCode.UNREGISTER_CLIENT, leaving, peer=other)
    found = plane.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
    assert decode_body(ConsumerIdList, found.body).consumer_id_list == ["c1"]


def test_connections_are_shown(plane: BrokerInMemory) -> None:
    plane.heartbeat("c1", plane.peer, producer="P")
    consumers = plane.ask(
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        GetConsumerConnectionListRequestHeader(consumer_group="G"),
    )
    shown = decode_body(ConsumerConnection, consumers.body)
    assert [(c.client_id, c.client_addr) for c in shown.connection_set] == [
        ("c1", plane.peer.address)
    ]
    assert shown.subscription_table.keys() == {"T"}
    producers = plane.ask(
        RequestCode.GET_PRODUCER_CONNECTION_LIST,
        GetProducerConnectionListRequestHeader(producer_group="P"),
    )
    assert len(decode_body(ProducerConnection, producers.body).connection_set) == 1
    with refused(ResponseCode.CONSUMER_NOT_ONLINE):
        plane.ask(
            RequestCode.GET_CONSUMER_CONNECTION_LIST,
            GetConsumerConnectionListRequestHeader(consumer_group="nobody"),
        )


def test_a_question_is_passed_on_to_the_client_and_its_answer_back(plane: BrokerInMemory) -> None:
    plane.heartbeat("c1", plane.peer)
    header = GetConsumerRunningInfoRequestHeader(consumer_group="G", client_id="c1")
    answers: list[RemotingCommand] = []
    plane.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, header, peer=FakePeer()).addCallback(
        answers.append
    )
    ((question, answer),) = plane.peer.requests
    assert question.ext_fields["clientId"] == "c1"
    answer.callback(question.response(body=b"running"))
    assert answers[0].body == b"running"


def test_a_client_that_does_not_answer_is_reported(plane: BrokerInMemory) -> None:
    plane.heartbeat("c1", plane.peer)
    header = GetConsumerRunningInfoRequestHeader(consumer_group="G", client_id="c1")
    asked = plane.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
    ((_, answer),) = plane.peer.requests
    answer.errback(RequestTimeout("c1", 307, 10))
    failures: list[RequestError] = []
    asked.addErrback(lambda failure: failures.append(failure.value))
    assert failures[0].code == ResponseCode.CONSUME_MSG_TIMEOUT


# Topics and groups


def test_a_topic_is_created_and_its_attributes_kept(plane: BrokerInMemory) -> None:
    header = new_topic(attributes="+message.type=FIFO")
    assert plane.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header).code == 0
    made = plane.topics.all()["New"]
    assert (made.write_queue_nums, made.attributes) == (4, {"message.type": "FIFO"})
    table = decode_body(TopicConfigTable, plane.ask(RequestCode.GET_ALL_TOPIC_CONFIG).body)
    assert table.topic_config_table["New"] == made


@pytest.mark.parametrize(
    "header",
    [
        new_topic("../etc"),
        new_topic("t" * 128),
        new_topic("TBW102"),
        new_topic(perm=8),
        new_topic(write_queue_nums=-1),
        new_topic(read_queue_nums=10_000_000),
        new_topic(attributes="message.type"),
        new_topic(attributes="+message.type=MIXED"),
    ],
)
def test_a_wrong_topic_is_refused(plane: BrokerInMemory, header: CreateTopicRequestHeader) -> None:
    before = dict(plane.topics.all())
    with refused(ResponseCode.INVALID_PARAMETER):
        plane.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    assert plane.topics.all() == before


def test_a_list_of_topics_is_made_as_a_whole_or_not_at_all(plane: BrokerInMemory) -> None:
    wrong = CreateTopicListBody(
        topic_config_list=[TopicConfig(topic_name="A"), TopicConfig(topic_name="b c")]
    )
    with refused(ResponseCode.INVALID_PARAMETER):
        plane.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=wrong)
    assert plane.topics.get("A") is None
    right = CreateTopicListBody(
        topic_config_list=[TopicConfig(topic_name="A"), TopicConfig(topic_name="B")]
    )
    plane.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=right)
    assert plane.topics.get("B") is not None


def test_a_deleted_topic_takes_its_queues_and_offsets_along(plane: BrokerInMemory) -> None:
    plane.put("T", b"one")
    plane.groups.get("G")
    plane.offsets.commit("G", "T", 0, 1)
    plane.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="T"))
    assert plane.topics.get("T") is None
    assert plane.offsets.query("G", "T", 0) == -1
    assert "T" not in queues_of(plane.store)


def failure_of(kept: Deferred[RemotingCommand]) -> RequestError:
    failures: list[Failure] = []
    kept.addErrback(failures.append)
    error = failures[0].value
    assert isinstance(error, RequestError)
    return error


def test_a_deletion_that_cannot_be_kept_leaves_all_as_it_was(
    plane: BrokerInMemory, files: FaultyFiles
) -> None:
    plane.topics.update(TopicConfig(topic_name="T"))
    plane.groups.get("G")
    plane.put("T", b"one")
    plane.offsets.commit("G", "T", 0, 1)
    files.faults += FULL
    topic = DeleteTopicRequestHeader(topic="T")
    group = DeleteSubscriptionGroupRequestHeader(group_name="G", clean_offset=True)
    for code, header in (
        (RequestCode.DELETE_TOPIC_IN_BROKER, topic),
        (RequestCode.DELETE_SUBSCRIPTIONGROUP, group),
    ):
        assert "No space left" in failure_of(plane.ask(code, header)).remark
    assert plane.topics.get("T") is not None and plane.groups.contains("G")
    assert plane.store.max_queue_offset("T", 0) == 1
    assert plane.offsets.query("G", "T", 0) == 1

    files.faults.clear()
    plane.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic)
    assert "T" not in queues_of(plane.store) and plane.offsets.query("G", "T", 0) == -1
    plane.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, group)
    assert not plane.groups.contains("G")


def test_a_topic_made_again_while_it_is_deleted_keeps_what_it_has() -> None:
    threads = Threads(eager=False)
    plane = BrokerInMemory(threads=threads)
    plane.topics.update(TopicConfig(topic_name="T"))
    threads.run()
    deleted = plane.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="T"))
    assert plane.topics.get("T") is None
    assert plane.topics.create_on_send("T", "TBW102", "p", 4, 0) is not None
    plane.put("T", b"acknowledged")
    threads.run()
    assert deleted.result.code == 0
    assert plane.store.max_queue_offset("T", 0) == 1


@pytest.mark.parametrize("topic", ["TBW102", "../x", "SCHEDULE_TOPIC_XXXX"])
def test_what_must_not_be_deleted_is_not(plane: BrokerInMemory, topic: str) -> None:
    with refused(ResponseCode.INVALID_PARAMETER):
        plane.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=topic))


def test_topic_stats_tell_offsets_and_times(plane: BrokerInMemory) -> None:
    plane.put("T", b"one", b"two", queue_id=1)
    header = GetTopicStatsInfoRequestHeader(topic="T")
    body = decode_body(TopicStatsTable, plane.ask(RequestCode.GET_TOPIC_STATS_INFO, header).body)
    offsets = {
        queue.queue_id: (offset.min_offset, offset.max_offset, offset.last_update_timestamp)
        for queue, offset in body.offset_table.items()
    }
    assert offsets == {0: (0, 0, 0), 1: (0, 2, plane.now_ms())}
    with refused(ResponseCode.TOPIC_NOT_EXIST):
        plane.ask(RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader(topic="nope"))


def test_a_deleted_group_may_leave_its_offsets(plane: BrokerInMemory) -> None:
    plane.groups.get("G")
    plane.offsets.commit("G", "T", 0, 1)
    keep = DeleteSubscriptionGroupRequestHeader(group_name="G")
    plane.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, keep)
    assert plane.offsets.query("G", "T", 0) == 1
    clean = DeleteSubscriptionGroupRequestHeader(group_name="G", clean_offset=True)
    plane.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, clean)
    assert plane.offsets.query("G", "T", 0) == -1


def test_attributes_are_parsed() -> None:
    assert parse_attributes("+a=1, -b") == {"+a": "1", "-b": ""}
    assert parse_attributes(None) == {}
    for wrong in ("a=1", "+a", "+a=1,+a=2"):
        with refused(ResponseCode.INVALID_PARAMETER):
            parse_attributes(wrong)


# Offsets and locks


def query(plane: BrokerInMemory, **fields: object) -> int:
    header = QueryConsumerOffsetRequestHeader(consumer_group="G", topic="T", queue_id=0, **fields)  # type: ignore[arg-type]
    response = plane.ask(RequestCode.QUERY_CONSUMER_OFFSET, header)
    offset: int = response.header(QueryConsumerOffsetResponseHeader).offset
    return offset


def commit(plane: BrokerInMemory, offset: int, **fields: object) -> RemotingCommand:
    values: dict[str, object] = {"consumer_group": "G", "topic": "T", "queue_id": 0}
    header = UpdateConsumerOffsetRequestHeader(commit_offset=offset, **(values | fields))  # type: ignore[arg-type]
    response: RemotingCommand = plane.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)
    return response


def test_a_committed_offset_is_found(plane: BrokerInMemory) -> None:
    plane.groups.get("G")
    commit(plane, 7)
    assert query(plane) == 7


def test_a_new_group_starts_at_0_only_where_the_queue_is_at_hand(plane: BrokerInMemory) -> None:
    with refused(ResponseCode.QUERY_NOT_FOUND):
        query(plane)
    plane.put("T", b"one")
    assert query(plane) == 0
    with refused(ResponseCode.QUERY_NOT_FOUND):
        query(plane, set_zero_if_not_found=False)


def test_a_new_group_does_not_start_at_0_far_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = {"SC_PAGE_SIZE": 300, "SC_PHYS_PAGES": 1}
    monkeypatch.setattr(os, "sysconf", memory.__getitem__)
    plane = BrokerInMemory()
    plane.add_topic("T", read_queue_nums=2, write_queue_nums=2)
    plane.put("T", b"x" * 200, b"x" * 200)
    with refused(ResponseCode.QUERY_NOT_FOUND):
        query(plane)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "nope"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queue_id": 99}, ResponseCode.INVALID_PARAMETER),
        ({"queue_id": -1}, ResponseCode.INVALID_PARAMETER),
        ({"offset": -1}, ResponseCode.INVALID_PARAMETER),
    ],
)
def test_a_wrong_commit_is_refused(
    plane: BrokerInMemory, fields: dict[str, object], code: ResponseCode
) -> None:
    plane.groups.get("G")
    with refused(code):
        commit(plane, **({"offset": 1} | fields))  # type: ignore[arg-type]
    assert not plane.offsets.topics_of("G")


def test_a_commit_ahead_of_the_first_heartbeat_makes_its_group(plane: BrokerInMemory) -> None:
    plane.put("T", b"one")
    commit(plane, 1)
    assert query(plane) == 1


def test_a_commit_does_not_make_a_group_where_that_is_off() -> None:
    plane = BrokerInMemory(broker={"auto_create_subscription_group": False})
    plane.put("T", b"one")
    with refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST):
        commit(plane, 1)


def test_a_commit_does_not_undo_a_reset(plane: BrokerInMemory) -> None:
    plane.groups.get("G")
    plane.put("T", b"one", b"two")
    commit(plane, 2)
    header = ResetOffsetRequestHeader(group="G", topic="T", timestamp=0)
    answer = plane.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    assert len(decode_body(ResetOffsetBody, answer.body).offset_table) == 2
    assert commit(plane, 2).code == 0
    assert query(plane) == 0
    assert plane.offsets.take_reset("G", "T", 0) == 0
    commit(plane, 1)
    assert query(plane) == 1


def test_a_reset_to_an_offset_stays_in_the_queue(plane: BrokerInMemory) -> None:
    plane.groups.get("G")
    plane.put("T", b"one", b"two")
    right = ResetOffsetRequestHeader(group="G", topic="T", queue_id=0, offset=1)
    plane.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, right)
    assert plane.offsets.query("G", "T", 0) == 1
    for header in (
        ResetOffsetRequestHeader(group="G", topic="T", queue_id=0, offset=99),
        ResetOffsetRequestHeader(group="G", topic="T", queue_id=5, offset=0),
    ):
        with refused(ResponseCode.SYSTEM_ERROR):
            plane.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)


def test_a_slave_resets_and_copies_nothing() -> None:
    """Its offsets are the master's, and would be again a little later."""
    master = BrokerInMemory()
    master.topics.update(TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1))
    master.groups.get("G")
    master.groups.get("H")
    master.offsets.commit("G", "T", 0, 5)
    master.become(RoleState(Role.SLAVE, 1))
    reset = ResetOffsetRequestHeader(topic="T", group="G", queue_id=0, offset=0, timestamp=0)
    clone = CloneGroupOffsetRequestHeader(src_group="G", dest_group="H", topic="T")
    for code, header in (
        (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset),
        (RequestCode.CLONE_GROUP_OFFSET, clone),
    ):
        with refused(ResponseCode.SYSTEM_ERROR) as refusal:
            master.ask(code, header)
        assert "master" in refusal.value.remark
    assert (master.offsets.query("G", "T", 0), master.offsets.query("H", "T", 0)) == (5, -1)


def test_without_server_side_reset_the_clients_are_told() -> None:
    plane = BrokerInMemory(broker={"use_server_side_reset_offset": False})
    plane.topics.update(TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1))
    header = ResetOffsetRequestHeader(group="G", topic="T", timestamp=0)
    with refused(ResponseCode.CONSUMER_NOT_ONLINE):
        plane.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    plane.heartbeat("c1", plane.peer)
    plane.offsets.commit("G", "T", 0, 5)
    plane.peer.oneways.clear()
    plane.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    (order,) = plane.peer.oneways
    assert order.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET
    assert order.is_oneway


def test_offsets_are_cloned_to_a_group_that_is_there(plane: BrokerInMemory) -> None:
    plane.offsets.commit("G", "T", 0, 5)
    header = CloneGroupOffsetRequestHeader(src_group="G", dest_group="H", topic="T")
    plane.ask(RequestCode.CLONE_GROUP_OFFSET, header)
    assert plane.offsets.query("H", "T", 0) == 5


def test_consume_stats_tell_the_lag(plane: BrokerInMemory) -> None:
    plane.groups.get("G")
    plane.put("T", b"one", b"two", b"three")
    commit(plane, 1)
    header = GetConsumeStatsRequestHeader(consumer_group="G")
    body = decode_body(ConsumeStats, plane.ask(RequestCode.GET_CONSUME_STATS, header).body)
    queue = MessageQueue(topic="T", broker_name="broker-a", queue_id=0)
    wrapper = body.offset_table[queue]
    assert (wrapper.broker_offset, wrapper.consumer_offset) == (3, 1)
    assert body.consume_tps == 0
    assert wrapper.last_timestamp == plane.now_ms() - 2


def test_rates_are_told_with_the_offsets(plane: BrokerInMemory) -> None:
    plane.groups.get("G")
    plane.topics.update(TopicConfig(topic_name="T"))
    plane.put("T", *[b"x"] * 60)
    commit(plane, 1)
    plane.traffic.pulled("T", "G", 30, 300)
    plane.clock.advance(2)
    asked = plane.ask(RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader(topic="T"))
    put_tps = decode_body(TopicStatsTable, asked.body).topic_put_tps
    asked = plane.ask(
        RequestCode.GET_CONSUME_STATS, GetConsumeStatsRequestHeader(consumer_group="G")
    )
    get_tps = decode_body(ConsumeStats, asked.body).consume_tps
    assert put_tps is not None and 28 < put_tps <= 30.5 and 14 < get_tps <= 15.5


def test_queues_are_locked_and_unlocked(plane: BrokerInMemory) -> None:
    queue = MessageQueue(topic="T", broker_name="broker-a", queue_id=0)

    def lock(client_id: str) -> list[MessageQueue]:
        body = LockBatchRequestBody(consumer_group="G", client_id=client_id, mq_set=[queue])
        answer = plane.ask(RequestCode.LOCK_BATCH_MQ, body=body)
        return decode_body(LockBatchResponseBody, answer.body).lock_ok_mq_set

    assert lock("c1") == [queue]
    assert lock("c2") == []
    plane.ask(
        RequestCode.UNLOCK_BATCH_MQ,
        body=UnlockBatchRequestBody(consumer_group="G", client_id="c1", mq_set=[queue]),
    )
    assert lock("c2") == [queue]


@pytest.mark.parametrize(
    "body",
    [
        LockBatchRequestBody(consumer_group="G", client_id="c" * 256),
        LockBatchRequestBody(consumer_group="G/../H", client_id="c"),
        LockBatchRequestBody(
            consumer_group="G",
            client_id="c",
            mq_set=[MessageQueue(topic="t" * 256, broker_name="b", queue_id=0)],
        ),
        LockBatchRequestBody(
            consumer_group="G",
            client_id="c",
            mq_set=[MessageQueue(topic="t", broker_name="b" * 256, queue_id=0)],
        ),
    ],
)
def test_a_lock_keeps_no_name_that_nothing_could_have(
    plane: BrokerInMemory, body: LockBatchRequestBody
) -> None:
    with pytest.raises(RequestError):
        plane.ask(RequestCode.LOCK_BATCH_MQ, body=body)
    assert not plane.locks.holds_any("G")


def test_requests_of_one_go_have_their_limits(plane: BrokerInMemory) -> None:
    queues = [MessageQueue(topic="T", broker_name="broker-a", queue_id=n) for n in range(10_001)]
    body = LockBatchRequestBody(consumer_group="G", client_id="c", mq_set=queues)
    for code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
        with refused(ResponseCode.INVALID_PARAMETER):
            plane.ask(code, body=body)
    with refused(ResponseCode.INVALID_PARAMETER):
        plane.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"traceOn=false\n" * 5_000)
    assert plane.config.trace_on


# The broker itself


def test_the_configuration_is_changed_by_allow_list(
    plane: BrokerInMemory, registrations: list[RemotingCommand]
) -> None:
    with capturedLogs() as logs:
        plane.ask(
            RequestCode.UPDATE_BROKER_CONFIG, body=b"fileReservedTime=48\nbrokerPermission=4\n"
        )
    assert [log["changes"] for log in logs] == ["fileReservedTime=48, brokerPermission=4"]
    assert logs[0]["peer"] == plane.peer.address
    assert plane.store_config.file_reserved_time == 48
    assert plane.config.broker_permission == 4
    plane.network.settle()
    (registration,) = registrations
    body = decode_registration(registration.body, compressed=False)
    assert body.topic_config_serialize_wrapper.topic_config_table["T"].perm == 4


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"fileReservedTime=48\nstorePathRootDir=/etc", ResponseCode.NO_PERMISSION),
        (b"fileReservedTime=48\nbrokerConfigPath=/etc/passwd", ResponseCode.NO_PERMISSION),
        (b"fileReservedTime=48\nnamesrvAddr=evil:9876", ResponseCode.NO_PERMISSION),
        (b"fileReservedTime=48\nbrokerPermission=all", ResponseCode.INVALID_PARAMETER),
        (b"fileReservedTime=48\n\xff\xfe", ResponseCode.SYSTEM_ERROR),
    ],
)
def test_a_forbidden_change_changes_nothing(
    plane: BrokerInMemory, registrations: list[RemotingCommand], text: bytes, code: ResponseCode
) -> None:
    with refused(code):
        plane.ask(RequestCode.UPDATE_BROKER_CONFIG, body=text)
    assert plane.store_config.file_reserved_time == 72
    plane.network.settle()
    assert registrations == []


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("brokerPermission=8", "give an integer from 0 to 7"),
        ("diskMaxUsedSpaceRatio=100", "give an integer from 10 to 95"),
        ("fileReservedTime=0", "give an integer from 1 to 878400"),
        ("deleteWhen=24", "give hours from 0 to 23, several with ';' between them"),
        ("traceOn=yes", "give true or false"),
    ],
)
def test_a_change_keeps_to_the_ranges_of_the_file(
    plane: BrokerInMemory, text: str, accepted: str
) -> None:
    with refused(ResponseCode.INVALID_PARAMETER) as refusal:
        plane.ask(RequestCode.UPDATE_BROKER_CONFIG, body=text.encode())
    assert refusal.value.remark == f"{text}: {accepted}"


@pytest.mark.parametrize(
    "text",
    [
        "storePathRootDir=/store",
        "brokerName=broker-a",
        "listenPort=10911",
        "enablePopBufferMerge=false",
        "estimateAccumulation=true",
        "transactionOpBatchInterval=3000",
    ],
)
def test_what_a_key_says_already_is_no_change(
    plane: BrokerInMemory, registrations: list[RemotingCommand], text: str
) -> None:
    plane.ask(RequestCode.UPDATE_BROKER_CONFIG, body=f"{text}\nfileReservedTime=48".encode())
    assert plane.store_config.file_reserved_time == 48
    plane.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=6")
    plane.network.settle()
    assert registrations == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("transactionOpBatchInterval=1000", "has no effect here: it is taken as 3000"),
        ("enablePopBufferMerge=true", "has no effect here: it is taken as false"),
        ("estimateAccumulation=perhaps", "has no effect here: it is taken as true"),
        ("transactionChekInterval=1", "did you mean transactionCheckInterval?"),
        ("brokerName=b", "cannot be changed while the server runs"),
    ],
)
def test_what_cannot_be_changed_says_why(plane: BrokerInMemory, text: str, why: str) -> None:
    with refused(ResponseCode.NO_PERMISSION) as refusal:
        plane.ask(RequestCode.UPDATE_BROKER_CONFIG, body=text.encode())
    assert why in refusal.value.remark


@pytest.mark.parametrize(
    "text", ["traceOn=false", "traceOn=true", "configBlackList=", "rocketmqHome=/"]
)
def test_the_black_list_counts(text: str) -> None:
    plane = BrokerInMemory(broker={"config_black_list": "brokerConfigPath; traceOn"})
    with refused(ResponseCode.NO_PERMISSION):
        plane.ask(RequestCode.UPDATE_BROKER_CONFIG, body=text.encode())
    assert plane.config.trace_on


@pytest.mark.parametrize(
    "key",
    [
        "useServerSideResetOffset",
        "enableSingleTopicRegister",
        "enableSplitRegistration",
    ],
)
def test_switches_that_stock_changes(plane: BrokerInMemory, key: str) -> None:
    for value in ("true", "false"):
        plane.ask(RequestCode.UPDATE_BROKER_CONFIG, body=f"{key}={value}".encode())
        assert f"{key}={value}\n" in plane.ask(RequestCode.GET_BROKER_CONFIG).body.decode()


def test_the_configuration_is_shown(plane: BrokerInMemory) -> None:
    text = plane.ask(RequestCode.GET_BROKER_CONFIG).body.decode()
    assert "brokerName=broker-a\n" in text
    assert "autoCreateTopicEnable=true\n" in text


def test_stock_exports_the_configuration(plane: BrokerInMemory) -> None:
    shown = javaproperties.loads(plane.ask(RequestCode.GET_BROKER_CONFIG).body.decode())
    # What exportConfigs of 4.9.7 copies; it fails where one of them is missing.
    exported = """brokerClusterName brokerId brokerName brokerRole fileReservedTime filterServerNums
        flushDiskType maxMessageSize messageDelayLevel msgTraceTopicName slaveReadEnable traceOn
        traceTopicEnable useTLS autoCreateTopicEnable autoCreateSubscriptionGroup"""
    assert set(exported.split()) <= shown.keys()
    assert (shown["filterServerNums"], shown["useTLS"]) == ("0", "false")


def test_the_runtime_info_has_what_mqadmin_of_both_versions_reads() -> None:
    files = MemoryFiles()
    plane = BrokerInMemory(files)
    plane.put("T", b"one")
    files.capacity = 4 * files.usage("/store").used
    body = plane.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body
    table = decode_body(KVTable, body).table
    for key in ("putTps", "getTransferredTps", "getTransferedTps"):
        assert len(table[key].split()) == 3
    assert table["commitLogDiskRatio"] == "0.2500"
    assert int(table["commitLogMaxOffset"]) == plane.store.end_offset
    assert int(table["earliestMessageTimeStamp"]) == plane.now_ms()


def test_two_families_may_not_answer_the_same_code(plane: BrokerInMemory) -> None:
    table = {RequestCode.HEART_BEAT: lambda request, peer: None}
    with pytest.raises(ValueError, match="both answer request"):
        merge_handlers([table, table])


def test_an_empty_heartbeat_of_a_client_says_nothing_wrong(plane: BrokerInMemory) -> None:
    body = HeartbeatData(client_id="c1")
    assert plane.ask(RequestCode.HEART_BEAT, body=body).code == 0


# What goes through, and what nobody needs


def test_the_traffic_of_a_topic_is_shown(plane: BrokerInMemory) -> None:
    plane.traffic.pulled("T", "G", 4, 40)
    header = ViewBrokerStatsDataRequestHeader(stats_name="GROUP_GET_NUMS", stats_key="T@G")
    answer = plane.ask(RequestCode.VIEW_BROKER_STATS_DATA, header)
    found = decode_body(BrokerStatsData, answer.body)
    assert found.stats_minute is not None and found.stats_minute.sum == 4
    header = ViewBrokerStatsDataRequestHeader(stats_name="GROUP_GET_NUMS", stats_key="T@H")
    with refused(ResponseCode.SYSTEM_ERROR) as refusal:
        plane.ask(RequestCode.VIEW_BROKER_STATS_DATA, header)
    assert "GROUP_GET_NUMS of T@H" in refusal.value.remark


def test_queues_of_topics_that_are_gone_are_removed(plane: BrokerInMemory) -> None:
    plane.topics.update(TopicConfig(topic_name="Used"))
    plane.put("Used", b"one")
    plane.put("Gone", b"one")
    assert plane.ask(RequestCode.CLEAN_UNUSED_TOPIC).code == 0
    assert queues_of(plane.store) == {"Used": {0}}


def test_units_of_a_queue_are_shown(plane: BrokerInMemory) -> None:
    plane.put("T", b"one", b"two", b"three", queue_id=2)
    first = plane.heartbeat("c1", FakePeer(), topics=("T",))
    assert first.code == 0

    def units(**fields: Any) -> ConsumeQueueBody:
        header = QueryConsumeQueueRequestHeader(topic="T", queue_id=2, **fields)
        return decode_body(
            ConsumeQueueBody, plane.ask(RequestCode.QUERY_CONSUME_QUEUE, header).body
        )

    body = units(index=1, count=10, consumer_group="G")
    assert (body.min_queue_index, body.max_queue_index) == (0, 3)
    shown = [(unit.physic_offset, unit.physic_size) for unit in body.queue_data]
    assert len(shown) == 2 and shown[1][0] == sum(shown[0])
    assert plane.store.message_at(shown[1][0]).body == b"three"
    assert body.subscription_data is not None and body.filter_data == "null"
    stranger = units(index=0, count=1, consumer_group="nobody")
    assert len(stranger.queue_data) == 1
    assert stranger.filter_data == "nobody does not subscribe to T now"
    assert units(index=-1, count=5).queue_data == units(index=3, count=5).queue_data == []
    assert units(index=0, count=1 << 30).queue_data[1:] == body.queue_data
    with refused(ResponseCode.SYSTEM_ERROR):
        plane.ask(RequestCode.QUERY_CONSUME_QUEUE, QueryConsumeQueueRequestHeader(topic="T"))


def test_a_group_is_kept_from_a_topic_and_let_to_it_again(
    plane: BrokerInMemory, files: FaultyFiles
) -> None:
    def readable(topic: str, change: bool | None = None) -> bool | None:
        header = UpdateGroupForbiddenRequestHeader(group="G", topic=topic, readable=change)
        answer = plane.ask(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, header)
        return decode_body(GroupForbidden, answer.body).readable

    assert readable("T") is True
    with refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST):
        readable("T", False)
    plane.groups.get("G")
    assert readable("T", False) is readable("U", False) is readable("T") is False
    file = ConfigFile(files, "/store/config/subscriptionGroup.json")
    kept = GroupTable(plane.config, file, plane.now_ms, a_master())
    kept.load()
    assert not kept.may_read("G", "T") and kept.may_read("G", "V")
    assert readable("T", True) is readable("T") is True
    assert readable("U") is False, "stock lets the group read all topics again"
    with refused(ResponseCode.SYSTEM_ERROR):
        readable("../x", False)
    files.faults += FULL
    header = UpdateGroupForbiddenRequestHeader(group="G", topic="T", readable=False)
    failed = plane.ask(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, header)
    assert "No space left" in failure_of(failed).remark
    assert readable("T") is True and readable("U") is False


def test_a_slave_tells_what_a_group_may_read_and_changes_nothing() -> None:
    slave = BrokerInMemory(broker_role="SLAVE")
    slave.groups.get("G")

    def ask(**change: bool) -> RemotingCommand:
        header = UpdateGroupForbiddenRequestHeader(group="G", topic="T", **change)
        answer: RemotingCommand = slave.ask(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, header)
        return answer

    for readable in (False, True):
        with refused(ResponseCode.SYSTEM_ERROR) as refusal:
            ask(readable=readable)
        assert "the master's" in refusal.value.remark
        assert decode_body(GroupForbidden, ask().body).readable is True


def test_expired_files_go_at_any_hour(plane: BrokerInMemory) -> None:
    for _ in range(1500):
        plane.put("T", bytes(1000))
    plane.store.checkpoint()
    hour = datetime.fromtimestamp(plane.now_ms() / 1000 + 73 * 3600).hour
    change(plane.store_config, {"deleteWhen": f"{(hour + 12) % 24:02}"})
    plane.clock.advance(73 * 3600)
    assert plane.store.min_physical_offset == 0
    sum(plane.store.clean(plane.now_ms()))
    kept = plane.store.min_physical_offset
    assert plane.ask(RequestCode.DELETE_EXPIRED_COMMITLOG).code == 0
    assert (kept, plane.store.min_physical_offset) == (0, 1 << 20)


def test_there_is_nothing_to_clean_in_queues(plane: BrokerInMemory) -> None:
    assert plane.ask(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE).code == 0
