"""A proxy that stops: calls end first, then messages come back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import Message
from twisted.internet.defer import Deferred

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.proxy.grpc.interfaces import GrpcStatus
from rocketmq_tw.proxy.grpc.server import GrpcConfig
from rocketmq_tw.proxy.http2.limits import Http2Limits
from rocketmq_tw.proxy.proto import messages as pb
from rocketmq_tw.proxy.proxy import Proxy
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.broker import BrokerInMemory
from tests.support.http2 import GrpcInMemory, Response
from tests.support.receiving import SERVICE, RealBroker

GROUP, TOPIC = pb.Resource(name="G"), pb.Resource(name="Topic")


def _unused(*_: Any) -> Any:
    raise AssertionError("nothing is compressed")


class StoppingWorld:
    """A whole proxy on a port in memory, with one connected consumer, before a real broker."""

    def __init__(self) -> None:
        self.broker = BrokerInMemory()
        self.clock = self.broker.clock
        self.broker.add_topic("Topic", read_queue_nums=1, write_queue_nums=1)
        self.broker.offsets.commit("G", "Topic", 0, 0, "test")
        self.brokers = RealBroker(self.broker)
        self.brokers.add_topic("Topic", {"broker-a": 1})
        self.proxy = Proxy(self.clock, ProxyConfig(), self.brokers, _unused)
        config = GrpcConfig(connections=Http2Limits(drain_seconds=30))
        self.server = GrpcInMemory(self.proxy.methods, config, clock=self.clock)
        self.client = self.server.connect()
        settings = pb.Settings(
            client_type=pb.SIMPLE_CONSUMER, subscription=pb.Subscription(group=GROUP)
        )
        stream, self.telemetry = self.client.open(
            SERVICE + "Telemetry", {"x-mq-client-id": "client"}
        )
        command = pb.TelemetryCommand(settings=settings).SerializeToString()
        self.client.send(stream, bytes([0]) + len(command).to_bytes(4) + command)
        self.pass_time(0.5)

    def call(self, method: str, request: Message) -> Response:
        response: Response = self.client.call(
            SERVICE + method, request.SerializeToString(), x_mq_client_id="client"
        )
        self.server.settle()
        return response

    def receive(self) -> Response:
        return self.call(
            "ReceiveMessage",
            pb.ReceiveMessageRequest(
                group=GROUP,
                message_queue=pb.MessageQueue(topic=TOPIC),
                filter_expression=pb.FilterExpression(type=pb.TAG, expression="*"),
                batch_size=32,
                auto_renew=True,
            ),
        )

    def stop(self) -> list[None]:
        """What the stop fires with, once it does."""
        stopped: list[None] = []
        self.proxy.stop(self.server.remoting.stop).addCallback(stopped.append)
        self.server.settle()
        return stopped

    def pass_time(self, seconds: float) -> None:
        self.clock.pump([0.05] * round(seconds * 20))
        self.server.settle()

    def asked(self, code: int) -> int:
        return len([asked for asked in self.brokers.asked if asked.request.code == code])

    def held(self, code: int) -> Callable[[], None]:
        """The broker carries requests out only when what is returned is called."""
        held: list[tuple[RemotingCommand, Deferred[RemotingCommand]]] = []

        def later(request: RemotingCommand) -> Deferred[RemotingCommand]:
            held.append((request, Deferred()))
            return held[-1][1]

        def go_on() -> None:
            self.brokers.answers_itself(code)
            for request, waiting in held:
                self.brokers.ask("broker-a", request, 3).chainDeferred(waiting)

        self.brokers.answer(code, later)
        return go_on


@pytest.fixture
def world() -> StoppingWorld:
    return StoppingWorld()


def received(response: Response) -> list[Any]:
    found = [pb.ReceiveMessageResponse.FromString(message) for message in response.messages]
    return [each.message for each in found if each.WhichOneof("content") == "message"]


def test_an_acknowledgement_under_way_ends_before_messages_come_back(world: StoppingWorld) -> None:
    for name in ("one", "two"):
        world.broker.send(name.encode(), properties={"UNIQ_KEY": name})
    receive = world.receive()
    world.pass_time(51)
    one, _ = received(receive)
    renewals = world.asked(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
    assert renewals == 2
    take = world.held(RequestCode.ACK_MESSAGE)
    entry = pb.AckMessageEntry(
        message_id="one", receipt_handle=one.system_properties.receipt_handle
    )
    request = pb.AckMessageRequest(group=GROUP, topic=TOPIC, entries=[entry])
    acknowledged = world.call("AckMessage", request)
    stopped = world.stop()
    world.pass_time(1)
    assert world.asked(RequestCode.CHANGE_MESSAGE_INVISIBLETIME) == renewals
    take()
    world.pass_time(1)
    (answer,) = acknowledged.messages
    assert pb.AckMessageResponse.FromString(answer).entries[0].status.code == pb.OK
    assert stopped == [None]
    # The other one comes back, and it alone.
    assert world.asked(RequestCode.CHANGE_MESSAGE_INVISIBLETIME) == renewals + 1


def test_what_waits_for_messages_ends_at_once(world: StoppingWorld) -> None:
    receive = world.receive()
    stopped = world.stop()
    world.pass_time(1)
    assert receive.status == world.telemetry.status == GrpcStatus.UNAVAILABLE
    assert stopped == [None]
    # What a broker brings now goes back.
    assert world.broker.send(b"one", properties={"UNIQ_KEY": "one"})
    world.pass_time(1)
    assert world.asked(RequestCode.CHANGE_MESSAGE_INVISIBLETIME) == 1


def test_calls_that_do_not_end_get_their_time(world: StoppingWorld) -> None:
    world.broker.send(b"one", properties={"UNIQ_KEY": "one"})
    receive = world.receive()
    world.pass_time(1)
    (one,) = received(receive)
    world.held(RequestCode.ACK_MESSAGE)
    entry = pb.AckMessageEntry(
        message_id="one", receipt_handle=one.system_properties.receipt_handle
    )
    world.call("AckMessage", pb.AckMessageRequest(group=GROUP, topic=TOPIC, entries=[entry]))
    stopped = world.stop()
    world.pass_time(29)
    assert not stopped
    world.pass_time(2)
    assert stopped == [None]
