"""Brokers in memory that follow controllers in memory: one clock, one network."""

from __future__ import annotations

from typing import Any

from rocketmq_tw.broker.election.part import ElectedRole
from rocketmq_tw.broker.replicas.part import Replicas
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.config.namesrv import NamesrvConfig
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.namesrv.namesrv import NameServer
from rocketmq_tw.wire.bodies.route import MASTER_ID
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.broker import BrokerInMemory
from tests.support.memory_controllers import PEERS, Controllers
from tests.support.network import FakePeer
from tests.support.process_clock import ProcessClock

NAME, NAME_SERVER = "broker-a", "10.0.9.1:9876"


class Sender(FakePeer):
    """A producer of one message."""

    def __init__(self, body: bytes, acknowledged: list[bytes]) -> None:
        super().__init__()
        self._body = body
        self._acknowledged = acknowledged

    def reply(self, response: RemotingCommand) -> None:
        super().reply(response)
        if response.code == ResponseCode.SUCCESS:
            self._acknowledged.append(self._body)


class ElectedGroup:
    """Three controllers, a name server, and brokers by number, each with files that outlive it;
    `broker` has keys of all brokers' configuration, `keys` those of their stores."""

    def __init__(self, broker: dict[str, Any] | None = None, **keys: Any) -> None:
        self._broker = broker or {}
        self.controllers = Controllers(
            scan_not_active_broker_interval=1000, scan_inactive_master_interval=1000
        )
        self.clock = self.controllers.clock
        self.network = self.controllers.network
        self.files: dict[int, MemoryFiles] = {}
        self.brokers: dict[int, BrokerInMemory] = {}
        self.processes: dict[int, ProcessClock] = {}
        #: What producers were told SEND_OK of.
        self.acknowledged: list[bytes] = []
        self._keys = keys
        config = NamesrvConfig(kv_config_path="/kv.json", config_store_path="/ns.properties")
        self.name_server = NameServer(self.clock, MemoryFiles(), config)
        self.network.serve(NAME_SERVER, self.name_server.handlers)

    def start(self, number: int, **keys: Any) -> BrokerInMemory:
        """A broker at its port, on the files that it has."""
        settings = {
            "broker_name": NAME,
            "broker_cluster_name": "C",
            "enable_controller_mode": True,
            "controller_addr": ";".join(PEERS.values()),
            "controller_heart_beat_timeout_mills": 3000,
            "namesrv_addr": NAME_SERVER,
            **self._broker,
        }
        host = f"10.0.0.{number}"
        process = self.processes[number] = ProcessClock(self.clock, self.network, host)
        broker = BrokerInMemory(
            self.files.setdefault(number, MemoryFiles()),
            clock=process,
            network=self.network,
            address=f"{host}:10911",
            broker=settings,
            client=process.client(),
            started=False,
            **self._keys | keys,
        )
        broker.broker[Replicas].endpoint_for = process.endpoint
        broker.start()
        self.brokers[number] = broker
        return broker

    def kill(self, number: int, seed: int | None = None) -> None:
        """kill -9; with a seed a power loss, which takes a part of what was not synced."""
        self.brokers.pop(number)
        self.processes.pop(number).die()
        files = self.files[number]
        self.files[number] = files.kill() if seed is None else files.crash(seed)

    def send(self, number: int, body: bytes) -> None:
        """A producer sends to a broker; `acknowledged` has the body once it is told SEND_OK."""
        broker = self.brokers[number]
        peer = Sender(body, self.acknowledged)
        answer = broker.request(broker.send_request(body), peer)
        if answer is not None and answer not in peer.replies:
            peer.reply(answer)

    def bodies(self, number: int) -> list[bytes]:
        """What a consumer of a broker sees."""
        return [message.body for message in self.brokers[number].consume()]

    def run(self, seconds: float) -> None:
        self.controllers.run(seconds)

    def run_until(self, condition: Any, limit: float = 60.0) -> None:
        self.controllers.run_until(condition, limit)

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
        brokers = self.name_server.table.members("C", NAME).broker_addrs
        return brokers.get(MASTER_ID)

    def in_sync(self) -> frozenset[int]:
        """The SyncStateSet as the master has it."""
        in_sync = self.master().broker[Replicas].switching.sync_state_set
        return frozenset() if in_sync is None else in_sync.members

    def broker_id(self, number: int) -> int:
        follower = self.brokers[number].broker[ElectedRole].follower
        assert follower is not None
        return follower.broker_id
