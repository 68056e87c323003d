"""Groups of brokers without controllers, whose slaves stand in for masters that are gone."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.internet.task import deferLater
from zope.interface import implementer

from rocketmq_tw.broker.assembly.neighbours import INeighbours
from rocketmq_tw.broker.replicas.part import Replicas
from rocketmq_tw.broker.replicas.slave import MasterFollower
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.broker.writing.sink import IMessageSink, PutResult
from rocketmq_tw.config.namesrv import NamesrvConfig
from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.namesrv.namesrv import NameServer
from rocketmq_tw.net.server import RemotingServer
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.route import TopicRouteData
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.namesrv import GetRouteInfoRequestHeader
from tests.support.broker import BrokerInMemory
from tests.support.network import FakePeer, Weather
from tests.support.sim.brokers import CLUSTER, BrokerProcess
from tests.support.sim.simulation import Process, Simulation

#: Heartbeat time-out, interval of heartbeats and of questions, and of the name servers' scans, in
#: ms: short, so that simulations are.
NOT_ACTIVE_MS, BEAT_MS, SCAN_MS = 3_000, 300, 500


class NameServerProcess(Process):
    """A name server at port 9876 of its host, with supportActingMaster."""

    def __init__(self, simulation: Simulation, host: str, **keys: Any) -> None:
        super().__init__(simulation, host)
        self.address = f"{host}:9876"
        #: Of its configuration.
        self.keys: dict[str, Any] = {
            "support_acting_master": True,
            "scan_not_active_broker_interval": SCAN_MS,
        } | keys
        self.server: NameServer | None = None

    def start(self) -> NameServer:
        """A new process on what the disk holds."""
        clock, threads = self.begin()
        config = NamesrvConfig(
            kv_config_path="/kv.json", config_store_path="/ns.properties", **self.keys
        )
        client = self.simulation.network.client(self.host, clock=clock)
        self.server = server = NameServer(
            clock, self.disk, config, client=client, in_thread=threads
        )
        net = NettyServerConfig(bind_address=self.host, listen_port=9876)
        server.start(RemotingServer(clock, net))
        return server

    def end(self, *, power: bool = False, seed: int | None = None) -> None:
        super().end(power=power, seed=seed)
        self.server = None


class ActingCluster(Simulation):
    """Name servers, and groups of brokers by name, each a master (0) and slaves by id; `settings`
    are keys of the brokers' configuration, `net` of their ports', `keys` of their stores'.

    The host of a broker is `10.GROUP.0.ID`, so that a test can cut it off.
    """

    def __init__(
        self,
        *,
        name_servers: int = 1,
        settings: dict[str, Any] | None = None,
        net: dict[str, Any] | None = None,
        chance: Random | None = None,
        weather: Weather | None = None,
        master_role: str = "ASYNC_MASTER",
        **keys: Any,
    ) -> None:
        super().__init__(chance=chance, weather=weather)
        self._master_role = master_role
        self.name_servers = [
            NameServerProcess(self, f"10.9.0.{number}") for number in range(1, name_servers + 1)
        ]
        for name_server in self.name_servers:
            name_server.start()
        self._settings = {
            "enable_slave_acting_master": True,
            "enable_remote_escape": True,
            "namesrv_addr": ";".join(each.address for each in self.name_servers),
            "broker_not_active_timeout_millis": NOT_ACTIVE_MS,
            "broker_heartbeat_interval": BEAT_MS,
            "sync_broker_member_group_period": BEAT_MS,
            **(settings or {}),
        }
        self._keys = keys
        self._net = net
        #: The containers of brokers, as each of them sees its own.
        self.neighbours: dict[tuple[str, int], INeighbours] = {}
        self.processes: dict[tuple[str, int], BrokerProcess] = {}
        self.names: list[str] = []

    def start(
        self, name: str, broker_id: int, files: MemoryFiles | None = None, **settings: Any
    ) -> BrokerInMemory:
        """A broker on the files that it has, or on `files` where it is new; `settings` replace some
        of its configuration."""
        if name not in self.names:
            self.names.append(name)
        key = name, broker_id
        if key not in self.processes:
            identity = {"broker_name": name, "broker_id": broker_id, **settings}
            self.processes[key] = BrokerProcess(
                self,
                f"10.{self.names.index(name) + 1}.0.{broker_id + 1}",
                settings=self._settings | identity,
                keys={"broker_role": "SLAVE" if broker_id else self._master_role} | self._keys,
                neighbours=self.neighbours.get(key),
                files=files,
                net=self._net,
            )
        return self.processes[key].start()

    def start_group(self, name: str, slaves: int = 1) -> BrokerInMemory:
        """A master and its slaves; returns the master once all follow it."""
        master = self.start(name, 0)
        for number in range(1, slaves + 1):
            self.start(name, number)
        self.run_until(
            lambda: (
                len(self.members(name)) == slaves + 1
                and all(self.follows(name, number) for number in range(1, slaves + 1))
            )
        )
        return master

    def broker(self, name: str, broker_id: int) -> BrokerInMemory:
        """A broker that runs."""
        broker = self.processes[name, broker_id].broker
        assert broker is not None, f"{name} {broker_id} does not run"
        return broker

    def kill(self, name: str, broker_id: int) -> None:
        """kill -9."""
        self.processes[name, broker_id].end()

    def role(self, name: str, broker_id: int) -> Role:
        """The role of a broker that runs."""
        return self.broker(name, broker_id).broker.role.role

    def acts(self, name: str, broker_id: int) -> bool:
        """Whether a broker runs and is the acting master."""
        process = self.processes[name, broker_id]
        return process.broker is not None and self.role(name, broker_id) is Role.ACTING_MASTER

    def follows(self, name: str, broker_id: int) -> bool:
        """Whether a slave has a link to its master and all of its log."""
        slave = self.broker(name, broker_id)
        follower = slave.broker[Replicas].slave
        master = self.broker(name, 0)
        return (
            isinstance(follower, MasterFollower)
            and follower.client.linked
            and slave.store.end_offset == master.store.end_offset
        )

    def members(self, name: str, name_server: int = 0) -> dict[int, str]:
        """The brokers of a group that a name server has."""
        server = self.name_servers[name_server].server
        assert server is not None
        return server.table.members(CLUSTER, name).broker_addrs

    def route(self, topic: str, name_server: int = 0) -> TopicRouteData:
        """The route that clients are given; empty where the name server has none."""
        server = self.name_servers[name_server].server
        assert server is not None
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        request, peer = (
            RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header),
            FakePeer(),
        )
        answer: Any = server.handlers[RequestCode.GET_ROUTEINFO_BY_TOPIC](request, peer)
        if not isinstance(answer, RemotingCommand):
            answer = self.result(answer) if answer is not None else peer.replies[-1]
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return TopicRouteData()
        return decode_body(TopicRouteData, answer.body)


@implementer(IMessageSink)
class RefusingSink:
    """A sink in front of an acting master's that refuses some messages, as another broker may;
    `at_once`: without a turn of the reactor between."""

    is_one_log = False

    def __init__(self, broker: BrokerInMemory, *refused: bytes, at_once: bool = False) -> None:
        self._clock = broker.clock
        self._at_once = at_once
        sinks = broker.broker[Writing].sink.sinks
        self._sink, sinks[Role.ACTING_MASTER] = sinks[Role.ACTING_MASTER], self
        self.refused = set(refused)

    def put(self, message: StoredMessage, *, wait: bool = False) -> Deferred[PutResult]:
        if message.body not in self.refused:
            return self._sink.put(message, wait=wait)
        refusal = RequestError(ResponseCode.SYSTEM_ERROR, "not this one")
        if self._at_once:
            return fail(refusal)
        return deferLater(self._clock, 0.05).addCallback(lambda _: fail(refusal))

    def at_turn_end(
        self, compose: Callable[[], StoredMessage | None]
    ) -> Deferred[PutResult | None]:
        return self._sink.at_turn_end(compose)
