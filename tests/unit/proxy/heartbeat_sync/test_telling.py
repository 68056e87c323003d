"""What a proxy tells others of its consumers."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from rocketmq_tw.net.errors import ConnectError
from rocketmq_tw.proxy.heartbeat_sync import telling as module
from rocketmq_tw.proxy.heartbeat_sync.records import (
    GRPC,
    MAX_RECORD_BYTES,
    REGISTER,
    UNREGISTER,
    ClientChannel,
    ConsumerHeartbeat,
    Origin,
    decode_consumer,
)
from rocketmq_tw.wire.bodies.clients import ConsumerData, SubscriptionData
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.proxy import HEARTBEAT_SYNC_TOPIC, FakeClient, PlayedBrokers, heartbeat_sync_of


class Site:
    """A proxy whose brokers have the topic; `told` is what they were sent."""

    def __init__(self) -> None:
        self.clock, self.brokers = Clock(), PlayedBrokers()
        self.brokers.add_topic(HEARTBEAT_SYNC_TOPIC, {"broker-a": 1, "broker-b": 1})
        self.brokers.answer(RequestCode.SEND_MESSAGE_V2, lambda request: request.response())
        self.telling = heartbeat_sync_of(self.clock, self.brokers).telling
        self.telling.start()

    def heard(self, client: Any, *groups: str, digest: bytes = b"1", attribute: str = "{}") -> None:
        consumers = [
            ConsumerData(group_name=group, subscription_data_set=[SubscriptionData(topic="T")])
            for group in groups
        ]
        origin = Origin(client.client_id, GRPC, client.address, "10.0.0.1:8081", "PYTHON", 475)
        self.telling.heard(client, origin, consumers, digest, lambda _: attribute)

    def told(self) -> list[tuple[str, str, str]]:
        """Type, client and group of each message since the last look."""
        asked, self.brokers.asked = self.brokers.asked, []
        return [
            (record.heartbeat_type, record.client_id, record.group)
            for record, _ in map(read, asked)
        ]


def read(asked: Any) -> tuple[ConsumerHeartbeat, ClientChannel]:
    return decode_consumer(asked.request.body)


@pytest.fixture
def site() -> Site:
    return Site()


def test_a_client_is_told_of_when_it_comes_changes_and_goes(site: Site) -> None:
    client = FakeClient("c")
    site.heard(client, "G", "H")
    assert site.told() == [(REGISTER, "c", "G"), (REGISTER, "c", "H")]
    site.heard(client, "G", "H")
    assert site.told() == []
    site.heard(client, "G", digest=b"2")
    assert site.told() == [(UNREGISTER, "c", "H"), (REGISTER, "c", "G")]
    site.telling.gone(client)
    site.telling.gone(client)
    assert site.told() == [(UNREGISTER, "c", "G")]


def test_it_is_told_again_before_others_forget_it(site: Site) -> None:
    client, told = FakeClient("c"), 0
    for _ in range(12):
        site.heard(client, "G")
        told += len(site.told())
        site.clock.advance(10)
    assert told == 4


def test_messages_of_one_client_go_to_one_queue(site: Site) -> None:
    """So that nobody reads that it went before it reads that it came."""
    names = set()
    for number in range(20):
        client = FakeClient(f"c{number}")
        site.heard(client, "G")
        site.telling.gone(client)
        pair = {asked.broker_name for asked in site.brokers.asked}
        site.brokers.asked.clear()
        assert len(pair) == 1
        names |= pair
    assert names == {"broker-a", "broker-b"}


def test_what_could_not_be_told_is_told_with_the_next_heartbeat(site: Site) -> None:
    client = FakeClient("c")
    site.brokers.answer(RequestCode.SEND_MESSAGE_V2, ConnectError("a:1", "refused"))
    site.heard(client, "G")
    site.brokers.answer(
        RequestCode.SEND_MESSAGE_V2, lambda request: request.response(ResponseCode.SYSTEM_BUSY)
    )
    site.heard(client, "G")
    site.brokers.asked.clear()
    site.brokers.answer(RequestCode.SEND_MESSAGE_V2, lambda request: request.response())
    site.heard(client, "G")
    assert site.told() == [(REGISTER, "c", "G")]
    site.heard(client, "G")
    assert site.told() == []


def test_without_the_topic_nothing_is_told(site: Site) -> None:
    client = FakeClient("c")
    site.brokers.routes.clear()
    site.heard(client, "G")
    assert site.told() == []


def test_nothing_is_told_before_the_start() -> None:
    site = Site()
    site.telling = heartbeat_sync_of(site.clock, site.brokers).telling
    site.heard(FakeClient("c"), "G")
    assert site.told() == []


def test_settings_that_take_too_much_are_left_out(site: Site) -> None:
    site.heard(FakeClient("c"), "G", attribute="x" * MAX_RECORD_BYTES)
    assert site.told() == [(REGISTER, "c", "G")]


def hang(site: Site) -> list[tuple[RemotingCommand, Deferred[RemotingCommand]]]:
    """Has brokers hang; returns what they were asked."""
    asked: list[tuple[RemotingCommand, Deferred[RemotingCommand]]] = []

    def take(request: RemotingCommand) -> Deferred[RemotingCommand]:
        asked.append((request, Deferred()))
        return asked[-1][1]

    site.brokers.answer(RequestCode.SEND_MESSAGE_V2, take)
    return asked


def answer_all(asked: list[tuple[RemotingCommand, Deferred[RemotingCommand]]]) -> int:
    """Lets brokers answer, also what they are asked next; returns how much there was."""
    done = 0
    while done < len(asked):
        request, answer = asked[done]
        done += 1
        answer.callback(request.response())
    return done


def test_what_waits_is_bounded(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING_BYTES", 10_000)
    asked = hang(site)
    clients = [FakeClient(f"c{number}") for number in range(200)]
    for client in clients:
        site.heard(client, "G")
    assert answer_all(asked) < 60
    asked.clear()
    for client in clients:
        site.heard(client, "G")
    assert 0 < answer_all(asked) < 60


def test_the_newest_of_a_client_is_told_where_brokers_are_slow(site: Site) -> None:
    asked = hang(site)
    for number in range(20):
        site.heard(FakeClient(f"first{number}"), "G")
    client = FakeClient("c")
    for _ in range(5):
        site.heard(client, "G")
        site.telling.gone(client)
    answer_all(asked)
    told = [record for record, _ in (decode_consumer(request.body) for request, _ in asked)]
    assert [each.heartbeat_type for each in told if each.client_id == "c"] == [UNREGISTER]


def test_a_proxy_that_stops_says_that_its_clients_are_gone(site: Site) -> None:
    for number in range(40):
        site.heard(FakeClient(f"c{number}"), "G")
    site.told()
    asked = hang(site)
    said: list[object] = []
    site.telling.stop().addCallback(said.append)
    assert not said
    assert answer_all(asked) == 40
    assert said == [None]
    site.heard(FakeClient("late"), "G")
    assert len(asked) == 40


def test_a_proxy_that_stops_waits_for_no_broker_that_hangs(site: Site) -> None:
    site.heard(FakeClient("c"), "G")
    hang(site)
    said: list[object] = []
    site.telling.stop().addCallback(said.append)
    site.clock.advance(module.GOODBYE_SECONDS)
    assert said == [None]
