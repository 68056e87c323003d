"""A master in memory and slaves that follow it, over their real links."""

from __future__ import annotations

from typing import Any

from twisted.internet.testing import MemoryReactorClock

from rocketmq_tw.broker.cluster.name_server_links import Master
from rocketmq_tw.broker.replicas.master import MasterLinks
from rocketmq_tw.broker.replicas.part import Replicas
from rocketmq_tw.broker.replicas.slave import MasterFollower
from rocketmq_tw.broker.stats.part import Stats
from rocketmq_tw.broker.timer.progress import TimerProgress
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.broker import BrokerInMemory, Threads, messages_of, ok
from tests.support.network import MemoryNetwork, MemoryTransport
from tests.support.noted_sends import log_of

MASTER, HA = "10.0.0.1:10911", "10.0.0.1:10912"
NEXT_MASTER = "10.0.0.2:10911"
FILE_SIZE = 4096


class Replica:
    """A broker of the group, on the group's clock and network."""

    def __init__(self, group: MasterAndSlaves, plane: BrokerInMemory) -> None:
        self.group = group
        self.plane = plane

    def bytes(self, start: int = 0) -> bytes:
        """The log's bytes from an offset on."""
        return log_of(self.plane, start)


class MasterAndSlaves:
    """A master, and slaves that learn of it when they are added."""

    def __init__(self, *, sync: bool = False, threads: Threads | None = None, **store: Any) -> None:
        self.clock = MemoryReactorClock()
        self.network = MemoryNetwork(self.clock)
        self.slaves = 0
        role = "SYNC_MASTER" if sync else "ASYNC_MASTER"
        self.store = {"mapped_file_size_commit_log": FILE_SIZE} | store
        self.master = self.new_master(threads=threads, broker_role=role, **self.store)

    def new_master(self, **options: Any) -> Replica:
        """A started broker with the topic `Topic` at the master's addresses."""
        plane = BrokerInMemory(clock=self.clock, network=self.network, address=MASTER, **options)
        plane.add_topic("Topic", read_queue_nums=4, write_queue_nums=4)
        self.network.listen(NEXT_MASTER, plane.broker.listener.factory)
        return Replica(self, plane)

    def replace_master(self, *bodies: bytes) -> None:
        """A broker with other messages takes the master's place."""
        self.stop()
        self.master = self.new_master(mapped_file_size_commit_log=FILE_SIZE)
        for body in bodies:
            self.send(body)

    @property
    def part(self) -> MasterLinks:
        links = self.master.plane.broker[Replicas].master
        assert links is not None
        return links

    @property
    def timer(self) -> TimerProgress:
        return self.master.plane.timer

    def restart(self) -> None:
        """The master says that it was started again."""
        self.master.plane.broker[Stats].statistics.boot_timestamp += 1

    def add_slave(self, plane: BrokerInMemory | None = None, **changes: Any) -> Slave:
        slave = Slave(self, plane or self.slave_plane(**changes))
        slave.part.learned(Master(MASTER, HA))
        self.settle()
        return slave

    def slave_plane(self, **changes: Any) -> BrokerInMemory:
        self.slaves += 1
        return BrokerInMemory(
            clock=self.clock,
            network=self.network,
            address=f"10.0.1.{self.slaves}:10911",
            broker={"broker_id": self.slaves, "slave_read_enable": True},
            **{**self.store, "broker_role": "SLAVE", **changes},
        )

    def send(self, body: bytes, **options: Any) -> RemotingCommand | None:
        return self.master.plane.send(body, **options)

    def settle(self) -> None:
        """What is on its way arrives, timers of the next second included."""
        for _ in range(20):
            self.clock.advance(0.05)

    def stop(self) -> None:
        """The master is gone."""
        self.network.stop(HA)
        self.network.stop(MASTER)
        self.settle()


class Slave(Replica):
    @property
    def part(self) -> MasterFollower:
        link = self.plane.broker[Replicas].slave
        assert isinstance(link, MasterFollower)
        return link

    @property
    def timer(self) -> TimerProgress:
        return self.plane.timer

    def copy(self) -> None:
        done: list[Any] = []
        self.part.copy().addBoth(done.append)
        self.group.settle()
        assert done == [None]

    def stop(self) -> None:
        """Goes down; its files stay."""
        self.plane.stop()

    @property
    def end(self) -> MemoryTransport:
        """The slave's end of its link."""
        connection = self.part.client.connection
        assert connection is not None
        transport = connection.transport
        assert isinstance(transport, MemoryTransport)
        return transport

    def bodies(self, topic: str = "Topic", **options: Any) -> list[bytes]:
        response = self.plane.pull(0, topic=topic, **options)
        ok(response)
        assert response is not None
        return [message.body for message in messages_of(response.body)]
