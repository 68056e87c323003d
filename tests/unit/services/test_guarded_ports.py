"""The access checks of a server guard each port of a process, whatever its protocol."""

from __future__ import annotations

from typing import Any

from twisted.internet.protocol import Factory
from twisted.internet.task import Clock
from twisted.logger import capturedLogs

from rocketmq_tw.broker.dledger.part import DLedgerGroup
from rocketmq_tw.config.controller import ControllerConfig
from rocketmq_tw.config.namesrv import NamesrvConfig
from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.controller.controller import Controller
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.namesrv.namesrv import NameServer
from rocketmq_tw.net.interfaces import AccessChecks
from rocketmq_tw.net.live_config import kept_config
from rocketmq_tw.net.server import RemotingServer
from rocketmq_tw.raft.store.member import MemberStore
from rocketmq_tw.runtime.threads import at_once
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from tests.support.broker import BrokerInMemory
from tests.support.memory_server import RawClient
from tests.support.network import MemoryNetwork
from tests.support.sim.clock import ProcessClock


class World:
    """A machine whose server lets nobody in, once `is_closed`."""

    def __init__(self, port: int) -> None:
        self.network = MemoryNetwork(Clock())
        self.clock = ProcessClock(self.network.clock, self.network, "127.0.0.1")
        self.address = f"127.0.0.1:{port}"
        self.is_closed = True
        access = AccessChecks(requests=[self.check], connections=[self.check])
        config = NettyServerConfig(bind_address="127.0.0.1", listen_port=port)
        self.server = RemotingServer(self.clock, config, access=access)

    def check(self, *_: Any) -> None:
        if self.is_closed:
            raise RequestError(ResponseCode.NO_PERMISSION, "nobody is let in")

    def ask(self, code: int) -> int:
        """The code of the answer to a request of some stranger."""
        answers: list[RemotingCommand] = []
        client = self.network.client("10.0.0.9")
        asked = client.request(self.address, RemotingCommand(code), 3.0)
        asked.addCallback(answers.append)
        self.network.settle()
        return answers[0].code

    def is_guarded(self, code: int) -> bool:
        assert self.ask(code) == ResponseCode.NO_PERMISSION
        self.is_closed = False
        return self.ask(code) != ResponseCode.NO_PERMISSION


def test_a_name_server() -> None:
    world = World(9876)
    NameServer(world.clock, MemoryFiles(), NamesrvConfig()).start(world.server)
    assert world.is_guarded(RequestCode.GET_BROKER_CLUSTER_INFO)


def test_a_controller() -> None:
    world = World(1)
    files = MemoryFiles()
    config = ControllerConfig(
        controller_dledger_group="g",
        controller_dledger_peers="n0-127.0.0.1:1",
        controller_dledger_self_id="n0",
    )
    store = MemberStore(files, "/s", 8192, 32 * 1024)
    live_config = kept_config(files, config, (), at_once)
    controller = Controller(
        world.clock, config, live_config, store, world.network.client(), at_once
    )
    controller.start(world.server)
    assert world.is_guarded(RequestCode.CONTROLLER_GET_METADATA_INFO)


def broker_of(world: World, **settings: Any) -> BrokerInMemory:
    return BrokerInMemory(
        clock=world.clock,
        network=world.network,
        address=world.address,
        server=world.server,
        **settings,
    )


def test_a_broker_and_its_ha_port() -> None:
    world = World(10911)
    broker = broker_of(world)
    connected: list[RawClient] = []
    factory = Factory.forProtocol(RawClient)

    def connect() -> RawClient:
        address = broker.broker.addresses.ha
        world.network.connect("10.0.0.9", address, factory).addCallback(connected.append)
        world.network.settle()
        return connected[-1]

    with capturedLogs() as logs:
        assert connect().lost
    assert any("nobody is let in" in event.get("reason", "") for event in logs)
    assert world.is_guarded(RequestCode.GET_BROKER_RUNTIME_INFO)
    assert not connect().lost


def test_the_member_of_a_dledger_group() -> None:
    world = World(10911)
    broker = broker_of(
        world,
        enable_dledger_commit_log=True,
        dledger_group="g",
        dledger_self_id="n0",
        dledger_peers="n0-127.0.0.1:40911",
    )
    assert broker.broker[DLedgerGroup].listener is not None
    world.address = "127.0.0.1:40911"
    assert world.is_guarded(RequestCode.GET_BROKER_RUNTIME_INFO)
