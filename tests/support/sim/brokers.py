"""The brokers of a simulation, and producers of single messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rocketmq_tw.broker.assembly.neighbours import INeighbours
from rocketmq_tw.broker.election.part import ElectedRole
from rocketmq_tw.broker.replicas.part import Replicas
from rocketmq_tw.broker.role.state import RoleState
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.replication.auto_switch.service import AutoSwitchHAService
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.broker import BrokerInMemory
from tests.support.network import FakePeer
from tests.support.sim.simulation import Process, Simulation

CLUSTER, NAME = "C", "broker-a"


class Sender(FakePeer):
    """A producer of one message."""

    def __init__(self, body: bytes, acknowledged: Callable[[bytes, int], None]) -> None:
        super().__init__()
        self._body = body
        self._acknowledged = acknowledged

    def reply(self, response: RemotingCommand) -> None:
        super().reply(response)
        if response.code == ResponseCode.SUCCESS:
            # An offset message id: address, port, offset.
            offset = int(response.ext_fields["msgId"][-16:], 16)
            self._acknowledged(self._body, offset)


class BrokerProcess(Process):
    """One of the brokers; `settings` are of its configuration, `keys` of its store, `net` of its
    port."""

    def __init__(
        self,
        simulation: Simulation,
        host: str,
        *,
        settings: dict[str, Any],
        keys: dict[str, Any],
        files: MemoryFiles | None = None,
        neighbours: INeighbours | None = None,
        net: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(simulation, host, files)
        self._neighbours = neighbours
        self._net = net
        self.broker: BrokerInMemory | None = None
        self._settings = {"broker_name": NAME, "broker_cluster_name": CLUSTER, **settings}
        self._keys = keys

    def start(self, **keys: Any) -> BrokerInMemory:
        """A new process on what the disk holds; `keys` replace some of its store's."""
        clock, threads = self.begin()
        self.broker = BrokerInMemory(
            self.disk,
            clock=clock,
            network=self.simulation.network,
            address=f"{self.host}:10911",
            threads=threads,
            broker=self._settings,
            net=self._net,
            neighbours=self._neighbours,
            **self._keys | keys,
        )
        return self.broker

    @property
    def state(self) -> RoleState:
        """The role that it takes itself to have."""
        assert self.broker is not None
        return self.broker.broker.role.state

    @property
    def broker_id(self) -> int:
        """Its lasting id; 0 before it has one."""
        if self.broker is None:
            return 0
        follower = self.broker.broker[ElectedRole].follower
        return 0 if follower is None else follower.broker_id

    @property
    def is_asking(self) -> bool:
        """Whether a proposal of this master for the SyncStateSet has no answer yet."""
        if self.broker is None:
            return False
        master = self.broker.broker[Replicas].master
        service = None if master is None else master.service
        return isinstance(service, AutoSwitchHAService) and service._asked is not None

    def send(self, body: bytes, acknowledged: Callable[[bytes, int], None]) -> None:
        """A producer sends a message; `acknowledged` is called with it and its log offset once it
        is told SEND_OK."""
        broker = self.broker
        assert broker is not None
        peer = Sender(body, acknowledged)
        answer = broker.request(broker.send_request(body), peer)
        if answer is not None and answer not in peer.replies:
            peer.reply(answer)

    def end(self, *, power: bool = False, seed: int | None = None) -> None:
        super().end(power=power, seed=seed)
        self.broker = None
