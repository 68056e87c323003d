"""Keys of a proxy reach the parts that they are for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.properties import join_properties
from rocketmq_tw.message.record import encode_record
from rocketmq_tw.proxy.messaging.methods import path
from rocketmq_tw.proxy.proto import messages as pb
from rocketmq_tw.proxy.proxy import Proxy
from rocketmq_tw.runtime.threads import at_once
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.route import TopicRouteData
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.send import CheckTransactionStateRequestHeader
from rocketmq_tw.wire.headers.topics import CreateTopicRequestHeader
from tests.support.classic import classic_request
from tests.support.network import FakePeer
from tests.support.proxy import HEARTBEAT_SYNC_TOPIC, FakeCall, PlayedBrokers, answer_of
from tests.support.wait import result_of


class Site:
    """A whole proxy before a broker that has topic T."""

    def __init__(self, **keys: Any) -> None:
        self.clock = Clock()
        self.brokers = PlayedBrokers()
        self.brokers.add_topic("T", {"broker-a": 1})
        self.brokers.add_topic(HEARTBEAT_SYNC_TOPIC, {"broker-a": 1})
        for code in (RequestCode.HEART_BEAT, RequestCode.END_TRANSACTION):
            self.brokers.answer(code, lambda request: request.response())
        self.proxy = Proxy(self.clock, ProxyConfig(**keys), self.brokers, at_once)

    def route(self) -> dict[int, str]:
        """Where classic clients are told that the broker is."""
        request = classic_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")
        peer = FakePeer(local_address="10.0.0.1:8080")
        asked = self.proxy.handlers[RequestCode.GET_ROUTEINFO_BY_TOPIC](request, peer)
        answer = result_of(self.clock, Deferred.fromCoroutine(asked))
        (broker,) = decode_body(TopicRouteData, answer.body).broker_datas
        return broker.broker_addrs

    def commit(self) -> int:
        """The code of the answer to a decision that names the message's id only."""
        request = pb.EndTransactionRequest(
            topic=pb.Resource(name="T"),
            message_id="ID",
            transaction_id="ID",
            resolution=pb.TransactionResolution.COMMIT,
        )
        handler = self.proxy.methods[path("EndTransaction")].handler
        return answer_of(handler(request, FakeCall()), self.clock).status.code


@pytest.mark.parametrize(
    ("keys", "address"),
    [
        ({}, "10.0.0.1:8080"),
        ({"advertised_address": "proxy.example:1"}, "proxy.example:1"),
        ({"remoting_access_addr": "classic.example"}, "classic.example:9"),
        (
            {"remoting_access_addr": "fe80::1", "advertised_address": "proxy.example:1"},
            "[fe80::1]:9",
        ),
    ],
)
def test_where_classic_clients_are_told_that_brokers_are(
    keys: dict[str, str], address: str
) -> None:
    assert Site(remoting_listen_port=9, **keys).route() == {0: address}


def test_the_name_by_which_proxies_tell_each_other_apart() -> None:
    site = Site(local_serve_addr="10.9.8.7", remoting_listen_port=1, grpc_server_port=2)
    told: list[dict[str, Any]] = []

    def store(request: RemotingCommand) -> RemotingCommand:
        told.append(json.loads(request.body))
        return request.response()

    site.brokers.answer(RequestCode.SEND_MESSAGE_V2, store)
    site.proxy.start()
    settings = pb.Settings(client_type=pb.SIMPLE_CONSUMER)
    settings.subscription.subscriptions.add().topic.name = "T"
    site.proxy.clients.settle("c", FakeCall("c"), settings, "g", ["T"])
    site.clock.pump([1.0] * 5)
    assert {each["localProxyId"] for each in told} == {"10.9.8.7%1%2"}


def test_how_long_it_is_known_where_a_half_message_stands() -> None:
    """A broker has asked about it, and its client decides by the id that it gave the message."""
    site = Site(transaction_data_expire_millis=7_000)
    settings = pb.Settings(client_type=pb.PRODUCER)
    client = site.proxy.clients.settle("p", FakeCall("p"), settings, "", ["T"])
    half = StoredMessage(
        topic="T",
        queue_id=0,
        body=b"half",
        properties=join_properties({"UNIQ_KEY": "ID", "PGROUP": "T"}),
        born_host=("10.0.0.7", 1),
        store_host=("10.0.0.8", 10911),
    )
    header = CheckTransactionStateRequestHeader(
        tran_state_table_offset=8, commit_log_offset=9000, transaction_id="ID", bname="broker-a"
    )
    code = RequestCode.CHECK_TRANSACTION_STATE
    question = RemotingCommand.request(code, header, encode_record(half))
    assert site.commit() == pb.INVALID_TRANSACTION_ID
    for seconds, status in ((7.1, pb.INVALID_TRANSACTION_ID), (6.9, pb.OK)):
        answer_of(client.ask(question, 5.0), site.clock)
        site.clock.advance(seconds)
        assert site.commit() == status


@pytest.mark.parametrize(
    ("keys", "brokers"),
    [
        ({}, {"broker-a"}),
        ({"rocket_mq_cluster_name": "Second"}, {"broker-b"}),
        ({"heartbeat_syncer_topic_cluster_name": "Third"}, {"broker-c"}),
        (
            {"rocket_mq_cluster_name": "Second", "heartbeat_syncer_topic_cluster_name": "Third"},
            {"broker-c"},
        ),
        ({"rocket_mq_cluster_name": "Unknown"}, {"broker-a", "broker-b", "broker-c"}),
    ],
)
def test_the_cluster_in_which_proxies_have_their_topic(
    keys: dict[str, str], brokers: set[str]
) -> None:
    site = Site(**keys)
    del site.brokers.routes[HEARTBEAT_SYNC_TOPIC]
    for cluster, name in (
        ("DefaultCluster", "broker-a"),
        ("Second", "broker-b"),
        ("Third", "broker-c"),
    ):
        # Each broker has a topic of its cluster's name.
        site.brokers.add_topic(cluster, {name: 1})
    code = RequestCode.UPDATE_AND_CREATE_TOPIC
    site.brokers.answer(code, lambda request: request.response())
    site.proxy.start()
    site.clock.pump([1.0] * 5)
    asked = [each for each in site.brokers.asked if each.request.code == code]
    assert {each.broker_name for each in asked} == brokers
    topics = {each.request.header(CreateTopicRequestHeader).topic for each in asked}
    assert topics == {HEARTBEAT_SYNC_TOPIC}
