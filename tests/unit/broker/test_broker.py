"""A whole broker on files in memory, a clock and a network in memory."""

import gc
from typing import Any
from weakref import ref

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.broker.assembly.host import Surroundings
from rocketmq_tw.broker.broker import Broker
from rocketmq_tw.broker.cluster.part import Cluster
from rocketmq_tw.broker.delay.part import Delay
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.message.record import encode_record
from rocketmq_tw.net.server import RemotingServer
from rocketmq_tw.wire.bodies.base import decode_body, encode_body
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.bodies.queues import DelayOffsetTable
from rocketmq_tw.wire.bodies.registration import decode_registration
from rocketmq_tw.wire.bodies.topics import TopicConfig, TopicConfigTable
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.base import Header
from rocketmq_tw.wire.headers.offsets import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketmq_tw.wire.headers.pull import PullMessageRequestHeader
from rocketmq_tw.wire.headers.send import SendMessageRequestHeaderV2
from tests.support.broker import BrokerInMemory, Threads
from tests.support.network import MemoryNetwork
from tests.support.stores import START_MS, make_message, small_config
from tests.support.wait import result_of

NAME_SERVER, BROKER = "10.0.0.1:9876", "10.0.0.9:10911"


class World:
    """One name server that says yes, and a broker that may be started again on its files."""

    def __init__(self, **store: Any) -> None:
        self.store = {"mapped_file_size_commit_log": 1 << 20} | store
        self.reactor = MemoryReactorClock()
        self.network = MemoryNetwork(self.reactor)
        self.registrations: list[RemotingCommand] = []
        self.left: list[RemotingCommand] = []
        self.hanging = False
        self.threads = Threads()
        self.serve_names()
        self.files = MemoryFiles()
        self.client = self.network.client()
        self.start()

    def serve_names(self) -> None:
        self.network.serve(
            NAME_SERVER,
            {
                RequestCode.REGISTER_BROKER: self._registered,
                RequestCode.UNREGISTER_BROKER: self._left,
            },
        )

    def start(self) -> None:
        net_config = NettyServerConfig(bind_address="127.0.0.1", listen_port=10911)
        self.broker = Broker(
            Surroundings(
                reactor=self.reactor,
                config=BrokerConfig(
                    broker_name="broker-a",
                    broker_id=int(self.store.get("broker_role") == "SLAVE"),
                    broker_ip1="10.0.0.9",
                    namesrv_addr=NAME_SERVER,
                ),
                store_config=small_config(**self.store),
                net_config=net_config,
                files=self.files,
                client=self.network.client(),
                server=RemotingServer(self.reactor, net_config),
                now_ms=lambda: START_MS + round(self.reactor.seconds() * 1000),
                in_thread=self.threads,
            )
        )
        started = self.broker.start()
        self.result(started)
        self.network.listen(BROKER, self.broker.listener.factory)
        if not self.hanging:
            self.result(self.broker[Cluster].membership.when_registered(NAME_SERVER))

    def stop(self) -> None:
        stopped = self.broker.stop()
        self.network.stop(BROKER)
        self.result(stopped)

    def result(self, deferred: Deferred[Any]) -> Any:
        """What it fires with, within a few seconds of the clock; a failure is raised."""
        return result_of(self.reactor, deferred)

    def ask(self, code: int, header: Header | None = None, body: bytes = b"") -> RemotingCommand:
        request = RemotingCommand.request(code, header, body)
        response: RemotingCommand = self.result(self.client.request(BROKER, request, 5))
        return response

    def send(self, body: bytes) -> RemotingCommand:
        response: RemotingCommand = self.result(self.send_later(body))
        return response

    def send_later(self, body: bytes, topic: str = "Orders") -> Deferred[RemotingCommand]:
        header = SendMessageRequestHeaderV2(
            producer_group="P",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=0,
            sys_flag=0,
            born_timestamp=START_MS,
            flag=0,
        )
        request = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, body)
        return self.client.request(BROKER, request, 5)

    def _registered(self, request: RemotingCommand, peer: Any) -> Any:
        self.registrations.append(request)
        return Deferred() if self.hanging else request.response()

    def _left(self, request: RemotingCommand, peer: Any) -> Any:
        self.left.append(request)
        return Deferred() if self.hanging else request.response()


@pytest.fixture
def world() -> World:
    return World()


def test_a_started_broker_listens_and_is_registered(world: World) -> None:
    assert [server[0] for server in world.reactor.tcpServers] == [10911, 10909, 10912]
    assert world.broker.addresses.broker == BROKER
    (request,) = world.registrations
    assert request.ext_fields["brokerAddr"] == BROKER
    assert request.ext_fields["haServerAddr"] == "10.0.0.9:10912"
    body = decode_registration(request.body, compressed=False)
    assert "TBW102" in body.topic_config_serialize_wrapper.topic_config_table


def test_it_registers_again_every_period(world: World) -> None:
    world.reactor.advance(30)
    world.reactor.advance(0)
    assert len(world.registrations) == 2


def test_a_name_server_that_hangs_holds_up_no_start(world: World) -> None:
    world.stop()
    world.hanging = True
    with capturedLogs() as logs:
        world.start()
        assert world.reactor.seconds() < 24, "that is how long a registration may take"
        assert world.send(b"one").code == ResponseCode.SUCCESS
        served = next(text for text in map(formatEvent, logs) if "serves" in text)
        assert served.startswith("broker broker-a serves at 10.0.0.9:10911, its store is /")
    world.stop()


def test_a_name_server_that_comes_late_is_told_within_seconds(world: World) -> None:
    world.stop()
    world.network.stop(NAME_SERVER)
    world.registrations.clear()
    world.hanging = True
    world.start()
    world.hanging = False
    world.reactor.pump([0.1] * 50)
    assert not world.registrations
    world.serve_names()
    world.reactor.pump([0.1] * 40)
    assert world.registrations


def test_a_name_server_that_hangs_holds_up_neither_clients_nor_the_stop(world: World) -> None:
    world.hanging = True
    world.reactor.advance(30)
    assert world.send(b"one").code == ResponseCode.SUCCESS
    world.stop()
    assert world.left
    assert not world.files.exists("/store/abort")


def test_a_disk_that_hangs_while_a_topic_is_made_holds_up_only_who_relies_on_it(
    world: World,
) -> None:
    world.send(b"one")
    world.registrations.clear()
    world.threads.eager = False
    answers: list[RemotingCommand] = []
    for number in range(20):
        world.send_later(b"first", f"New{number}").addCallback(answers.append)
        world.send_later(b"second", f"New{number}").addCallback(answers.append)
    group = encode_body(SubscriptionGroupConfig(group_name="G", retry_max_times=3))
    request = RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group)
    world.client.request(BROKER, request, 30).addCallback(answers.append)
    world.reactor.pump([0.1] * 20)
    assert world.send(b"two").code == ResponseCode.SUCCESS
    assert not answers
    assert not world.registrations, "no name server tells of what a crash would take back"
    world.threads.eager = True
    world.threads.run()
    world.reactor.pump([0.1] * 5)
    assert [answer.code for answer in answers] == [ResponseCode.SUCCESS] * 41
    kept = decode_body(TopicConfigTable, world.files.read("/store/config/topics.json"))
    names = {f"New{number}" for number in range(20)}
    assert names <= kept.topic_config_table.keys()
    told: set[str] = set()
    versions = []
    for request in world.registrations:
        table = decode_registration(request.body, compressed=False).topic_config_serialize_wrapper
        told.update(table.topic_config_table)
        versions.append(encode_body(table.data_version))
    assert names <= told
    assert len(set(versions)) == len(versions), "a version that is known would be passed over"


def test_what_was_sent_and_committed_is_there_after_a_restart(world: World) -> None:
    assert world.send(b"one").code == ResponseCode.SUCCESS
    world.broker[Tables].groups.get("G")
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group="G", topic="Orders", queue_id=0, commit_offset=1
    )
    assert world.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header).code == ResponseCode.SUCCESS
    world.stop()
    assert len(world.left) == 1
    assert not world.files.exists("/store/abort")
    world.start()
    assert world.broker[Writing].store.max_queue_offset("Orders", 0) == 1
    assert world.broker[Tables].offsets.query("G", "Orders", 0) == 1
    topic = world.broker[Tables].topics.get("Orders")
    assert topic is not None
    assert topic.write_queue_nums == 4
    assert world.send(b"two").code == ResponseCode.SUCCESS


def test_offsets_reach_the_file_at_intervals(world: World) -> None:
    world.broker[Tables].offsets.commit("G", "T", 0, 7)
    world.reactor.advance(5)
    assert b'"T@G":{0:7}' in world.files.read("/store/config/consumerOffset.json")


def test_no_offset_in_the_file_is_ahead_of_the_log_that_a_power_loss_leaves() -> None:
    # The log is flushed for the offsets alone.
    world = World(flush_interval_commit_log=600_000)
    world.broker[Tables].groups.get("G")
    world.send(b"one")
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group="G", topic="Orders", queue_id=0, commit_offset=1
    )
    world.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)
    world.reactor.advance(5)
    world.files = world.files.crash()
    world.network.stop(BROKER)
    world.start()
    assert world.broker[Tables].offsets.query("G", "Orders", 0) == 1
    assert world.broker[Writing].store.max_queue_offset("Orders", 0) == 1


def test_a_slave_keeps_how_far_its_master_has_delivered() -> None:
    """Killed and made the master, it would deliver again whatever ever was delayed."""
    world = World(broker_role="SLAVE")
    world.broker[Delay].offsets.set(3, 7)
    world.reactor.pump([1.0] * 10)
    kept = world.files.read(f"{world.broker[Writing].store.paths.config}/delayOffset.json")
    assert decode_body(DelayOffsetTable, kept).offset_table == {3: 7}


def test_whoever_asks_a_slave_sees_what_it_has_acknowledged() -> None:
    world = World(broker_role="SLAVE")
    world.broker[Tables].topics.update(TopicConfig(topic_name="Orders"))
    message = make_message(topic="Orders")
    message.store_timestamp = START_MS
    appended = world.broker[Writing].commit.append_raw(0, encode_record(message))
    assert appended.called and world.broker[Writing].store.max_queue_offset("Orders", 0) == 0
    header = GetMaxOffsetRequestHeader(topic="Orders", queue_id=0)
    request = RemotingCommand.request(RequestCode.GET_MAX_OFFSET, header)
    answers: list[RemotingCommand] = []
    world.client.request(BROKER, request, 5).addBoth(answers.append)
    for _ in range(10):
        world.reactor.advance(0)
    (answer,) = answers
    assert answer.header(GetMaxOffsetResponseHeader).offset == 1


def test_a_held_read_is_answered_when_a_message_comes_and_when_the_broker_stops(
    world: World,
) -> None:
    world.send(b"one")
    world.broker[Tables].groups.get("G")

    def pull(offset: int) -> list[RemotingCommand]:
        header = PullMessageRequestHeader(
            consumer_group="G",
            topic="Orders",
            queue_id=0,
            queue_offset=offset,
            max_msg_nums=32,
            sys_flag=2 | 4,
            commit_offset=0,
            suspend_timeout_millis=15_000,
            subscription="*",
            sub_version=0,
        )
        answers: list[RemotingCommand] = []
        request = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
        world.client.request(BROKER, request, 30).addBoth(answers.append)
        world.reactor.advance(0.1)
        return answers

    answers = pull(1)
    assert not answers
    world.send(b"two")
    assert [answer.code for answer in answers] == [ResponseCode.SUCCESS]
    answers = pull(2)
    assert not answers
    stopped = world.broker.stop()
    world.result(stopped)
    assert [answer.code for answer in answers] == [ResponseCode.PULL_NOT_FOUND]


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("steps", range(6))
def test_what_is_acknowledged_while_the_broker_stops_is_there_afterwards(
    flush: str, steps: int
) -> None:
    world = World(flush_disk_type=flush)
    world.send(b"first")
    answers: list[Any] = []
    for number in range(20):
        world.send_later(b"before %d" % number).addBoth(answers.append)
    for _ in range(steps):
        world.reactor.advance(0)
    stopped = world.broker.stop()
    for number in range(20):
        world.send_later(b"after %d" % number).addBoth(answers.append)
    world.result(stopped)
    world.network.stop(BROKER)
    world.reactor.advance(6)
    assert len(answers) == 40, "everyone is told"
    acknowledged = sum(getattr(answer, "code", None) == ResponseCode.SUCCESS for answer in answers)
    world.files = world.files.crash()
    world.start()
    assert world.broker[Writing].store.max_queue_offset("Orders", 0) >= 1 + acknowledged
    assert (
        world.broker[Writing].store.report is not None and world.broker[Writing].store.report.clean
    )


def test_what_recovery_did_is_in_the_log(world: World) -> None:
    world.send(b"first")
    store = world.broker[Writing].store
    end = store.end_offset
    path = f"{store.paths.commit_log}/{0:020d}"
    world.files = world.files.kill()
    world.files.open(path).pwrite(b"torn", end)
    with capturedLogs() as events:
        world.start()
    said = [formatEvent(event) for event in events if "recovery" in formatEvent(event)]
    assert any(f"cut the commit log at {end}" in line and "bytes" in line for line in said), said


def test_a_broker_that_cannot_start_can_be_stopped(world: World) -> None:
    net_config = NettyServerConfig(bind_address="127.0.0.1", listen_port=20911)
    second = Broker(
        Surroundings(
            reactor=world.reactor,
            config=BrokerConfig(broker_name="broker-b", broker_ip1="10.0.0.9"),
            store_config=small_config(mapped_file_size_commit_log=1 << 20),
            net_config=net_config,
            files=world.files,
            client=world.network.client(),
            server=RemotingServer(world.reactor, net_config),
            in_thread=Threads(),
        )
    )
    with pytest.raises(Exception, match="in use"):
        world.result(second.start())
    world.result(second.stop())
    assert world.send(b"one").code == ResponseCode.SUCCESS


def test_a_broker_that_nobody_holds_is_freed() -> None:
    broker = BrokerInMemory()
    broker.send(b"one")
    gone = ref(broker.broker)
    del broker
    gc.collect()
    assert gone() is None
