"""A proxy in the process of a broker that is the master no more, and is it again later."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred, maybeDeferred

from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.proxy.cluster.brokers import ClusterBrokers
from rocketmq_tw.proxy.local.brokers import LocalBrokers
from rocketmq_tw.proxy.messaging.methods import path
from rocketmq_tw.proxy.proto import messages as pb
from rocketmq_tw.proxy.proxy import Proxy
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.broker import BrokerInMemory
from tests.support.classic import classic_request
from tests.support.name_server import NameServerInMemory
from tests.support.network import FakePeer
from tests.support.proxy import FakeCall

NAME_SERVER = "10.0.0.1:9876"
MASTER = RoleState(Role.MASTER, 0)
BODIES = [b"%d" % number for number in range(200)]


class World:
    """Two brokers of one name; the first, at first the master, has the proxy."""

    def __init__(self) -> None:
        self.first = self.broker("10.0.0.2:10911", broker_role="ASYNC_MASTER")
        self.clock, self.network = self.first.clock, self.first.network
        self.network.serve(NAME_SERVER, NameServerInMemory(self.clock).handlers)
        self.first.add_topic("Topic", read_queue_nums=4, write_queue_nums=4)
        self.first.groups.update(SubscriptionGroupConfig(group_name="g"))
        self.second = self.broker(
            "10.0.0.3:10911", clock=self.clock, network=self.network, broker_role="SLAVE"
        )
        config = ProxyConfig(namesrv_addr=NAME_SERVER)
        cluster = ClusterBrokers(self.clock, config, lambda: self.network.client("10.0.0.4"))
        self.brokers = LocalBrokers(self.clock, self.first.broker, cluster)
        self.proxy = Proxy(self.clock, config, self.brokers, in_thread=_at_once)
        self.pass_time(35)
        cluster.start()
        self.proxy.start()
        self.pass_time(10)

    def broker(self, address: str, **arguments: Any) -> BrokerInMemory:
        settings = {"namesrv_addr": NAME_SERVER, "slave_read_enable": True}
        return BrokerInMemory(address=address, broker=settings, **arguments)

    def pass_time(self, seconds: float) -> None:
        self.clock.pump([0.1] * int(seconds * 10))

    def as_slave(self, broker: BrokerInMemory) -> RoleState:
        """Each has an id of its own, as controllers give it."""
        return RoleState(Role.SLAVE, 2 if broker is self.first else 1)

    def swap(self, master: BrokerInMemory, slave: BrokerInMemory) -> None:
        """The master and the slave change their roles."""
        master.become(self.as_slave(master))
        self.pass_time(2)
        slave.become(MASTER)
        self.pass_time(2)

    def call(self, method: str, request: Any, seconds: float = 20) -> Any:
        """What a gRPC client gets for a call; its response, or the list of its stream."""
        call = FakeCall("client", deadline=self.clock.seconds() + seconds)
        found: list[Any] = []
        handler = self.proxy.methods[path(method)].handler  # type: ignore[union-attr]
        maybeDeferred(handler, request, call).addBoth(found.append)
        for _ in range(int(seconds * 10) + 50):
            if found:
                break
            self.clock.advance(0.1)
        assert found, "no answer"
        return call.sent if found[0] is None else found[0]

    def send(self, body: bytes) -> bool:
        """Sends a message by gRPC as clients do, again where it is refused; returns whether it was
        stored."""
        message = pb.Message(topic=pb.Resource(name="Topic"), body=body)
        message.system_properties.message_id = f"id-{body.decode()}"
        message.system_properties.message_type = pb.NORMAL
        answer = self.call("SendMessage", pb.SendMessageRequest(messages=[message]))
        return bool(answer.status.code == pb.OK)

    def enter(self) -> None:
        """A consumer tells its settings."""
        settings = pb.Settings(client_type=pb.SIMPLE_CONSUMER)
        settings.subscription.group.name = "g"
        settings.subscription.subscriptions.add().topic.name = "Topic"
        self.proxy.clients.settle("client", FakeCall("client"), settings, "g", ["Topic"])
        self.pass_time(1)

    def hear(self, seconds: int) -> None:
        """Time passes in which the consumer sends its heartbeats."""
        for _ in range(seconds // 5):
            client = self.proxy.clients.get("client")
            assert client is not None
            self.proxy.clients.heard(client)
            self.pass_time(5)

    def ask_classic(self, request: RemotingCommand) -> RemotingCommand:
        found: list[RemotingCommand] = []
        answer = self.proxy.handlers[request.code](request, FakePeer())
        if not isinstance(answer, (Deferred, RemotingCommand)):
            answer = Deferred.fromCoroutine(answer)
        if isinstance(answer, RemotingCommand):
            return answer
        answer.addBoth(found.append)
        for _ in range(200):
            if found:
                break
            self.clock.advance(0.1)
        return found[0]


def _at_once(work: Any, *arguments: Any, **named: Any) -> Deferred[Any]:
    raise AssertionError("nothing here takes long")


def online(broker: BrokerInMemory) -> list[str]:
    group = broker.clients.consumer_group("g")
    return [] if group is None else group.client_ids()


def bodies(broker: BrokerInMemory) -> list[bytes]:
    return [each.body for queue in range(4) for each in broker.consume("Topic", queue)]


@pytest.fixture
def world() -> World:
    return World()


def test_a_broker_knows_no_others_before_name_servers_tell_of_them(world: World) -> None:
    config = ProxyConfig(namesrv_addr=NAME_SERVER)
    cluster = ClusterBrokers(world.clock, config, lambda: world.network.client("10.0.0.4"))
    brokers = LocalBrokers(world.clock, world.first.broker, cluster)
    assert (list(brokers.names()), brokers.are_told()) == (["broker-a"], False)
    cluster.start()
    world.pass_time(1)
    assert (list(brokers.names()), brokers.are_told()) == (["broker-a"], True)


def test_sends_go_to_whoever_is_the_master(world: World) -> None:
    assert all(map(world.send, BODIES[:10]))
    world.pass_time(5)
    world.swap(world.first, world.second)
    # As long as name servers tell of the former master nobody takes messages.
    world.pass_time(10)
    made = world.network.made
    assert all(map(world.send, BODIES[10:20]))
    world.pass_time(5)
    assert sorted(bodies(world.second)) == sorted(BODIES[:20]) == sorted(bodies(world.first))
    world.swap(world.second, world.first)
    world.pass_time(10)
    assert all(map(world.send, BODIES[20:30]))
    world.pass_time(5)
    assert sorted(bodies(world.first)) == sorted(BODIES[:30])
    assert world.network.made - made < 5


def test_a_consumer_is_known_to_whoever_is_the_master(world: World) -> None:
    world.enter()
    assert (online(world.first), online(world.second)) == (["client"], [])
    world.swap(world.first, world.second)
    world.hear(40)
    assert online(world.second) == ["client"]
    world.hear(150)
    assert online(world.first) == []
    world.swap(world.second, world.first)
    world.hear(40)
    assert online(world.first) == ["client"]


def test_a_held_receive_does_not_outlast_the_role(world: World) -> None:
    world.enter()
    received: list[RemotingCommand] = []
    request = classic_request(
        RequestCode.POP_MESSAGE,
        consumerGroup="g",
        topic="Topic",
        queueId=-1,
        maxMsgNums=8,
        invisibleTime=30_000,
        pollTime=60_000,
        bornTime=world.first.now_ms(),
        initMode=0,
        bname="broker-a",
    )
    world.proxy.handlers[RequestCode.POP_MESSAGE](request, FakePeer()).addBoth(received.append)
    world.pass_time(1)
    assert not received
    world.swap(world.first, world.second)
    assert len(received) == 1
    # What comes at the new master reaches the client.
    world.pass_time(10)
    assert world.send(b"new")
    call = world.call("ReceiveMessage", receive_request())
    assert [each.message.body for each in call if each.HasField("message")] == [b"new"]


def receive_request() -> pb.ReceiveMessageRequest:
    return pb.ReceiveMessageRequest(
        group=pb.Resource(name="g"),
        message_queue=pb.MessageQueue(topic=pb.Resource(name="Topic")),
        filter_expression=pb.FilterExpression(type=pb.TAG, expression="*"),
        batch_size=8,
        invisible_duration={"seconds": 30},
        long_polling_timeout={"seconds": 5},
    )


def test_a_classic_client_is_told_to_try_again_until_there_is_a_master(world: World) -> None:
    def send(body: bytes) -> int:
        request = world.first.send_request(body)
        request.ext_fields["bname"] = "broker-a"
        return world.ask_classic(request).code

    assert send(b"0") == ResponseCode.SUCCESS
    world.first.become(world.as_slave(world.first))
    codes = {send(b"%d" % number) for number in range(1, 5)}
    assert codes <= {ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_BUSY}, codes
    world.second.become(MASTER)
    world.pass_time(12)
    assert send(b"5") == ResponseCode.SUCCESS
    assert b"5" in bodies(world.second)


def test_a_queue_is_read_at_whoever_is_the_master(world: World) -> None:
    def pull() -> int:
        request = world.first.pull_request(0)
        request.ext_fields["bname"] = "broker-a"
        return world.ask_classic(request).code

    assert pull() == ResponseCode.PULL_NOT_FOUND
    world.swap(world.first, world.second)
    world.pass_time(10)
    assert pull() == ResponseCode.PULL_NOT_FOUND
