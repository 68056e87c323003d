"""Pops at the broker in whose process a proxy is: they are held until they are withdrawn."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rocketmq_tw.proxy.local.brokers import LocalBrokers
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.pop import PollingInfoRequestHeader, PollingInfoResponseHeader
from tests.support.broker import BrokerInMemory
from tests.support.heartbeats import heartbeat_of, push_consumer
from tests.support.pops import Popper
from tests.support.proxy import FakeClient, PlayedBrokers
from tests.support.tables import tables_of


class Site:
    """A broker, and what a proxy in its process asks."""

    def __init__(self) -> None:
        self.broker = BrokerInMemory()
        self.clock = self.broker.clock
        self.broker.add_topic("Topic", read_queue_nums=1, write_queue_nums=1)
        self.popper = Popper(self.broker)
        self.brokers = LocalBrokers(self.clock, self.broker.broker, PlayedBrokers())

    def register(self, client: FakeClient) -> None:
        heartbeat = heartbeat_of(client.client_id, push_consumer("G", "Topic"))
        request = RemotingCommand.request(RequestCode.HEART_BEAT, body=encode_body(heartbeat))
        self.brokers.ask("broker-a", request, 3, client)

    def pop(self, client: FakeClient | None = None) -> tuple[RemotingCommand, list[Any]]:
        """A pop that waits for a message; its request, and what it fires with."""
        request = self.popper.request(poll_time=20_000)
        found: list[Any] = []
        asked: Deferred[RemotingCommand] = self.brokers.ask("broker-a", request, 23, client)
        asked.addBoth(found.append)
        self.clock.advance(0)
        return request, found

    def held(self) -> int:
        header = PollingInfoRequestHeader(consumer_group="G", topic="Topic", queue_id=-1)
        answer: Any = self.broker.ask(RequestCode.POLLING_INFO, header)
        return int(answer.header(PollingInfoResponseHeader).polling_num)


def test_one_of_several_is_withdrawn() -> None:
    site = Site()
    client = FakeClient()
    pops = [site.pop(each) for each in (client, client, None)]
    for left, (request, found) in zip((2, 1, 0), pops, strict=True):
        who = None if left == 0 else client
        assert site.brokers.withdraw(request, who)
        assert site.held() == left
        site.clock.advance(4)
        (answer,) = found
        assert answer.code == ResponseCode.POLLING_TIMEOUT


def test_one_that_is_woken_and_withdrawn_leaves_the_queue_to_the_next() -> None:
    site = Site()
    site.popper.fields = {"order": True, "max_msg_nums": 1}
    site.broker.send(b"one"), site.broker.send(b"two")
    site.clock.advance(0.3)
    (first,) = site.popper.pop(attempt_id="first")
    pops = []
    for attempt_id in ("second", "third"):
        site.popper.fields["attempt_id"] = attempt_id
        pops.append(site.pop())
    site.popper.ack(first)
    assert site.held() == 1
    assert site.brokers.withdraw(pops[0][0])
    site.clock.pump([0] * 3)
    (answer,) = pops[1][1]
    assert answer.code == ResponseCode.SUCCESS


def test_what_is_over_or_another_client_s_cannot_be_withdrawn() -> None:
    site = Site()
    request, found = site.pop(FakeClient())
    assert not site.brokers.withdraw(request, None)
    site.broker.send(b"one")
    site.clock.pump([0.25] * 4)
    assert found[0].code == ResponseCode.SUCCESS
    assert not site.brokers.withdraw(request, FakeClient())


@pytest.mark.parametrize("is_registered", [False, True])
def test_those_of_a_client_that_the_broker_forgets_go_with_it(is_registered: bool) -> None:
    """One whose topics no broker has is forgotten while it is there."""
    site = Site()
    client, other = FakeClient("gone"), FakeClient("other")
    site.register(other)
    if is_registered:
        site.register(client)
    (_, found), *_ = [site.pop(each) for each in (client, client, other)]
    site.brokers.forget(client)
    assert site.held() == (1 if is_registered else 3)
    site.clock.advance(4)
    assert [answer.code for answer in found] == [ResponseCode.POLLING_TIMEOUT] * is_registered


def test_a_client_that_is_registered_elsewhere_goes_on_with_its_pops() -> None:
    site = Site()
    client = FakeClient()
    site.register(client)
    _, found = site.pop(client)
    site.brokers.enter(client, (), ["broker-b"])
    site.broker.send(b"one")
    site.clock.pump([0.25] * 4)
    assert found[0].code == ResponseCode.SUCCESS


def test_nothing_is_left_of_those_that_are_over() -> None:
    site = Site()
    before = tables_of(site.brokers)
    client = FakeClient()
    for number in range(10):
        request, _ = site.pop(client)
        if number % 2:
            site.brokers.withdraw(request, client)
        else:
            site.broker.send(b"one")
        site.clock.pump([0.25] * 4)
    site.clock.pump([1] * 25)
    after = tables_of(site.brokers)
    for table in ("LocalBrokers._pops", "HeldPops._of_peer", "HeldPops._queues"):
        assert after[table] == before[table] == 0, table
