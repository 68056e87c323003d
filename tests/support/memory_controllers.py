"""A group of controllers on a network, disks and a clock in memory, and brokers that ask them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from rocketmq_tw.client.controller import ControllerClient
from rocketmq_tw.config.controller import ControllerConfig
from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.controller.controller import Controller
from rocketmq_tw.files.faulty import FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.net.address import split_address
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.net.live_config import kept_config
from rocketmq_tw.net.server import RemotingServer
from rocketmq_tw.raft.store.member import MemberStore
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.namesrv import BrokerHeartbeatRequestHeader
from tests.support.network import MemoryNetwork
from tests.support.process_clock import MemoryPort

PEERS = {"n0": "127.0.0.1:1", "n1": "127.0.0.1:2", "n2": "127.0.0.1:3"}
CLUSTER, GROUP = "C", "g"
_FILE_SIZE = 8 * 1024

T = TypeVar("T")


class ListeningClock(Clock):
    """A clock whose ports are those of a network in memory."""

    network: MemoryNetwork

    def __init__(self) -> None:
        super().__init__()
        self.factories: dict[str, Any] = {}

    def listenTCP(
        self, port: int, factory: Any, backlog: int = 50, interface: str = ""
    ) -> MemoryPort:
        address = f"127.0.0.1:{port}"
        self.network.listen(address, factory)
        self.factories[address] = factory
        return MemoryPort(self.network, address)


def _at_once(action: Callable[[], None]) -> Deferred[None]:
    try:
        action()
    except Exception as error:
        return fail(error)
    return succeed(None)


class Controllers:
    """Three controllers; `config` are keys that all of them have."""

    def __init__(self, **config: Any) -> None:
        self.clock = ListeningClock()
        self.clock.advance(1000)
        self.network = self.clock.network = MemoryNetwork(self.clock)
        self._config = config
        self.configs: dict[str, ControllerConfig] = {}
        self.disks = {member: FaultyFiles(MemoryFiles()) for member in PEERS}
        self.running: dict[str, Controller] = {}
        for member in PEERS:
            self.start(member)

    def start(self, member: str) -> None:
        """A new process on what the member's disk holds."""
        config = self.configs[member] = ControllerConfig(
            controller_dledger_group="controllers",
            controller_dledger_peers=";".join(f"{one}-{at}" for one, at in PEERS.items()),
            controller_dledger_self_id=member,
            mapped_file_size=_FILE_SIZE,
            config_store_path="/conf/controller.conf",
            **self._config,
        )
        disk = self.disks[member]
        controller = self.running[member] = Controller(
            self.clock,
            config,
            kept_config(disk, config, (), _at_once),
            MemberStore(disk, "/s", _FILE_SIZE, 32 * 1024),
            self.network.client(),
            _at_once,
            Random(int(member[1:])),
        )
        _, port = split_address(PEERS[member])
        controller.start(RemotingServer(self.clock, NettyServerConfig(listen_port=port)))

    def stop(self, member: str) -> None:
        """The process goes away as by kill -9."""
        self.network.stop(PEERS[member])
        self.result(self.running.pop(member).stop())

    def cut(self, member: str) -> None:
        """Nobody reaches the member any more; it reaches the others."""
        self.network.stop(PEERS[member])

    def mend(self, member: str) -> None:
        """The end of `cut`."""
        self.network.listen(PEERS[member], self.clock.factories[PEERS[member]])

    def run(self, seconds: float) -> None:
        """Time passes in small steps."""
        for _ in range(max(1, round(seconds / 0.005))):
            self.clock.advance(0.005)

    def run_until(self, condition: Callable[[], Any], limit: float = 60.0) -> None:
        began = self.clock.seconds()
        while not condition():
            assert self.clock.seconds() - began < limit, "not in time"
            self.run(0.005)

    def result(self, deferred: Deferred[T]) -> T:
        """What the Deferred fires with; raises what it fails with."""
        found: list[Any] = []
        deferred.addBoth(found.append)
        self.run_until(lambda: found)
        if isinstance(found[0], Failure):
            found[0].raiseException()
        result: T = found[0]
        return result

    def leader(self) -> Controller:
        """The one that decides, once there is one."""

        def decides() -> list[Controller]:
            return [one for one in self.running.values() if one.decider.leads]

        self.run_until(decides)
        (leader,) = decides()
        return leader

    def take_turn(self, group: str) -> Deferred[None]:
        """Keeps decisions on a group waiting until what is returned is fired."""
        turn: Deferred[None] = Deferred()
        self.leader().decider._turns.run(group, lambda: turn)
        return turn

    def leader_id(self) -> str:
        return self.leader().node.core.config.self_id

    def ask(self, member: str, code: int, body: bytes = b"", **fields: object) -> RemotingCommand:
        """One request to one controller."""
        command = RemotingCommand.request(code, body=body)
        command.ext_fields = {name: str(value) for name, value in fields.items()}
        return self.result(self.network.client("10.9.9.9").request(PEERS[member], command, 9))

    def same_state(self) -> bool:
        """Whether all that run have applied the same."""
        states = [one.machine.state for one in self.running.values()]
        return all(state == states[0] for state in states)


class AskingBroker:
    """A broker's side: asks the controllers, and hears of its role at `address`."""

    def __init__(self, controllers: Controllers, broker_id: int, name: str = GROUP) -> None:
        self.controllers = controllers
        self.broker_id = broker_id
        self.name = name
        self.address = f"10.0.0.{broker_id}:10911"
        #: The 1008s that came.
        self.told: list[RemotingCommand] = []
        self._remoting = controllers.network.client(f"10.0.0.{broker_id}")
        self.client = ControllerClient(
            controllers.clock, self._remoting, list(PEERS.values()), leader_timeout=30.0
        )
        controllers.network.serve(
            self.address, {RequestCode.NOTIFY_BROKER_ROLE_CHANGED: self._role_changed}
        )

    def _role_changed(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        self.told.append(request)
        return request.response(ResponseCode.SUCCESS)

    def come_up(self) -> None:
        """Applies for its id and registers, as a new broker does."""
        result, client = self.controllers.result, self.client
        code = f"{self.address};{self.broker_id}"
        result(client.apply_broker_id(CLUSTER, self.name, self.broker_id, code))
        result(client.register_broker(CLUSTER, self.name, self.broker_id, self.address))
        self.beat()

    def beat(
        self,
        *,
        epoch: int = 1,
        offset: int = 0,
        timeout_ms: int = 3_600_000,
        priority: int | None = None,
    ) -> None:
        """A heartbeat to all controllers, which have it on return."""
        self.client.heartbeat(
            BrokerHeartbeatRequestHeader(
                cluster_name=CLUSTER,
                broker_name=self.name,
                broker_addr=self.address,
                broker_id=self.broker_id,
                epoch=epoch,
                max_offset=offset,
                heartbeat_timeout_mills=timeout_ms,
                election_priority=priority,
            )
        )
        self.controllers.run(0.05)

    def die(self) -> None:
        """Its connections are closed, as of a process that was killed."""
        self.controllers.network.stop(self.address)
        self.lose_controllers()

    def lose_controllers(self) -> None:
        """Its connections are closed; who connects to it finds it."""
        self._remoting.close()
        self.controllers.run(0.05)
