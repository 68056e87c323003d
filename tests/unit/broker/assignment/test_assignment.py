"""400, 401 and 402: queues that the broker divides, and how they are read."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.testing import MemoryReactorClock

from rocketmq_tw.broker.assignment.dividing import STRATEGIES, allocate_for_pop
from rocketmq_tw.net.interfaces import Handler
from rocketmq_tw.wire.bodies.base import decode_body, encode_body
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.bodies.queues import (
    MessageQueue,
    MessageRequestModeTable,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from rocketmq_tw.wire.bodies.route import QueueData, TopicRouteData
from rocketmq_tw.wire.bodies.topics import TopicQueueMappingInfo
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.broker import BrokerInMemory, ok
from tests.support.network import FakePeer, MemoryNetwork


def ask(broker: BrokerInMemory, code: int, body: Any) -> RemotingCommand:
    answer = broker.request(RemotingCommand.request(code, None, encode_body(body)))
    assert answer is not None
    return answer


def with_members(
    *members: str, route: TopicRouteData | None = None, **settings: Any
) -> BrokerInMemory:
    clock = MemoryReactorClock()
    network = MemoryNetwork(clock)
    if route is not None:
        body = encode_body(route)
        handlers: dict[int, Handler] = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: lambda request, peer: request.response(body=body)
        }
        network.serve("127.0.0.1:9876", handlers)
        settings["namesrv_addr"] = "127.0.0.1:9876"
    broker = BrokerInMemory(clock=clock, network=network, broker=settings)
    broker.add_topic("Topic", read_queue_nums=4, write_queue_nums=4)
    broker.groups.update(SubscriptionGroupConfig(group_name="G"))
    for number, member in enumerate(members):
        broker.heartbeat(member, FakePeer(f"127.0.0.1:{50_000 + number}"), topics=("Topic",))
    return broker


def assigned(broker: BrokerInMemory, **fields: Any) -> list[tuple[int, str]] | None:
    """Queue ids and modes."""
    body = {
        "topic": "Topic",
        "consumer_group": "G",
        "client_id": "a",
        "strategy_name": "AVG",
    }
    answer = ask(broker, RequestCode.QUERY_ASSIGNMENT, QueryAssignmentRequestBody(**body | fields))
    ok(answer)
    found = decode_body(QueryAssignmentResponseBody, answer.body).message_queue_assignments
    if found is None:
        return None
    return [(each.message_queue.queue_id, each.mode) for each in found if each.message_queue]


def set_mode(broker: BrokerInMemory, **fields: Any) -> RemotingCommand:
    body = {"topic": "Topic", "consumer_group": "G", "mode": "POP"}
    return ask(
        broker,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
        SetMessageRequestModeRequestBody(**body | fields),
    )


def test_pull_is_divided() -> None:
    broker = with_members("a", "b")
    assert assigned(broker) == [(0, "PULL"), (1, "PULL")]
    assert assigned(broker, client_id="b") == [(2, "PULL"), (3, "PULL")]
    by_circle = assigned(broker, strategy_name="AVG_BY_CIRCLE")
    assert by_circle == [(0, "PULL"), (2, "PULL")]


def test_pop_is_shared_by_all() -> None:
    broker = with_members("a", "b")
    ok(set_mode(broker))
    assert assigned(broker) == [(-1, "POP")]
    assert assigned(broker, client_id="b") == [(-1, "POP")]


def test_pop_is_shared_with_neighbours() -> None:
    broker = with_members("a", "b", "c", "d")
    ok(set_mode(broker, pop_share_queue_num=1))
    assert assigned(broker) == [(0, "POP"), (1, "POP")]
    assert assigned(broker, client_id="d") == [(3, "POP"), (0, "POP")]


def test_broadcasting_has_all() -> None:
    broker = with_members("a", "b")
    assert len(assigned(broker, message_model="BROADCASTING") or ()) == 4


def test_what_is_not_known_leaves_the_client_alone() -> None:
    broker = with_members()
    assert assigned(broker) is None
    assert assigned(broker, topic="Nowhere") is None
    broker = with_members("a")
    assert assigned(broker, strategy_name="MINE") is None


def test_a_default_mode() -> None:
    broker = with_members("a", default_message_request_mode="POP")
    assert assigned(broker) == [(-1, "POP")]


@pytest.mark.parametrize(
    ("fields", "code", "says"),
    [
        ({"topic": "%RETRY%G"}, ResponseCode.NO_PERMISSION, "%RETRY%G"),
        ({"topic": "Nowhere"}, ResponseCode.TOPIC_NOT_EXIST, "Nowhere"),
        ({"mode": "PUSH"}, ResponseCode.INVALID_PARAMETER, "'PUSH'"),
        ({"pop_share_queue_num": 1 << 31}, ResponseCode.SYSTEM_ERROR, "popShareQueueNum"),
    ],
)
def test_refusals(fields: dict[str, Any], code: int, says: str) -> None:
    answer = set_mode(with_members("a"), **fields)
    assert answer.code == code and says in (answer.remark or "")


def test_the_file_and_the_table() -> None:
    broker = with_members("a")
    ok(set_mode(broker))
    path = f"{broker.store.paths.config}/messageRequestMode.json"
    kept = (
        b'{"messageRequestModeMap":{"Topic":{"G":{"consumerGroup":"G","mode":"POP",'
        b'"popShareQueueNum":0,"topic":"Topic"}}}}'
    )
    assert broker.files.read(path) == kept
    answer = broker.ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
    assert answer.body == kept
    broker.stop()
    again = BrokerInMemory(broker.files, clock=broker.clock)
    answer = again.ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
    table = decode_body(MessageRequestModeTable, answer.body)
    assert table.message_request_mode_map["Topic"]["G"].mode == "POP"


def test_queues_of_other_brokers() -> None:
    route = TopicRouteData(
        queue_datas=[
            QueueData(broker_name=name, read_queue_nums=2, write_queue_nums=2, perm=6)
            for name in ("broker-b", "broker-a")
        ]
    )
    assert names_and_ids(with_members("a", route=route)) == [
        ("broker-a", 0), ("broker-a", 1), ("broker-b", 0), ("broker-b", 1)
    ]  # fmt: skip


def test_pull_is_about_logic_queues_and_pop_about_physical_ones() -> None:
    data = QueueData(broker_name="broker-a", read_queue_nums=3, write_queue_nums=3, perm=6)
    mapping = TopicQueueMappingInfo(total_queues=2, bname="broker-a", curr_id_map={0: 1})
    route = TopicRouteData(queue_datas=[data], topic_queue_mapping_by_broker={"broker-a": mapping})
    broker = with_members("a", route=route)
    assert names_and_ids(broker) == [("__syslo__global__", 0), ("__syslo__global__", 1)]
    ok(set_mode(broker))
    assert names_and_ids(broker) == [("broker-a", -1)]


def names_and_ids(broker: BrokerInMemory) -> list[tuple[str, int]]:
    """The queues that the broker gives once a name server has answered it."""
    body = QueryAssignmentRequestBody(
        topic="Topic", consumer_group="G", client_id="a", strategy_name="AVG"
    )
    request = RemotingCommand.request(RequestCode.QUERY_ASSIGNMENT, None, encode_body(body))
    peer = FakePeer()
    answer = broker.request(request, peer)
    for _ in range(20):
        broker.clock.advance(0.01)
    answer = answer or peer.replies[-1]
    found = decode_body(QueryAssignmentResponseBody, answer.body).message_queue_assignments or []
    queues = [each.message_queue for each in found if each.message_queue]
    return [(queue.broker_name, queue.queue_id) for queue in queues]


def test_more_members_than_queues_have_one_each() -> None:
    queues = [MessageQueue(topic="T", broker_name="b", queue_id=n) for n in range(2)]
    shares = [
        allocate_for_pop(STRATEGIES["AVG"], queues, ["a", "b", "c", "d"], member, 1)
        for member in "abcd"
    ]
    assert [[queue.queue_id for queue in share] for share in shares] == [[0], [1], [0], [1]]


def test_modes_go_with_their_topics_and_groups() -> None:
    broker = with_members("a")
    broker.add_topic("Other")
    for name in ("gone", "H"):
        broker.groups.update(SubscriptionGroupConfig(group_name=name))
    for fields in ({}, {"consumer_group": "gone"}, {"topic": "Other", "consumer_group": "H"}):
        ok(set_mode(broker, **fields))
    broker.clock.advance(600)
    assert len(kept_modes(broker)) == 3
    ok(broker.request(deletion(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="gone")))
    ok(broker.request(deletion(RequestCode.DELETE_TOPIC_IN_BROKER, topic="Other")))
    for _ in range(3):
        broker.clock.advance(600)
    assert kept_modes(broker) == [("Topic", "G")]
    broker.stop()
    again = BrokerInMemory(broker.files)
    assert kept_modes(again) == [("Topic", "G")]


def deletion(code: int, **fields: str) -> RemotingCommand:
    command = RemotingCommand.request(code)
    command.ext_fields = fields
    return command


def kept_modes(broker: BrokerInMemory) -> list[tuple[str, str]]:
    """Topics and groups, as 402 tells them."""
    answer = ask(broker, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, {})
    table = decode_body(MessageRequestModeTable, answer.body).message_request_mode_map
    return sorted((topic, group) for topic, groups in table.items() for group in groups)
