"""What a real broker asks and tells the classic clients of a proxy (39, 40, 220, 221)."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.message.record import decode_record
from rocketmq_tw.proxy.brokers import IBrokers
from rocketmq_tw.proxy.cluster.brokers import ClusterBrokers
from rocketmq_tw.proxy.local.brokers import LocalBrokers
from rocketmq_tw.proxy.remoting.requests import ClassicRequests
from rocketmq_tw.wire.bodies.base import decode_body, encode_body
from rocketmq_tw.wire.bodies.clients import (
    ConsumerIdList,
    HeartbeatData,
    ProducerData,
)
from rocketmq_tw.wire.bodies.queues import ConsumerStatusBody, MessageQueue, ResetOffsetBody
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import LanguageCode, RemotingCommand
from rocketmq_tw.wire.headers.offsets import (
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from tests.support.broker import BrokerInMemory
from tests.support.heartbeats import push_consumer
from tests.support.name_server import NameServerInMemory
from tests.support.network import FakePeer
from tests.support.proxy import heartbeat_sync_of, undelivered_pops
from tests.support.transactions import begin

NAME_SERVER, BROKER = "10.0.0.1:9876", "10.0.0.2:10911"
QUEUE = MessageQueue(topic="Topic", broker_name="broker-a", queue_id=0)


class Site:
    """A broker, and the classic port of a proxy before it or in its process."""

    def __init__(self, *, is_local: bool, lanes: int = 64) -> None:
        settings = {"namesrv_addr": NAME_SERVER, "use_server_side_reset_offset": False}
        self.broker = BrokerInMemory(address=BROKER, broker=settings)
        self.clock, network = self.broker.clock, self.broker.network
        network.serve(NAME_SERVER, NameServerInMemory(self.clock).handlers)
        self.broker.add_topic("Topic", read_queue_nums=1, write_queue_nums=1)
        config = ProxyConfig(namesrv_addr=NAME_SERVER, max_connections_per_broker=lanes)
        cluster = ClusterBrokers(self.clock, config, lambda: network.client("10.0.0.3"))
        brokers: IBrokers = cluster
        if is_local:
            brokers = LocalBrokers(self.clock, self.broker.broker, cluster)
        self.port = ClassicRequests(
            brokers,
            self.clock,
            heartbeat_sync_of(self.clock, brokers),
            undelivered_pops(self.clock, brokers),
        )
        self.pass_time(35)
        cluster.start()
        self.pass_time(6)

    def pass_time(self, seconds: float) -> None:
        self.clock.pump([0.1] * int(seconds * 10))

    def enter(self, client_id: str, group: str = "g", peer: FakePeer | None = None) -> FakePeer:
        """A client comes that consumes in a group, and produces in group P; with `peer` it is one
        that has come before."""
        peer = peer or FakePeer(f"10.0.0.9:{40000 + len(client_id)}")
        consumer = push_consumer(group, "Topic", consume_from_where="CONSUME_FROM_LAST_OFFSET")
        data = HeartbeatData(
            client_id=client_id,
            producer_data_set=[ProducerData(group_name="P")],
            consumer_data_set=[consumer],
        )
        request = RemotingCommand.request(RequestCode.HEART_BEAT, body=encode_body(data))
        request.language = LanguageCode.JAVA
        answered = self.port.handlers()[RequestCode.HEART_BEAT](request, peer)
        codes: list[int] = []
        Deferred.fromCoroutine(answered).addCallback(lambda answer: codes.append(answer.code))
        self.pass_time(2)
        assert codes == [ResponseCode.SUCCESS]
        return peer

    def members(self, peer: FakePeer, group: str = "g") -> list[str]:
        """The members of a group as a client at the proxy hears of them."""
        request = RemotingCommand.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
        request.ext_fields = {"consumerGroup": group}
        answers: list[RemotingCommand] = []
        asked = self.port.handlers()[request.code](request, peer)
        Deferred.fromCoroutine(asked).addCallback(answers.append)
        self.pass_time(1)
        return sorted(decode_body(ConsumerIdList, answers[0].body).consumer_id_list)

    def seen(self, group: str = "g") -> list[str]:
        """The members of a group that the broker knows."""
        found = self.broker.clients.consumer_group(group)
        return [] if found is None else sorted(found.client_ids())

    def order(self, code: int, header: Any) -> list[RemotingCommand]:
        """An administrator asks the broker; what is returned has the answer once it came."""
        answers: list[RemotingCommand] = []
        tool = self.broker.network.client("127.0.0.1")
        tool.request(BROKER, RemotingCommand.request(code, header), 30).addCallback(answers.append)
        self.pass_time(1)
        return answers


def told(peer: FakePeer, code: int) -> list[RemotingCommand]:
    return [each for each in peer.oneways if each.code == code]


@pytest.fixture(params=["cluster", "local"])
def site(request: pytest.FixtureRequest) -> Site:
    return Site(is_local=request.param == "local")


def test_members_hear_of_each_other(site: Site) -> None:
    code = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    first, other = site.enter("first"), site.enter("other", "h")
    first.oneways.clear()
    other.oneways.clear()
    second = site.enter("second one")
    assert told(first, code) and not told(other, code)
    first.oneways.clear()
    second.lose()
    site.pass_time(2)
    assert told(first, code) and not told(other, code)


def test_offsets_are_reset_at_all_members_of_a_group(site: Site) -> None:
    first, second, other = site.enter("first"), site.enter("second one"), site.enter("x", "h")
    site.broker.send(b"m")
    site.broker.offsets.commit("g", "Topic", 0, 1, "test")
    header = ResetOffsetRequestHeader(group="g", topic="Topic", timestamp=0, is_force=True)
    (answer,) = site.order(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    code = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
    for peer in (first, second):
        (reset,) = told(peer, code)
        assert decode_body(ResetOffsetBody, reset.body).offset_table == {QUEUE: 0}
    assert not told(other, code)


def test_members_tell_their_offsets(site: Site) -> None:
    peers = {client_id: site.enter(client_id) for client_id in ("first", "second one")}
    header = GetConsumerStatusRequestHeader(topic="Topic", group="g")
    answers = site.order(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header)
    for number, peer in enumerate(peers.values()):
        ((asked, answered),) = peer.requests
        assert asked.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
        body = encode_body(ConsumerStatusBody(message_queue_table={QUEUE: number}))
        answered.callback(asked.response(body=body))
    site.pass_time(1)
    status = decode_body(ConsumerStatusBody, answers[0].body)
    assert status.consumer_table == {"first": {QUEUE: 0}, "second one": {QUEUE: 1}}


def test_a_producer_is_asked_about_its_transaction(site: Site) -> None:
    peer = site.enter("first")
    begin(site.broker)
    site.pass_time(90)
    question, *_ = told(peer, RequestCode.CHECK_TRANSACTION_STATE)
    # The broker's name is what its decision is passed on by.
    assert question.ext_fields["bname"] == "broker-a"
    assert decode_record(question.body).body == b"x"


def test_more_members_than_connections_divide_queues_in_one_way() -> None:
    site = Site(is_local=False, lanes=2)
    names = [f"member{'x' * number}" for number in range(5)]
    peers = {name: site.enter(name) for name in names}
    code = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    for _ in range(3):
        # Each of them tells of itself again and again.
        site.pass_time(30)
        for name, peer in peers.items():
            site.enter(name, peer=peer)
            assert site.seen() == names[:2]
            assert site.members(peer) == names
    for peer in peers.values():
        peer.oneways.clear()
    # They hear of all that come and go, whether the broker sees these or not.
    peers["other"] = site.enter("other")
    assert all(told(peers[name], code) for name in names)
    for gone in ("other", names[0]):
        for peer in peers.values():
            peer.oneways.clear()
        peers.pop(gone).lose()
        site.pass_time(2)
        assert all(told(peer, code) for peer in peers.values())
        assert site.members(peers[names[1]]) == sorted(peers)
    site.enter(names[3], peer=peers[names[3]])
    assert site.seen() == [names[1], names[3]]
    assert site.members(peers[names[1]]) == names[1:]
    # What a broker tells all consumers reaches those too.
    site.broker.send(b"m")
    site.broker.offsets.commit("g", "Topic", 0, 1, "test")
    header = ResetOffsetRequestHeader(group="g", topic="Topic", timestamp=0, is_force=True)
    site.order(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    for peer in peers.values():
        assert len(told(peer, RequestCode.RESET_CONSUMER_CLIENT_OFFSET)) == 1


def test_what_a_broker_does_not_see_of_a_client_holds_up_nothing_else_of_it() -> None:
    site = Site(is_local=False, lanes=1)
    site.enter("first")
    both = site.enter("second one", "h")
    site.enter("second one", "g", both)
    assert site.seen("g") == ["first"] and site.seen("h") == []
    # It is the second producer of P too.
    consumers = [push_consumer(group, "Topic") for group in ("g", "h")]
    data = HeartbeatData(client_id="second one", consumer_data_set=consumers)
    request = RemotingCommand.request(RequestCode.HEART_BEAT, body=encode_body(data))
    Deferred.fromCoroutine(site.port.handlers()[RequestCode.HEART_BEAT](request, both))
    site.pass_time(1)
    assert site.seen("g") == ["first"] and site.seen("h") == ["second one"]
