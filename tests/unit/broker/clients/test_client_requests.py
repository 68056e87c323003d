"""What clients say of themselves, and what administrators ask of them."""

import pytest
from twisted.internet.defer import Deferred

from rocketmq_tw.net.errors import RequestTimeout
from rocketmq_tw.wire.bodies.base import decode_body, encode_body
from rocketmq_tw.wire.bodies.clients import (
    MAX_HEARTBEAT_BYTES,
    MAX_SUBSCRIPTIONS,
    ConsumerConnection,
    ConsumerIdList,
    HeartbeatData,
    ProducerConnection,
    ProducerTable,
)
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.clients import (
    GetConsumerConnectionListRequestHeader,
    GetConsumerListByGroupRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetProducerConnectionListRequestHeader,
    UnregisterClientRequestHeader,
)
from tests.support.asked import refused
from tests.support.broker import BrokerInMemory
from tests.support.heartbeats import push_consumer
from tests.support.network import FakePeer


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
    every = decode_body(ProducerTable, plane.ask(RequestCode.GET_ALL_PRODUCER_INFO).body)
    # With the slash that Java writes before an address, as tools of stock's show it.
    assert [each.remote_ip for each in every.data["P"]] == [f"/{plane.peer.address}"]
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


def test_more_subscriptions_of_a_group_than_may_be_are_refused(plane: BrokerInMemory) -> None:
    most = tuple(f"T{number}" for number in range(MAX_SUBSCRIPTIONS))
    with refused(ResponseCode.SYSTEM_ERROR):
        plane.heartbeat("c1", plane.peer, topics=(*most, "one more"))
    assert plane.clients.consumer_group("G") is None
    plane.heartbeat("c1", plane.peer, topics=most)
    assert plane.clients.subscription("G", most[-1]) is not None


def test_groups_with_many_subscriptions_are_registered_in_steps(plane: BrokerInMemory) -> None:
    topics = tuple(f"T{number}" for number in range(80))
    consumers = [push_consumer(f"G{number}", *topics) for number in range(3)]
    data = HeartbeatData(client_id="c1", consumer_data_set=consumers)
    request = RemotingCommand.request(RequestCode.HEART_BEAT, None, encode_body(data))
    answer = plane.handlers[request.code](request, plane.peer)
    assert isinstance(answer, Deferred)
    assert plane.clients.consumer_group("G0") is not None
    assert plane.clients.consumer_group("G1") is None
    plane.clock.advance(1)
    assert plane.clients.consumer_group("G2") is not None


def test_an_empty_heartbeat_of_a_client_says_nothing_wrong(plane: BrokerInMemory) -> None:
    body = HeartbeatData(client_id="c1")
    assert plane.ask(RequestCode.HEART_BEAT, body=body).code == 0
