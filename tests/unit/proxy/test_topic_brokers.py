"""The brokers of a client's topics."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from rocketmq_tw.proxy.brokers import ABSENT_SECONDS
from rocketmq_tw.proxy.clients import MAX_CLIENT_TOPICS
from rocketmq_tw.proxy.topic_brokers import TopicBrokers, find_brokers
from rocketmq_tw.wire.bodies.route import TopicRouteData
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError
from tests.support.proxy import PlayedBrokers, answer_of


class Brokers(PlayedBrokers):
    """`looked_at` are the topics whose routes were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.looked_at: list[str] = []

    def route(
        self, topic: str, absent_seconds: float = ABSENT_SECONDS
    ) -> Deferred[TopicRouteData | None]:
        self.looked_at.append(topic)
        return super().route(topic, absent_seconds)


@pytest.fixture
def brokers() -> Brokers:
    """Of as many topics as a client may name, the last is at broker b alone."""
    brokers = Brokers()
    for number in range(MAX_CLIENT_TOPICS):
        brokers.add_topic(f"T{number}", {"a": 1})
    brokers.add_topic(f"T{MAX_CLIENT_TOPICS - 1}", {"b": 1})
    return brokers


def finding(clock: Clock, brokers: Brokers) -> Deferred[TopicBrokers]:
    return Deferred.fromCoroutine(find_brokers(clock, brokers, list(brokers.routes)))


def test_all_topics_count_and_others_have_their_turn_meanwhile(brokers: Brokers) -> None:
    clock, seen = Clock(), [0]
    found = finding(clock, brokers)

    def another_turn() -> None:
        seen.append(len(brokers.looked_at))
        if not found.called:
            clock.callLater(0, another_turn)

    another_turn()
    assert answer_of(found, clock) == (["a", "b"], True)
    assert max(after - before for before, after in pairwise(seen)) == 200


def test_no_further_topics_are_looked_at_once_the_client_is_gone(brokers: Brokers) -> None:
    clock, is_here = Clock(), True
    search = find_brokers(clock, brokers, list(brokers.routes), lambda: is_here)
    found = Deferred.fromCoroutine(search)
    is_here = False
    assert answer_of(found, clock) == (["a"], False)
    assert len(brokers.looked_at) == 200


def test_no_further_topics_are_looked_at_once_all_brokers_are_found(brokers: Brokers) -> None:
    brokers.add_topic("T2", {"b": 1, "a": 1})
    assert answer_of(finding(Clock(), brokers)) == (["a", "b"], True)
    assert brokers.looked_at == ["T0", "T1", "T2"]


def test_it_is_not_known_that_all_are_found_before_name_servers_tell(brokers: Brokers) -> None:
    brokers.told = False
    clock = Clock()
    assert answer_of(finding(clock, brokers), clock) == (["a", "b"], True)
    assert len(brokers.looked_at) == MAX_CLIENT_TOPICS


def test_those_that_are_found_count_where_no_name_server_answers_any_more(
    brokers: Brokers,
) -> None:
    clock = Clock()
    found: Deferred[Any] = finding(clock, brokers)
    brokers.route_error = RequestError(ResponseCode.SYSTEM_ERROR, "no name server")
    assert answer_of(found, clock) == (["a"], False)
    with pytest.raises(RequestError):
        answer_of(finding(clock, brokers), clock)
