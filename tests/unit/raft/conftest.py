"""A group of nodes on a network and disks in memory."""

import json
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from rocketmq_tw.files.faulty import FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.raft.bodies import DLedgerRequestCode
from rocketmq_tw.raft.core.config import NodeConfig, RaftConfig
from rocketmq_tw.raft.member_addresses import MemberAddresses
from rocketmq_tw.raft.node import RaftNode, Replicated
from rocketmq_tw.raft.requests import DLedgerRequests
from rocketmq_tw.raft.store.member import MemberStore
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.network import MemoryNetwork
from tests.support.raft_kv import KeyValue

PEERS = {"n0": "127.0.0.1:1", "n1": "127.0.0.1:2", "n2": "127.0.0.1:3"}
FILE_SIZE = 4096


def run_at_once(action: Callable[[], None]) -> Deferred[None]:
    try:
        action()
    except Exception as error:
        return fail(error)
    return succeed(None)


class NodeGroup:
    """Three nodes with a key-value machine each; `ask` speaks JSON to one of them."""

    def __init__(self, snapshot_every: int = 0) -> None:
        self.clock = Clock()
        self.clock.advance(1000)
        self.network = MemoryNetwork(self.clock)
        self.disks = {member: FaultyFiles(MemoryFiles()) for member in PEERS}
        #: Seconds that a member's disk takes for all that it is given; none: it is done at once.
        self.disk_seconds: dict[str, float] = {}
        self.nodes: dict[str, RaftNode] = {}
        self.machines: dict[str, KeyValue] = {}
        self._client = self.network.client()
        self._snapshot_every = snapshot_every
        for member in PEERS:
            self.start(member)

    def start(self, member: str) -> None:
        config = NodeConfig(
            group="g",
            peers=PEERS,
            raft=RaftConfig(self_id=member, members=tuple(PEERS), data_file_size=FILE_SIZE),
            snapshot_every=self._snapshot_every,
        )
        store = MemberStore(self.disks[member], "/s", FILE_SIZE, 32 * 64)
        machine = self.machines[member] = KeyValue()
        node = self.nodes[member] = RaftNode(
            self.clock,
            config,
            store,
            self.network.client(),
            partial(self._run_blocking, member),
            Replicated(machine),
            Random(int(member[1:])),
        )
        members = MemberAddresses(self.clock, PEERS, run_at_once)
        self.network.serve(PEERS[member], DLedgerRequests(node, members).table())
        node.start()

    def _run_blocking(self, member: str, action: Callable[[], None]) -> "Deferred[None]":
        done = run_at_once(action)
        seconds = self.disk_seconds.get(member, 0.0)
        if not seconds:
            return done
        told: Deferred[None] = Deferred()
        self.clock.callLater(seconds, done.chainDeferred, told)
        return told

    def stop(self, member: str) -> None:
        """The process goes away as by kill -9."""
        self.network.stop(PEERS[member])
        self.nodes.pop(member).stop()

    @property
    def addresses(self) -> dict[str, str]:
        """Member -> its address."""
        return PEERS

    def run(self, seconds: float) -> None:
        """Time passes in small steps."""
        steps = max(1, round(seconds / 0.005))
        for _ in range(steps):
            self.clock.advance(0.005)

    def run_until(self, condition: Callable[[], Any], limit: float = 60.0) -> float:
        """Seconds until `condition` held."""
        began = self.clock.seconds()
        while not condition():
            assert self.clock.seconds() - began < limit, "not in time"
            self.run(0.005)
        return self.clock.seconds() - began

    def leader(self) -> RaftNode | None:
        """Who leads and is followed by all others that run."""
        said = {node.leader_id for node in self.nodes.values()}
        leader = self.nodes.get(said.pop() or "") if len(said) == 1 else None
        return leader if leader is not None and leader.is_leader else None

    def elect(self) -> str:
        self.run_until(self.leader)
        leader = self.leader()
        assert leader is not None
        return leader.core.config.self_id

    def ask(self, member: str, code: DLedgerRequestCode, body: Any) -> dict[str, Any]:
        """The JSON body of the answer."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        answered = self._client.request(PEERS[member], RemotingCommand.request(code, body=data), 9)
        answers: list[RemotingCommand] = []
        answered.addCallback(answers.append)
        self.run_until(lambda: answers, limit=10.0)
        assert answers[0].code == 200
        decoded: dict[str, Any] = json.loads(answers[0].body)
        return decoded


@pytest.fixture
def group() -> NodeGroup:
    return NodeGroup()


@pytest.fixture
def snapshotting_group() -> NodeGroup:
    return NodeGroup(snapshot_every=8)
