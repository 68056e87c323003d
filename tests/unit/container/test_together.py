"""Brokers in the container's own process."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.container.interface import BrokerIdentity, BrokerSetup
from rocketmq_tw.container.together import BrokersTogether, SharedMachine
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.net.server import RemotingServer
from tests.support.broker import Threads, fired
from tests.support.network import MemoryNetwork
from tests.support.stores import small_config

HOST = "10.0.0.1"


def setup_of(name: str, port: int) -> BrokerSetup:
    return BrokerSetup(
        path=f"/{name}.conf",
        identity=BrokerIdentity("DefaultCluster", name, 0),
        config=BrokerConfig(broker_name=name, broker_ip1=HOST),
        store_config=small_config(
            store_path_root_dir=f"/{name}",
            mapped_file_size_commit_log=1 << 20,
            ha_listen_port=port + 1,
        ),
        listen_port=port,
    )


class Process:
    """A container's process, in memory."""

    def __init__(self) -> None:
        self.clock = MemoryReactorClock()
        #: For how many brokers threads were asked for.
        self.brokers_allowed: list[int] = []
        net_config = NettyServerConfig(bind_address=HOST)
        self.hosting = BrokersTogether(
            SharedMachine(
                reactor=self.clock,
                files=MemoryFiles(),
                client=MemoryNetwork(self.clock).client(HOST, clock=self.clock),
                server=RemotingServer(self.clock, net_config),
                net_config=net_config,
                in_thread=Threads(),
                allow_brokers=self.brokers_allowed.append,
                describe=lambda error, setup: f"{setup.path}: {error}",
            )
        )

    def wait_for(self, deferred: Deferred[Any]) -> Any:
        for _ in range(1000):
            if deferred.called:
                break
            self.clock.advance(0)
        return fired(deferred)


def test_lines_of_the_log_say_which_broker_they_are_of() -> None:
    process = Process()
    for name, port in (("a", 11), ("b", 21)):
        process.wait_for(process.hosting.start(setup_of(name, port)))
    with capturedLogs() as events:
        for broker in process.hosting.brokers:
            process.wait_for(broker.change_role(RoleState(Role.SLAVE, 1)))
    lines = [line for line in map(formatEvent, events) if "the broker is" in line]
    assert lines == [
        f"DefaultCluster_{name}_0: the broker is slave now, its id is 1" for name in "ab"
    ]


def test_each_broker_brings_threads_for_itself() -> None:
    """A disk that hangs keeps those of its broker for ever."""
    process = Process()
    for name, port in (("a", 11), ("b", 21)):
        process.wait_for(process.hosting.start(setup_of(name, port)))
    assert process.brokers_allowed == [1, 2]
