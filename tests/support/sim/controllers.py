"""The controllers of a simulation, and brokers that do nothing but ask them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from twisted.internet.defer import Deferred

from rocketmq_tw.client.controller import ControllerClient
from rocketmq_tw.config.controller import ControllerConfig
from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.controller.controller import Controller
from rocketmq_tw.net.address import split_address
from rocketmq_tw.net.interfaces import AccessChecks, IPeer
from rocketmq_tw.net.live_config import kept_config
from rocketmq_tw.net.server import RemotingServer
from rocketmq_tw.raft.store.member import MemberStore
from rocketmq_tw.services.access import request_checks
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.namesrv import BrokerHeartbeatRequestHeader
from tests.support.sim.simulation import Process, Simulation

PEERS = {f"n{number}": f"10.1.0.{number}:9878" for number in range(3)}
CLUSTER, GROUP = "C", "g"
_FILE_SIZE, _INDEX_SIZE = 8 * 1024, 32 * 1024


class ControllerProcess(Process):
    """One of the controllers; `keys` are of its configuration, `on_apply` hears of each entry once
    it is applied."""

    def __init__(
        self,
        simulation: Simulation,
        member: str,
        keys: dict[str, Any],
        on_apply: Callable[[ControllerProcess, int], None] | None = None,
        *,
        admin_addresses: str = "",
        cluster_addresses: str = "",
    ) -> None:
        super().__init__(simulation, split_address(PEERS[member])[0])
        self._admin_addresses = admin_addresses
        self._cluster_addresses = cluster_addresses
        self.member = member
        self.controller: Controller | None = None
        self.config = self._read_config(keys)
        self._keys = keys
        self._on_apply = on_apply

    def _read_config(self, keys: dict[str, Any]) -> ControllerConfig:
        return ControllerConfig(
            controller_dledger_group="controllers",
            controller_dledger_peers=";".join(f"{one}-{at}" for one, at in PEERS.items()),
            controller_dledger_self_id=self.member,
            mapped_file_size=_FILE_SIZE,
            config_store_path="/conf/controller.conf",
            **keys,
        )

    def start(self) -> Controller:
        """A new process on what the disk holds."""
        clock, threads = self.begin()
        self.config = self._read_config(self._keys)
        self.controller = controller = Controller(
            clock,
            self.config,
            kept_config(self.disk, self.config, (), threads),
            MemberStore(self.disk, "/s", _FILE_SIZE, _INDEX_SIZE),
            clock.client(),
            threads,
            Random(self.simulation.chance.randrange(1 << 30)),
            hears_strangers=not self._cluster_addresses,
        )
        if self._on_apply is not None:
            self._observe(controller, self._on_apply)
        host, port = split_address(PEERS[self.member])
        net = NettyServerConfig(
            bind_address=host,
            listen_port=port,
            admin_addresses=self._admin_addresses,
            cluster_addresses=self._cluster_addresses,
        )
        checks = request_checks(net, clock.seconds, controller.needs_no_administrator)
        server = RemotingServer(clock, net, access=AccessChecks(requests=checks))
        controller.start(server)
        return controller

    def _observe(
        self, controller: Controller, on_apply: Callable[[ControllerProcess, int], None]
    ) -> None:
        apply = controller.machine.apply

        def observed(entry: Any) -> None:
            apply(entry)
            on_apply(self, entry.index)

        controller.machine.apply = observed  # type: ignore[method-assign]
        # One whose disk fails stands still, and is started again once its disk is mended.
        controller.node.when_failed.addErrback(lambda _: None)

    @property
    def leads(self) -> bool:
        """Whether it takes itself for the leader."""
        return self.is_able and self.controller is not None and self.controller.node.is_leader

    def end(self, *, power: bool = False, seed: int | None = None) -> None:
        super().end(power=power, seed=seed)
        self.controller = None


class Controllers(Simulation):
    """Three controllers; `config` are keys that all of them have. `ask` asks from `asker`."""

    def __init__(
        self,
        on: Simulation | None = None,
        *,
        admin_addresses: str = "",
        cluster_addresses: str = "",
        **config: Any,
    ) -> None:
        super().__init__(on)
        self.asker = "10.9.9.9"
        self.processes = {
            member: ControllerProcess(
                self,
                member,
                config,
                admin_addresses=admin_addresses,
                cluster_addresses=cluster_addresses,
            )
            for member in PEERS
        }
        for member in PEERS:
            self.start(member)

    @property
    def running(self) -> dict[str, Controller]:
        """Those that run, by member."""
        found = {member: process.controller for member, process in self.processes.items()}
        return {member: one for member, one in found.items() if one is not None}

    def start(self, member: str) -> None:
        """A new process on what the member's disk holds."""
        self.processes[member].start()

    def stop(self, member: str) -> None:
        """The process goes away as by kill -9."""
        self.processes[member].end()

    def cut(self, member: str) -> None:
        """Nobody reaches the member any more; it reaches the others."""
        self.network.stop(PEERS[member])

    def mend(self, member: str) -> None:
        """The end of `cut`."""
        clock = self.processes[member].clock
        assert clock is not None
        self.network.listen(PEERS[member], clock.factories[PEERS[member]])

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
        self.leader().decider._of_group.run(group, "", lambda: turn)
        return turn

    def leader_id(self) -> str:
        return self.leader().node.core.config.self_id

    def ask(self, member: str, code: int, body: bytes = b"", **fields: object) -> RemotingCommand:
        """One request to one controller."""
        command = RemotingCommand.request(code, body=body)
        command.ext_fields = {name: str(value) for name, value in fields.items()}
        return self.result(self.network.client(self.asker).request(PEERS[member], command, 9))

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
