"""Brokers in processes of their own: started again with growing pauses, stopped, refused."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.error import ProcessDone, ProcessExitedAlready, ProcessTerminated
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from rocketmq_tw.config.container import BrokerContainerConfig
from rocketmq_tw.config.net import NettyServerConfig, TlsConfig
from rocketmq_tw.container.broker_files import BrokerFiles
from rocketmq_tw.container.interface import BrokerSetup, StartFailed
from rocketmq_tw.container.messages import ORDERS, REPORTS, ChildReport, Orders, encode_line
from rocketmq_tw.container.separate import BrokersApart
from rocketmq_tw.structs import msgspec
from tests.support.broker import fired


class FakeProcess:
    """A process that does what the test says."""

    def __init__(self, protocol: Any, setup: BrokerSetup) -> None:
        self.protocol = protocol
        self.setup = setup
        self.orders: list[Orders] = []
        self.signals: list[str] = []
        self.input_closed = self.ended = False
        protocol.makeConnection(self)

    def writeToChild(self, descriptor: int, data: bytes) -> None:
        assert descriptor == ORDERS
        if self.input_closed:
            raise KeyError(descriptor)
        self.orders += [msgspec.json.decode(line, type=Orders) for line in data.splitlines()]

    def closeChildFD(self, descriptor: int) -> None:
        assert descriptor == ORDERS
        if self.input_closed:
            raise KeyError(descriptor)
        self.input_closed = True

    def signalProcess(self, name: str) -> None:
        if self.ended:
            raise ProcessExitedAlready
        self.signals.append(name)

    def says(self, report: ChildReport) -> None:
        """Comes in two pieces."""
        line = encode_line(report)
        self.protocol.childDataReceived(REPORTS, line[:3])
        self.protocol.childDataReceived(REPORTS, line[3:])

    def ends(self, *, status: int | None = None, signal: int | None = None) -> None:
        self.ended = True
        error = ProcessDone(0) if status == 0 else ProcessTerminated(status, signal)
        self.protocol.processEnded(Failure(error))


class World:
    def __init__(self, **keys: Any) -> None:
        self.clock = Clock()
        self.processes: list[FakeProcess] = []
        self.config = BrokerContainerConfig(**keys)
        shared = (NettyServerConfig(max_connections=77), TlsConfig(server_key_password="secret"))
        self.apart = BrokersApart(self.clock, self.config, shared, self._spawn)

    def _spawn(self, protocol: Any, setup: BrokerSetup) -> Any:
        self.processes.append(FakeProcess(protocol, setup))
        return self.processes[-1]

    def start(self, name: str = "a", text: str = "") -> Any:
        files = BrokerFiles("10.0.0.1:9876", "127.0.0.1", "/home/me")
        return self.apart.start(files.parse(f"brokerName={name}\nlistenPort=11\n{text}", "/f"))

    def serving(self, name: str = "a", text: str = "") -> Any:
        """A broker that serves."""
        started = self.start(name, text)
        self.processes[-1].says(ChildReport(serves="127.0.0.1:11"))
        return fired(started)


def test_a_process_is_told_what_belongs_to_the_container() -> None:
    world = World()
    world.serving(text="brokerRole=SLAVE\nbrokerId=3\nmaxConnections=5\n")
    settings = world.processes[0].orders[0].settings or {}
    assert settings["brokerId"] == "3"
    assert settings["listenPort"] == "11" and settings["haListenPort"] == "12"
    assert settings["namesrvAddr"] == "10.0.0.1:9876"
    assert settings["maxConnections"] == "77", "the container's"
    assert settings["tls.server.keyPassword"] == "secret", "over the pipe, in no command line"


def test_a_broker_that_cannot_start_is_refused_with_its_reason() -> None:
    world = World()
    started = world.start()
    world.processes[0].says(ChildReport(failed="127.0.0.1:11 cannot be listened on"))
    world.processes[0].ends(status=1)
    with pytest.raises(StartFailed, match=r"127.0.0.1:11 cannot be listened on"):
        fired(started)
    world.clock.advance(1000)
    assert len(world.processes) == 1, "it is not tried again"


def test_a_process_that_ends_without_a_word_is_refused_too() -> None:
    world = World()
    started = world.start()
    world.processes[0].ends(signal=9)
    with pytest.raises(StartFailed, match="ended with signal 9"):
        fired(started)


def test_a_broker_that_ends_is_started_again_with_growing_pauses() -> None:
    world = World(max_broker_restart_pause_millis=5_000)
    world.serving()
    world.processes[-1].ends(signal=9)
    for pause in (1, 2, 4, 5, 5):
        number = len(world.processes)
        world.clock.advance(pause - 0.01)
        assert len(world.processes) == number
        world.clock.advance(0.02)
        assert len(world.processes) == number + 1
        world.processes[-1].ends(status=1)


def test_a_broker_that_served_for_long_is_started_again_soon() -> None:
    world = World(max_broker_restart_pause_millis=5_000)
    world.serving()
    for _ in range(4):
        world.clock.advance(5)
        world.processes[-1].ends(signal=11)
        number = len(world.processes)
        world.clock.advance(1)
        assert len(world.processes) == number + 1
        world.processes[-1].says(ChildReport(serves="127.0.0.1:11"))


def test_a_stop_closes_the_pipe_and_waits_for_the_end() -> None:
    world = World()
    broker = world.serving()
    stopped = broker.stop()
    assert world.processes[0].input_closed and not stopped.called
    world.clock.advance(59)
    assert not world.processes[0].signals
    world.processes[0].ends(status=0)
    fired(stopped)
    world.clock.advance(1000)
    assert len(world.processes) == 1


def test_a_process_that_does_not_stop_is_killed() -> None:
    world = World(broker_stop_timeout_millis=7_000)
    stopped = world.serving().stop()
    world.clock.advance(7)
    assert world.processes[0].signals == ["KILL"] and not stopped.called
    world.processes[0].ends(signal=9)
    fired(stopped)


def test_a_stop_in_a_pause_ends_it() -> None:
    world = World()
    broker = world.serving()
    world.processes[0].ends(signal=9)
    fired(broker.stop())
    world.clock.advance(1000)
    assert len(world.processes) == 1


def test_several_stop_at_once() -> None:
    world = World()
    brokers = [world.serving(name) for name in ("a", "b")]
    stopped = [broker.stop() for broker in brokers]
    for process in world.processes:
        process.ends(status=0)
    for each in stopped:
        fired(each)


def test_a_process_that_closes_its_input_can_be_stopped() -> None:
    world = World()
    broker = world.serving()
    world.processes[0].input_closed = True
    stopped = broker.stop()
    world.processes[0].ends(status=0)
    fired(stopped)


def test_all_hear_which_masters_serve() -> None:
    world = World()
    world.serving("a")
    slave, second = world.processes[0], world.serving("c", "brokerRole=SLAVE\nbrokerId=1\n")
    assert slave.orders[-1].masters == ["a"]
    third = world.serving("b")
    assert all(process.orders[-1].masters == ["a", "b"] for process in world.processes)
    world.processes[0].ends(signal=9)
    assert world.processes[1].orders[-1].masters == ["b"]
    stopped = third.stop()
    world.processes[2].ends(status=0)
    fired(stopped)
    assert world.processes[1].orders[-1].masters == []
    assert second.setup.config.broker_name == "c"
