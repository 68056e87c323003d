"""What a proxy reads from the topic at a real broker, whatever stands there."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.record import decode_records
from rocketmq_tw.net.errors import RequestTimeout
from rocketmq_tw.proxy.brokers import IProxyClient
from rocketmq_tw.proxy.heartbeat_sync import reading
from rocketmq_tw.proxy.heartbeat_sync.records import REMOTING, Origin, ProxyIdentity
from rocketmq_tw.proxy.heartbeat_sync.sync import HeartbeatSync
from rocketmq_tw.wire.bodies.clients import ConsumerData
from rocketmq_tw.wire.bodies.route import TopicRouteData
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.offsets import GetMaxOffsetResponseHeader
from tests.support.broker import BrokerInMemory
from tests.support.proxy import HEARTBEAT_SYNC_TOPIC as TOPIC
from tests.support.proxy import (
    IDENTITY,
    BrokersInMemory,
    FakeClient,
    PlayedBrokers,
    heartbeat_sync_of,
)

#: A member of a group at the proxy 10.0.0.7.
CONSUMER = ConsumerData(group_name="G")
ORIGIN = Origin("c", REMOTING, "10.0.0.9:4", "10.0.0.7:1", "JAVA", 475)


def heartbeat(
    client_id: str, kind: str = "REGISTER", proxy: str = "10.0.0.5%1%2", **more: Any
) -> bytes:
    return json.dumps(
        {
            "heartbeatType": kind,
            "clientId": client_id,
            "group": "G",
            "localProxyId": proxy,
            "channelData": json.dumps(
                {"remoteProxyIp": "10.0.0.5", "remoteAddress": "10.0.0.9:4", "type": "REMOTING"}
            ),
            **more,
        }
    ).encode()


class Topic(BrokersInMemory):
    """A real broker that has the topic, or gets it; `pulls` counts."""

    def __init__(self, *, has_topic: bool = True) -> None:
        super().__init__(BrokerInMemory(broker={"auto_create_subscription_group": False}))
        self.clock = self.broker.clock
        self.pulls = 0
        if has_topic:
            self.add_topic(TOPIC, {"broker-a": 1})
        self.routes["DefaultCluster"] = TopicRouteData(broker_datas=self.datas())

    def datas(self) -> Any:
        scratch = BrokersInMemory(self.broker)
        scratch.add_topic("DefaultCluster", {"broker-a": 1})
        return scratch.routes["DefaultCluster"].broker_datas

    def ask(
        self,
        broker_name: str,
        request: RemotingCommand,
        timeout: float,
        client: IProxyClient | None = None,
    ) -> Deferred[RemotingCommand]:
        self.pulls += request.code == RequestCode.PULL_MESSAGE
        if request.code == RequestCode.UPDATE_AND_CREATE_TOPIC:
            super().add_topic(TOPIC, {"broker-a": 1})
        return super().ask(broker_name, request, timeout, client)

    def write(self, body: bytes, **more: Any) -> None:
        self.broker.send(body, topic=TOPIC, queue_id=0, **more)

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.1)):
            self.clock.advance(0.1)

    def proxy(self, identity: ProxyIdentity = IDENTITY) -> HeartbeatSync:
        return heartbeat_sync_of(self.clock, self, identity, self.broker.now_ms)


def ids(heartbeat_sync: HeartbeatSync) -> list[str | None]:
    return [member.connection.client_id for member in heartbeat_sync.members.of("G")]


def test_members_of_others_are_known_while_they_are_told_of() -> None:
    topic = Topic()
    proxy = topic.proxy()
    proxy.start()
    topic.pass_time(12)
    topic.write(heartbeat("a"))
    topic.write(heartbeat("b"))
    topic.pass_time(1)
    assert ids(proxy) == ["a", "b"]
    topic.write(heartbeat("a", "UNREGISTER"))
    topic.pass_time(1)
    assert ids(proxy) == ["b"]
    topic.pass_time(140)
    assert ids(proxy) == []
    proxy.stop()
    pulls = topic.pulls
    topic.pass_time(40)
    assert topic.pulls == pulls


@pytest.mark.parametrize("was_told_before", [False, True])
def test_a_clock_that_ran_ahead_hides_nobody(was_told_before: bool) -> None:
    topic = Topic()
    proxy = topic.proxy()
    if not was_told_before:
        proxy.start()
        topic.pass_time(12)
    wrong = topic.broker.now_ms() + 60_000
    topic.write(heartbeat("a", lastUpdateTimestamp=wrong))
    topic.write(heartbeat("a", "UNREGISTER", lastUpdateTimestamp=wrong + 1))
    topic.pass_time(20)
    assert ids(proxy) == []
    topic.write(heartbeat("a", lastUpdateTimestamp=topic.broker.now_ms()))
    if was_told_before:
        topic.pass_time(20)
        proxy.start()
    topic.pass_time(12)
    assert ids(proxy) == ["a"]


def test_a_proxy_that_starts_hears_what_was_told_lately() -> None:
    topic = Topic()
    topic.write(heartbeat("old"))
    topic.pass_time(100)
    topic.write(heartbeat("a"))
    topic.pass_time(30)
    proxy = topic.proxy()
    proxy.start()
    topic.pass_time(12)
    assert ids(proxy) == ["a"]
    # As if it had been there at the time.
    topic.pass_time(90)
    assert ids(proxy) == []


def test_what_is_new_counts_whatever_the_broker_s_clock_says() -> None:
    topic = Topic()
    proxy = heartbeat_sync_of(topic.clock, topic, now_ms=lambda: topic.broker.now_ms() + 3_600_000)
    proxy.start()
    topic.pass_time(12)
    topic.write(heartbeat("a"))
    topic.pass_time(1)
    assert ids(proxy) == ["a"]


def test_what_this_proxy_and_others_of_ours_tell_is_passed_over() -> None:
    """Brokers know these clients, so that one that is killed leaves no member behind."""
    topic = Topic()
    here, there = topic.proxy(), topic.proxy(ProxyIdentity("10.0.0.7", 1, 2))
    for proxy in (here, there):
        proxy.start()
    topic.pass_time(12)
    there.telling.heard(FakeClient("c"), ORIGIN, [CONSUMER], b"1", lambda _: None)  # type: ignore[arg-type]
    topic.write(heartbeat("own", proxy="10.0.0.1%8080%8081"))
    topic.pass_time(1)
    assert topic.broker.store.max_queue_offset(TOPIC, 0) == 2
    assert (ids(here), ids(there)) == ([], ["own"])


def test_a_member_that_brokers_do_not_see_counts_as_long_as_they_do_not() -> None:
    """There are more members at its proxy than connections."""
    topic = Topic()
    here, there = topic.proxy(), topic.proxy(ProxyIdentity("10.0.0.7", 1, 2))
    for proxy in (here, there):
        proxy.start()
    topic.pass_time(12)
    client: Any = FakeClient("c")
    changed: list[str] = []
    here.members.changed.add(changed.append)
    for unseen, known in ((("G",), ["c"]), ((), []), (("G",), ["c"])):
        for _ in range(2):
            there.telling.heard(client, ORIGIN, [CONSUMER], b"1", lambda _: None, unseen)
            topic.pass_time(1)
            assert ids(here) == known
    there.telling.gone(client)
    topic.pass_time(1)
    assert ids(here) == []
    assert changed == ["G"] * 4
    assert ids(there) == []


def test_the_topic_and_the_group_are_made_where_they_lack() -> None:
    topic = Topic(has_topic=False)
    proxy = topic.proxy()
    proxy.start()
    topic.pass_time(20)
    topic.write(heartbeat("a"))
    topic.pass_time(1)
    assert ids(proxy) == ["a"]


def test_nonsense_is_passed_over() -> None:
    topic = Topic()
    proxy = topic.proxy()
    proxy.start()
    topic.pass_time(12)
    for body in (b"x", b"[" * 100_000, b"{}", heartbeat("c", padding="x" * 200_000), b"null"):
        topic.write(body)
    topic.write(heartbeat("a"))
    topic.pass_time(1)
    assert ids(proxy) == ["a"]


def counted(taken: list[bytes]) -> Callable[[bytes], list[StoredMessage]]:
    def decode(data: bytes) -> list[StoredMessage]:
        records = decode_records(data)
        taken.extend(record.body for record in records)
        return records

    return decode


def test_a_flood_takes_so_many_messages_a_second_and_the_rest_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "MAX_LAG", 200)
    topic = Topic()
    proxy = topic.proxy()
    proxy.start()
    topic.pass_time(12)
    taken: list[bytes] = []
    monkeypatch.setattr(reading, "decode_records", counted(taken))
    for _ in range(3000):
        topic.write(b"flood")
    topic.write(heartbeat("a"))
    topic.pass_time(1)
    assert len(taken) < 700
    topic.pass_time(5)
    assert taken[-1] == heartbeat("a")
    assert len(taken) < 700


def test_a_broker_that_refuses_is_asked_slowly() -> None:
    clock, brokers = Clock(), PlayedBrokers()
    brokers.add_topic(TOPIC, {"broker-a": 1})
    offset = GetMaxOffsetResponseHeader(offset=0)
    for code in (RequestCode.GET_MAX_OFFSET, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP):
        brokers.answer(code, lambda request: request.response(header=offset))
    brokers.answer(
        RequestCode.PULL_MESSAGE, lambda request: request.response(ResponseCode.SYSTEM_ERROR, "no")
    )
    proxy = heartbeat_sync_of(clock, brokers)
    proxy.start()
    clock.pump([0.1] * 600)
    pulls = [each for each in brokers.asked if each.request.code == RequestCode.PULL_MESSAGE]
    assert 5 <= len(pulls) <= 14


def test_a_queue_that_comes_back_has_one_reader() -> None:
    """A route lacks it for a moment while a pull of its reader is held at the broker."""
    clock, brokers = Clock(), PlayedBrokers()
    brokers.add_topic(TOPIC, {"broker-a": 1})
    offset = GetMaxOffsetResponseHeader(offset=0)
    for code in (RequestCode.GET_MAX_OFFSET, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP):
        brokers.answer(code, lambda request: request.response(header=offset))
    held: set[Deferred[RemotingCommand]] = set()

    def hold(request: RemotingCommand) -> Deferred[RemotingCommand]:
        answer: Deferred[RemotingCommand] = Deferred()
        held.add(answer)
        clock.callLater(reading.HOLD_SECONDS, let_go, answer)
        return answer

    def let_go(answer: Deferred[RemotingCommand]) -> None:
        held.remove(answer)
        answer.errback(RequestTimeout("broker-a", RequestCode.PULL_MESSAGE, reading.HOLD_SECONDS))

    brokers.answer(RequestCode.PULL_MESSAGE, hold)
    proxy = heartbeat_sync_of(clock, brokers)
    proxy.start()
    clock.pump([0.1] * 190)
    route = brokers.routes.pop(TOPIC)
    clock.pump([0.1] * 100)
    brokers.routes[TOPIC] = route
    for _ in range(400):
        clock.advance(0.1)
        if clock.seconds() > 31:
            assert len(held) <= 1
    assert held, "it is read on"
    proxy.stop()
