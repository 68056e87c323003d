"""Pops of classic clients through a proxy, before the real broker in memory."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rocketmq_tw.net.errors import RequestTimeout
from rocketmq_tw.proxy.remoting.requests import ClassicRequests
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.broker import BrokerInMemory
from tests.support.network import FakePeer
from tests.support.pops import PoppedMessage, Popper
from tests.support.proxy import heartbeat_sync_of, undelivered_pops
from tests.support.receiving import RealBroker
from tests.support.wait import result_of

#: Seconds that a popped message is hidden; one that is given back comes long before.
HIDDEN = 600
HIDE = RequestCode.CHANGE_MESSAGE_INVISIBLETIME


class PopPort:
    """A classic port before one broker, whose topic two clients pop."""

    def __init__(self, *, orderly: bool = False) -> None:
        self.broker = BrokerInMemory()
        self.clock = self.broker.clock
        self.broker.add_topic("Topic", read_queue_nums=1, write_queue_nums=1)
        self.broker.groups.update(
            SubscriptionGroupConfig(group_name="G", consume_message_orderly=orderly)
        )
        self.broker.offsets.commit("G", "Topic", 0, 0, "test")
        self.brokers = RealBroker(self.broker)
        self.brokers.add_topic("Topic", {"broker-a": 1})
        self.requests = ClassicRequests(
            self.brokers,
            self.clock,
            heartbeat_sync_of(self.clock, self.brokers),
            undelivered_pops(self.clock, self.brokers),
        )
        self.popper = Popper(
            self.broker,
            invisible_time=HIDDEN * 1000,
            order=orderly,
            max_msg_nums=32,
        )

    def hold(self, peer: FakePeer, poll_seconds: int = 60) -> list[RemotingCommand]:
        """Begins a pop that waits for messages; what is returned has its answer, once it came."""
        answers: list[RemotingCommand] = []
        self.begin(peer, poll_seconds).addCallback(answers.append)
        self.clock.advance(1)
        assert not answers
        return answers

    def begin(self, peer: FakePeer, poll_seconds: int = 0) -> Deferred[RemotingCommand]:
        request = self.popper.request(poll_time=poll_seconds * 1000, born_time=self.broker.now_ms())
        answer = self.requests.handlers()[RequestCode.POP_MESSAGE](request, peer)
        assert isinstance(answer, Deferred)
        return answer

    def pop(self, peer: FakePeer) -> list[PoppedMessage]:
        answer = result_of(self.clock, self.begin(peer))
        if answer.code != ResponseCode.SUCCESS:
            return []
        return self.popper.messages(answer)

    def bodies_within(self, seconds: int, peer: FakePeer) -> list[bytes]:
        """What a client pops until so many seconds have passed."""
        found = []
        for _ in range(seconds):
            found += [message.body for message in self.pop(peer)]
            self.clock.pump([0.5] * 2)
        return found


def test_pops_of_a_client_that_is_gone_take_a_message_twice_at_most() -> None:
    """Brokers hold them on, and each would take it as it comes back."""
    port = PopPort()
    gone = FakePeer("10.0.0.8:1")
    for _ in range(10):
        port.hold(gone, 20)
    gone.lose()
    port.broker.send(b"one")
    port.clock.pump([0.5] * 60)
    (message,) = port.pop(FakePeer("10.0.0.9:1"))
    assert message.reconsume_times == 2


def test_in_order_pops_of_a_client_that_is_gone_are_not_counted() -> None:
    port = PopPort(orderly=True)
    gone = FakePeer("10.0.0.8:1")
    for _ in range(5):
        port.hold(gone, 20)
    gone.lose()
    port.broker.send(b"one")
    port.clock.pump([0.5] * 15)
    answer = result_of(port.clock, port.begin(FakePeer("10.0.0.9:1")))
    assert [message.body for message in port.popper.messages(answer)] == [b"one"]
    assert answer.ext_fields["orderCountInfo"] == "0 0 0"


@pytest.mark.parametrize("orderly", [False, True])
def test_messages_popped_for_a_client_that_is_gone_come_back(orderly: bool) -> None:
    port = PopPort(orderly=orderly)
    gone, other = FakePeer("10.0.0.8:1"), FakePeer("10.0.0.9:1")
    held = port.hold(gone)
    gone.lose()
    for number in range(3):
        port.broker.send(b"%d" % number)
    port.clock.pump([0.5] * 4)
    assert held
    assert sorted(port.bodies_within(30, other)) == [b"0", b"1", b"2"]


def test_messages_of_a_connected_client_stay_with_it() -> None:
    port = PopPort()
    own, other = FakePeer("10.0.0.8:1"), FakePeer("10.0.0.9:1")
    held = port.hold(own)
    port.broker.send(b"its own")
    port.clock.pump([0.5] * 4)
    (message,) = port.popper.messages(held[0])
    assert message.body == b"its own"
    own.lose()
    assert port.bodies_within(30, other) == []


def test_an_empty_answer_for_a_client_that_is_gone_gives_nothing_back() -> None:
    port = PopPort()
    peer = FakePeer()
    held = port.hold(peer, poll_seconds=5)
    peer.lose()
    port.clock.pump([0.5] * 30)
    assert held
    assert [asked.request.code for asked in port.brokers.asked] == [RequestCode.POP_MESSAGE]


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("error", [RequestTimeout("broker-a:1", HIDE, 3.0), "busy"])
def test_they_come_back_though_the_broker_takes_them_back_later_only(
    error: Any, orderly: bool
) -> None:
    port = PopPort(orderly=orderly)
    if isinstance(error, RequestTimeout):
        port.brokers.answer(HIDE, error)
    else:
        port.brokers.answer(HIDE, lambda request: request.response(ResponseCode.SYSTEM_BUSY, error))
    gone, other = FakePeer("10.0.0.8:1"), FakePeer("10.0.0.9:1")
    held = port.hold(gone)
    gone.lose()
    for number in range(3):
        port.broker.send(b"%d" % number)
    port.clock.pump([0.5] * 20)
    assert held
    port.brokers.answers_itself(HIDE)
    assert sorted(port.bodies_within(30, other)) == [b"0", b"1", b"2"]
