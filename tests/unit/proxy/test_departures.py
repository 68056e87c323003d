"""Brokers are told of groups that a proxy has no client of any more."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.net.errors import RequestTimeout
from rocketmq_tw.proxy.cluster import departures as departures_module
from rocketmq_tw.proxy.cluster.departures import Departures
from rocketmq_tw.proxy.cluster.lanes import Lanes
from rocketmq_tw.proxy.memberships import Membership
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.proxy import FakeClient
from tests.support.tables import tables_of

GROUPS = [Membership(f"g{number}", number % 2 == 0) for number in range(50)]
ANSWER = RemotingCommand.request(RequestCode.UNREGISTER_CLIENT).response()


class Told:
    """Brokers that answer when the test says so; `groups` are those that each was told of."""

    def __init__(self) -> None:
        self.lanes = Lanes(8)
        self.departures = Departures(Clock(), self.lanes, self._ask)
        self.groups: dict[str, list[Membership]] = {"broker-a": [], "broker-b": []}
        self.open: dict[str, list[Deferred[RemotingCommand]]] = {"broker-a": [], "broker-b": []}

    def _ask(self, name: str, lane: int, request: RemotingCommand) -> Deferred[RemotingCommand]:
        assert request.code == RequestCode.UNREGISTER_CLIENT
        fields = request.ext_fields
        consumer = fields.get("consumerGroup")
        group = consumer or fields["producerGroup"]
        self.groups[name].append(Membership(group, consumer is not None))
        answer: Deferred[RemotingCommand] = Deferred()
        self.open[name].append(answer)
        return answer

    def enter(self, client: FakeClient) -> None:
        self.lanes.enter(client, GROUPS)
        place = self.lanes.place(client)
        assert place is not None
        place.brokers.update(self.groups)

    def leave(self, client: FakeClient) -> None:
        self.departures.tell(self.lanes.remove(client))

    def answer_all(self, name: str) -> None:
        while self.open[name]:
            self.open[name].pop().callback(ANSWER)


def test_a_client_of_many_groups_is_forgotten_bit_by_bit() -> None:
    told = Told()
    client = FakeClient("a")
    told.enter(client)
    told.leave(client)
    assert [len(groups) for groups in told.groups.values()] == [1, 1]
    # A broker that hangs holds up no other.
    told.answer_all("broker-a")
    assert sorted(told.groups["broker-a"]) == sorted(GROUPS)
    assert len(told.groups["broker-b"]) == 1
    # One that gives no answer is told of the rest all the same.
    told.open["broker-b"].pop().errback(RequestTimeout("broker-b", 35, 3.0))
    told.answer_all("broker-b")
    assert sorted(told.groups["broker-b"]) == sorted(GROUPS)


def test_nothing_is_left_of_brokers_that_were_told() -> None:
    told = Told()
    client = FakeClient("a")
    told.enter(client)
    told.leave(client)
    for name in told.groups:
        told.answer_all(name)
    assert tables_of(told.departures, outside=(Lanes,))["Departures._pending"] == 0


def test_a_broker_does_not_forget_who_came_meanwhile() -> None:
    told = Told()
    first, second = FakeClient("a"), FakeClient("b")
    told.enter(first)
    told.leave(first)
    told.enter(second)
    told.answer_all("broker-a")
    assert len(told.groups["broker-a"]) == 1


def test_what_a_broker_that_hangs_is_to_be_told_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(departures_module, "MAX_PENDING", 100)
    told = Told()
    for number in range(10):
        client = FakeClient(str(number))
        told.enter(client)
        told.leave(client)
    told.answer_all("broker-a")
    assert 50 < len(told.groups["broker-a"]) <= 101


def test_of_a_broker_that_is_not_told_the_log_has_one_line_for_all_groups() -> None:
    told = Told()
    client = FakeClient("a")
    told.enter(client)
    with capturedLogs() as events:
        told.leave(client)
        for name, waiting in told.open.items():
            while waiting:
                waiting.pop().errback(RequestTimeout(name, 35, 3.0))
    assert [len(groups) for groups in told.groups.values()] == [len(GROUPS), len(GROUPS)]
    lines = [str(formatEvent(event)) for event in events]
    assert sorted(line.split()[1] for line in lines) == sorted(told.groups)
    assert all("is not told that a left" in line for line in lines)


def test_of_a_broker_that_hangs_the_log_has_one_line_for_all_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(departures_module, "MAX_PENDING", 100)
    told = Told()
    with capturedLogs() as events:
        for number in range(10):
            client = FakeClient(str(number))
            told.enter(client)
            told.leave(client)
    lines = [str(formatEvent(event)) for event in events]
    assert sorted(line.split()[1] for line in lines) == sorted(told.groups)
    assert all("answers too slowly" in line for line in lines)


def test_a_proxy_that_stops_tells_no_more() -> None:
    told = Told()
    client = FakeClient("a")
    told.enter(client)
    told.leave(client)
    told.departures.stop()
    told.answer_all("broker-a")
    assert len(told.groups["broker-a"]) == 1
