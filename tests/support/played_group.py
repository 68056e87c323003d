"""Real brokers in memory in a group with a controller, which a test plays."""

from __future__ import annotations

from typing import Any

import attrs
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.testing import MemoryReactorClock

from rocketmq_tw.broker.broker import PARTS
from rocketmq_tw.broker.election.part import ElectedRole
from rocketmq_tw.broker.replicas.part import Replicas
from rocketmq_tw.broker.replicas.switching import NO_CONTROLLER, Switching
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.config.namesrv import NamesrvConfig
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.namesrv.namesrv import NameServer
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.group_state import GroupState, SyncStateSet
from tests.support.broker import BrokerInMemory
from tests.support.network import MemoryNetwork
from tests.support.noted_sends import NotedSends, bodies_of, log_of

NAMES = "10.0.0.1:9876"


class PlayedGroup(NotedSends):
    """Brokers 1 to n of one name, whose controller is this object."""

    def __init__(self, count: int = 3, **store: Any) -> None:
        clock = MemoryReactorClock()
        self.network = MemoryNetwork(clock)
        super().__init__(clock, self.network.client("10.0.0.9"))
        config = NamesrvConfig(kv_config_path="/kv.json", config_store_path="/ns.properties")
        names = NameServer(self.clock, MemoryFiles(), config)
        self.network.serve(NAMES, names.handlers)
        self.store = {"all_ack_in_sync_state_set": True, **store}
        self.files = [MemoryFiles() for _ in range(count)]
        self.brokers = [self.make(number) for number in range(1, count + 1)]
        self.epoch = self.master = 0
        self.members = SyncStateSet(frozenset(), 0)
        #: What the controller says to proposals: yes, a refusal, or nothing at all.
        self.refusal: Exception | None = None

    def make(self, number: int) -> BrokerInMemory:
        broker = BrokerInMemory(
            self.files[number - 1],
            clock=self.clock,
            network=self.network,
            address=f"10.0.0.{number + 1}:10911",
            broker={
                "namesrv_addr": NAMES,
                "slave_read_enable": True,
                "enable_controller_mode": True,
            },
            # This object is who speaks to the controller.
            kinds=[kind for kind in PARTS if kind is not ElectedRole],
            **self.store,
        )
        switching = broker.broker[Replicas].switching
        switching.controller = attrs.evolve(
            NO_CONTROLLER, propose=lambda members: self.alter(number, members)
        )
        return broker

    def __getitem__(self, number: int) -> BrokerInMemory:
        return self.brokers[number - 1]

    def switching(self, number: int) -> Switching:
        return self[number].broker[Replicas].switching

    def alter(self, master: int, members: frozenset[int]) -> Deferred[SyncStateSet]:
        if self.refusal is not None:
            return fail(self.refusal)
        if master != self.master:
            return fail(RequestError(ResponseCode.CONTROLLER_INVALID_MASTER, "not any more"))
        self.members = SyncStateSet(members, self.members.epoch + 1)
        return succeed(self.members)

    def elect(self, master: int, *, tell: tuple[int, ...] | None = None) -> None:
        """Makes a broker the master, and tells the brokers of `tell`, by default all."""
        self.epoch, self.master = self.epoch + 1, master
        self.members = SyncStateSet(frozenset({master}), self.members.epoch + 1)
        for number in tell or range(1, len(self.brokers) + 1):
            self.tell(number, master)
        self.settle(4)

    def tell(self, number: int, master: int) -> None:
        news = GroupState(master, self[master].address, self.epoch, self.members)
        if number == master:
            state = RoleState(Role.MASTER, 0, synchronous=True, group=news)
        else:
            state = RoleState(Role.SLAVE, number, group=news)
        self[number].become(state)

    def send(self, number: int, count: int = 5) -> None:
        self.send_to(self[number], count)
        self.settle(0.2)

    def bodies(self, number: int) -> list[bytes]:
        return bodies_of(self[number])

    def check_equal(self) -> None:
        logs = {log_of(broker) for broker in self.brokers}
        assert len(logs) == 1
        epochs = {self.switching(n).epochs.table.entries for n in range(1, len(self.brokers) + 1)}
        assert len(epochs) == 1
        assert self.acknowledged <= set(self.bodies(1))
        for number in range(2, len(self.brokers) + 1):
            assert self.bodies(number) == self.bodies(1)


def led(count: int = 3, **store: Any) -> PlayedGroup:
    """A group whose first broker is the master and has the topic."""
    group = PlayedGroup(count, **store)
    group.elect(1)
    group[1].add_topic("Topic", read_queue_nums=4, write_queue_nums=4)
    group.settle(6)
    return group
