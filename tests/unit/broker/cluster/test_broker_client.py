"""Routes to other brokers: shared, remembered, and given up where no broker answers there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from rocketmq_tw.broker.cluster import broker_client
from rocketmq_tw.broker.cluster.broker_client import BrokerClient
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.route import BrokerData, TopicRouteData
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.offsets import GetMaxOffsetRequestHeader
from tests.support.network import MemoryNetwork

NAMES, OTHER, ELSEWHERE = "10.0.0.1:9876", "10.0.0.2:10911", "10.0.0.3:10911"
ASKED = GetMaxOffsetRequestHeader(topic="T", queue_id=0)


class World:
    def __init__(self, names: str = NAMES) -> None:
        self.clock = Clock()
        self.network = MemoryNetwork(self.clock)
        self.asked = 0
        self.address: str | None = OTHER
        handlers = {RequestCode.GET_ROUTEINFO_BY_TOPIC: self.route}
        self.network.serve(NAMES, handlers)
        self.serve(OTHER)
        host = SimpleNamespace(
            config=BrokerConfig(namesrv_addr=names),
            client=self.network.client(),
            reactor=self.clock,
        )
        self.brokers = BrokerClient(host)

    def serve(self, address: str) -> None:
        handler = {RequestCode.GET_MAX_OFFSET: lambda request, peer: request.response(0, address)}
        self.network.serve(address, handler)

    def route(self, request: Any, peer: Any) -> Any:
        self.asked += 1
        if self.address is None:
            return request.response(ResponseCode.TOPIC_NOT_EXIST, "no such topic")
        data = BrokerData(broker_name="b", broker_addrs={0: self.address})
        return request.response(body=encode_body(TopicRouteData(broker_datas=[data])))

    def result(self, deferred: Deferred[Any]) -> Any:
        results: list[Any] = []
        deferred.addBoth(results.append)
        for _ in range(10):
            self.network.settle()
        (result,) = results
        return result

    def ask(self, name: str = "b") -> str:
        asking = self.brokers.ask(name, "T", RequestCode.GET_MAX_OFFSET, ASKED)
        answer = self.result(Deferred.fromCoroutine(asking))
        return str(answer.value if hasattr(answer, "value") else answer.remark)


def test_a_route_serves_for_ten_seconds() -> None:
    world = World()
    assert [world.ask(), world.ask()] == [OTHER, OTHER]
    assert world.asked == 1
    world.clock.advance(10)
    assert (world.ask(), world.asked) == (OTHER, 2)


def test_those_who_ask_at_once_share_the_request() -> None:
    world = World()
    first, second = world.brokers.find_route("T"), world.brokers.find_route("T")
    assert world.result(first) == world.result(second) == world.brokers.last_route("T")
    assert world.asked == 1


def test_a_broker_that_does_not_answer_is_looked_for_again() -> None:
    world = World()
    world.ask()
    world.network.stop(OTHER)
    assert "the broker b of T" in world.ask()
    assert world.brokers.last_route("T") is not None, "for those who need not reach it"
    world.address = ELSEWHERE
    world.serve(ELSEWHERE)
    assert (world.ask(), world.asked) == (ELSEWHERE, 2)


def test_a_name_that_the_route_does_not_have_is_asked_for_once_more() -> None:
    world = World()
    world.ask()
    assert "no name server knows the broker c of T" in world.ask("c")
    assert world.asked == 2


def test_a_topic_without_a_route_is_refused() -> None:
    world = World()
    world.ask()
    world.address = None
    world.clock.advance(10)
    assert "no name server has a route of T" in world.ask()
    assert world.brokers.last_route("T") is None
    assert world.result(world.brokers.find_route("T")) is None


def test_name_servers_that_do_not_answer_leave_what_is_known() -> None:
    world = World()
    world.ask()
    world.network.stop(NAMES)
    world.clock.advance(10)
    failure = world.result(world.brokers.find_route("T"))
    assert failure.check(RequestError) and failure.value.code == ResponseCode.SYSTEM_ERROR
    assert world.brokers.last_route("T") is not None


def test_without_name_servers_no_other_broker_is_found() -> None:
    world = World(names="")
    assert not world.brokers.has_name_servers
    assert "set namesrvAddr" in world.ask()


def test_a_broker_whose_address_is_known_is_asked_without_name_servers() -> None:
    world = World(names="")

    def ask() -> Any:
        asking = world.brokers.ask_at(OTHER, RequestCode.GET_MAX_OFFSET, ASKED, who="the other")
        return world.result(Deferred.fromCoroutine(asking))

    assert ask().remark == OTHER
    world.network.stop(OTHER)
    failure = ask()
    assert failure.check(RequestError) and failure.value.remark.startswith("the other: ")
    assert failure.value.code == ResponseCode.SYSTEM_ERROR


def test_the_route_asked_for_longest_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_client, "MAX_ROUTES", 2)
    world = World()
    for topic in ("A", "B", "A", "C"):
        world.result(world.brokers.find_route(topic))
    known = [topic for topic in "ABC" if world.brokers.last_route(topic) is not None]
    assert known == ["A", "C"]
