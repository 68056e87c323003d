"""Routes in use, and such that are forgotten while name servers are asked for them."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from rocketmq_tw.client import name_servers as module
from rocketmq_tw.client.name_servers import ROUTE_INTERVAL, Routes
from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.proxy.cluster.topic_routes import TopicRoutes
from rocketmq_tw.wire.bodies.route import BrokerData, TopicRouteData
from tests.support.tables import tables_of

ROUTE = TopicRouteData(broker_datas=[BrokerData(broker_name="b", broker_addrs={0: "h:1"})])


class PlayedNames:
    """Name servers that answer when the test says so; `asked` are topics that wait for it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Deferred[TopicRouteData | None]]] = []

    def route(self, topic: str) -> Deferred[TopicRouteData | None]:
        answer: Deferred[TopicRouteData | None] = Deferred()
        self.asked.append((topic, answer))
        return answer

    def answer(self, route: TopicRouteData | None = ROUTE) -> list[str]:
        """Answers what was asked, and what is asked behind that; returns the topics."""
        topics = []
        while self.asked:
            topic, answer = self.asked.pop(0)
            topics.append(topic)
            answer.callback(route)
        return topics


def in_use(**settings: Any) -> tuple[Clock, PlayedNames, Routes]:
    """Routes of three topics that are looked at again now."""
    clock, names = Clock(), PlayedNames()
    routes = Routes(clock, names, **settings)  # type: ignore[arg-type]
    routes.start()
    for topic in "ABC":
        routes.get(topic)
    names.answer()
    clock.advance(ROUTE_INTERVAL)
    assert [topic for topic, _ in names.asked] == ["A"]
    return clock, names, routes


@pytest.mark.parametrize("route", [ROUTE, None])
def test_what_is_forgotten_meanwhile_stays_forgotten(route: TopicRouteData | None) -> None:
    clock, names, routes = in_use()
    # One that is being asked for, and one whose turn comes.
    routes.forget("A")
    routes.forget("C")
    assert names.answer(route) == ["A", "B"]
    assert sorted(routes.known()) == ["B"]
    clock.advance(ROUTE_INTERVAL)
    assert names.answer() == ["B"]


def test_who_asks_again_meanwhile_has_the_route_kept() -> None:
    _, names, routes = in_use()
    routes.forget("A")
    found: list[Any] = []
    routes.get("A").addCallback(found.append)
    assert names.answer() == ["A", "B", "C"]
    assert found == [ROUTE]
    assert sorted(routes.known()) == ["A", "B", "C"]


def test_topics_that_nobody_knows_are_not_asked_for_without_end(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "MAX_MISSING", 10)
    clock, names, routes = in_use()
    names.answer()
    for number in range(100):
        routes.get(f"T{number}")
    names.answer(None)
    clock.advance(ROUTE_INTERVAL)
    assert names.answer(None) == ["A", "B", "C", *(f"T{number}" for number in range(90, 100))]


def test_a_route_that_is_too_old_for_its_asker_is_asked_for_again() -> None:
    clock, names = Clock(), PlayedNames()
    routes = Routes(clock, names)  # type: ignore[arg-type]
    routes.get("T", max_age=10)
    names.answer()
    clock.advance(9)
    routes.get("T", max_age=10)
    assert not names.asked
    clock.advance(1)
    routes.get("T")
    assert not names.asked
    routes.get("T", max_age=10)
    assert names.answer() == ["T"]
    routes.get("T", max_age=10)
    routes.outdate("T")
    routes.get("T")
    assert not names.asked
    routes.get("T", max_age=10)
    assert names.answer() == ["T"]


def test_of_too_many_routes_the_one_asked_for_longest_ago_is_forgotten() -> None:
    clock, names = Clock(), PlayedNames()
    routes = Routes(clock, names, most=2)  # type: ignore[arg-type]
    for topic in "ABAC":
        routes.get(topic)
        names.answer()
    assert sorted(routes.known()) == ["A", "C"]
    assert tables_of(routes)["Routes._came"] == 2


def test_a_proxy_keeps_no_route_that_no_client_uses() -> None:
    clock, names = Clock(), PlayedNames()
    config = ProxyConfig(topic_route_service_cache_expired_seconds=60)
    routes = TopicRoutes(clock, config, names)  # type: ignore[arg-type]
    routes.start()
    for hour in range(8):
        for number in range(20):
            routes.get(f"T{hour}-{number}")
            names.answer()
        for _ in range(30):
            clock.advance(5)
            # Name servers take their time, and unused routes are forgotten meanwhile.
            if names.asked:
                names.asked.pop(0)[1].callback(ROUTE)
    for _ in range(20):
        names.answer()
        clock.advance(10)
    assert tables_of(routes)["Routes._routes"] == 0


def test_a_proxy_keeps_a_route_that_it_takes_from_memory() -> None:
    clock, names = Clock(), PlayedNames()
    config = ProxyConfig(topic_route_service_cache_expired_seconds=60)
    routes = TopicRoutes(clock, config, names)  # type: ignore[arg-type]
    routes.start()
    assert routes.known("T") is None
    routes.get("T")
    routes.get("Unused")
    names.answer()
    for _ in range(20):
        assert routes.known("T") is ROUTE
        clock.advance(10)
        names.answer()
    assert routes.known("Unused") is None
    assert not names.asked
