"""Brokers of a DLedger group in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.internet.testing import MemoryReactorClock

from rocketmq_tw.broker.dledger.part import DLedgerGroup
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.raft.node import RaftNode
from tests.support.broker import BrokerInMemory
from tests.support.network import FakePeer, MemoryNetwork

IDS = ("n0", "n1", "n2")


def group_address(member: str) -> str:
    """Where the other members find one."""
    return f"127.0.0.{member[1:]}:40911"


PEERS = ";".join(f"{member}-{group_address(member)}" for member in IDS)


class DLedgerBrokers:
    """Three brokers on one network, by the ids of their members; time goes on with `run`."""

    def __init__(self, files: Mapping[str, MemoryFiles] | None = None, **store: Any) -> None:
        """`files` of members that have some."""
        self.clock = MemoryReactorClock()
        self.clock.advance(1000)
        self.network = MemoryNetwork(self.clock)
        self.files = {member: MemoryFiles() for member in IDS} | dict(files or {})
        self.brokers: dict[str, BrokerInMemory] = {}
        self._store = store
        for member in IDS:
            self.start(member)

    def start(self, member: str) -> BrokerInMemory:
        broker = BrokerInMemory(
            self.files[member],
            clock=self.clock,
            network=self.network,
            address=f"127.0.0.{member[1:]}:10911",
            **{
                "enable_dledger_commit_log": True,
                "dledger_group": "g",
                "dledger_peers": PEERS,
                "dledger_self_id": member,
                **self._store,
            },
        )
        listener: Any = broker.broker[DLedgerGroup].listener
        self.network.listen(group_address(member), listener.factory)
        self.brokers[member] = broker
        return broker

    def kill(self, member: str) -> None:
        """The process is gone; what it wrote is there."""
        broker = self.brokers.pop(member)
        self.network.stop(group_address(member))
        self.network.stop(broker.address)
        node = self.node(broker)
        node.stop()
        self.files[member] = self.files[member].kill()

    def stop(self, member: str) -> None:
        broker = self.brokers.pop(member)
        broker.stop()
        self.network.stop(group_address(member))

    def node(self, broker: BrokerInMemory) -> RaftNode:
        member = broker.broker[DLedgerGroup].member
        assert member is not None
        return member.node

    def run(self, seconds: float) -> None:
        for _ in range(int(seconds / 0.02)):
            self.clock.advance(0.02)

    def settle(self) -> None:
        """Runs until all have one log, committed and in its queues. After two elections at once
        that takes some seconds: a member whose term is the later one has to be followed first."""
        for _ in range(600):
            self.run(0.1)
            stores = [broker.store for broker in self.brokers.values()]
            places = ((store.end_offset, store.dispatched_offset) for store in stores)
            if len({offset for both in places for offset in both}) == 1:
                return
        raise AssertionError("the members have not come together in a minute")

    @property
    def masters(self) -> list[str]:
        return [
            member
            for member, broker in self.brokers.items()
            if broker.broker.role.role is Role.MASTER
        ]

    def master(self) -> BrokerInMemory:
        """The only master, once there is one that all follow."""
        for _ in range(2000):
            self.run(0.1)
            roles = [broker.broker.role.role for broker in self.brokers.values()]
            if roles.count(Role.MASTER) == 1 and Role.ISOLATED not in roles:
                break
        (master,) = self.masters
        return self.brokers[master]

    def ask_to_store(self, broker: BrokerInMemory, body: bytes, **fields: Any) -> list[Any]:
        """Sends; what is returned gets the answer when there is one."""
        peer, request = FakePeer(), broker.send_request(body, **fields)
        answer = broker.request(request, peer)
        if answer is not None and answer not in peer.replies:
            peer.replies.append(answer)
        return peer.replies

    def send(self, *bodies: bytes, **fields: Any) -> None:
        """Has the master store bodies; each must be acknowledged."""
        for body in bodies:
            answers = self.ask_to_store(self.master(), body, **fields)
            self.run(0.5)
            assert answers and answers[0].code == 0, answers

    def bodies(self, topic: str = "Topic") -> dict[str, list[bytes]]:
        """What each broker has in the topic's first queue."""
        return {
            member: [message.body for message in broker.consume(topic)]
            for member, broker in self.brokers.items()
        }
