"""Brokers that follow controllers, and a name server, at a test's command."""

from __future__ import annotations

from typing import Any

from rocketmq_tw.broker.replicas.part import Replicas
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.wire.bodies.route import MASTER_ID
from tests.support.broker import BrokerInMemory
from tests.support.name_server import NameServerInMemory
from tests.support.sim.brokers import CLUSTER, NAME, BrokerProcess
from tests.support.sim.controllers import PEERS, Controllers
from tests.support.sim.simulation import Simulation

NAME_SERVER = "10.0.9.1:9876"


class ElectedGroup(Simulation):
    """Three controllers, a name server, and brokers by number, each with files that outlive it;
    `broker` has keys of all brokers' configuration, `keys` those of their stores."""

    def __init__(self, broker: dict[str, Any] | None = None, **keys: Any) -> None:
        super().__init__()
        self.controllers = Controllers(
            self, scan_not_active_broker_interval=1000, scan_inactive_master_interval=1000
        )
        self.processes: dict[int, BrokerProcess] = {}
        #: What producers were told SEND_OK of.
        self.acknowledged: list[bytes] = []
        self._keys = keys
        self._settings = {
            "enable_controller_mode": True,
            "controller_addr": ";".join(PEERS.values()),
            "controller_heart_beat_timeout_mills": 3000,
            "namesrv_addr": NAME_SERVER,
            **(broker or {}),
        }
        self.name_server = NameServerInMemory(self.clock).server
        self.network.serve(NAME_SERVER, self.name_server.handlers)

    @property
    def brokers(self) -> dict[int, BrokerInMemory]:
        """Those that run, by number."""
        found = {number: process.broker for number, process in self.processes.items()}
        return {number: one for number, one in found.items() if one is not None}

    def start(self, number: int, files: MemoryFiles | None = None, **keys: Any) -> BrokerInMemory:
        """A broker at its port, on the files that it has, or on `files` where it is new."""
        if number not in self.processes:
            self.processes[number] = BrokerProcess(
                self, f"10.0.0.{number}", settings=self._settings, keys=self._keys, files=files
            )
        return self.processes[number].start(**keys)

    def kill(self, number: int, seed: int | None = None) -> None:
        """kill -9; with a seed a power loss, which takes a part of what was not synced."""
        self.processes[number].end(power=seed is not None, seed=seed)

    def send(self, number: int, body: bytes) -> None:
        """A producer sends to a broker; `acknowledged` has the body once it is told SEND_OK."""
        self.processes[number].send(body, lambda body, _: self.acknowledged.append(body))

    def bodies(self, number: int) -> list[bytes]:
        """What a consumer of a broker sees."""
        return [message.body for message in self.brokers[number].consume()]

    def role(self, number: int) -> Role:
        return self.brokers[number].broker.role.role

    def masters(self) -> list[int]:
        """Who takes itself for the master."""
        return [number for number in self.brokers if self.role(number) is Role.MASTER]

    def master(self) -> BrokerInMemory:
        """The master, once there is one."""
        self.run_until(self.masters)
        (number,) = self.masters()
        return self.brokers[number]

    def routed(self) -> str | None:
        """Where the name server leads producers to."""
        brokers = self.name_server.table.members(CLUSTER, NAME).broker_addrs
        return brokers.get(MASTER_ID)

    def in_sync(self) -> frozenset[int]:
        """The SyncStateSet as the master has it."""
        in_sync = self.master().broker[Replicas].switching.sync_state_set
        return frozenset() if in_sync is None else in_sync.members

    def broker_id(self, number: int) -> int:
        return self.processes[number].broker_id
