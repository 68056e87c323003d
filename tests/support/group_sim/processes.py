"""The processes of a simulated group: a controller, a broker, each on files that outlive it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rocketmq_tw.broker.election.part import ElectedRole
from rocketmq_tw.broker.replicas.part import Replicas
from rocketmq_tw.broker.role.state import RoleState
from rocketmq_tw.config.controller import ControllerConfig
from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.controller.controller import Controller
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.net.address import split_address
from rocketmq_tw.net.live_config import kept_config
from rocketmq_tw.net.server import RemotingServer
from rocketmq_tw.raft.store.member import MemberStore
from rocketmq_tw.replication.auto_switch.service import AutoSwitchHAService
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.broker import BrokerInMemory, Threads
from tests.support.group_sim.clock import EventClock
from tests.support.group_sim.network import TroubledNetwork
from tests.support.network import FakePeer
from tests.support.process_clock import ProcessClock

CLUSTER, NAME = "C", "broker-a"
_LEDGER_FILE_SIZE, _LEDGER_INDEX_SIZE = 8 * 1024, 32 * 1024


class SlowThreads(Threads):
    """A pool whose work is done after a while, in any order; `slowest` is in seconds."""

    def __init__(self, clock: ProcessClock, chance: Random, slowest: float) -> None:
        super().__init__(eager=False)
        self._clock = clock
        self._chance = chance
        self._slowest = slowest

    def __call__(self, job: Callable[[], Any]) -> Deferred[Any]:
        if self.eager:
            return super().__call__(job)
        done: Deferred[Any] = Deferred()

        def run() -> None:
            try:
                value = job()
            except Exception:
                done.errback(Failure())
            else:
                done.callback(value)

        slow = self._chance.random() < 0.1
        delay = self._chance.random() * (self._slowest if slow else 0.002)
        self._clock.callLater(delay, run)
        return done


class Process:
    """Runs on one host; `files` outlive it."""

    def __init__(
        self, clock: EventClock, network: TroubledNetwork, host: str, chance: Random, slowest: float
    ) -> None:
        self.network = network
        self.host = host
        self.files = MemoryFiles()
        self.clock: ProcessClock | None = None
        self._shared = clock
        self._chance = chance
        self._slowest = slowest
        self.is_paused = False
        #: A power loss took what was not synced.
        self.lost_power = False

    @property
    def is_running(self) -> bool:
        """Whether there is a process, paused or not."""
        return self.clock is not None

    @property
    def is_able(self) -> bool:
        """Whether there is a process that can do something."""
        return self.clock is not None and not self.is_paused

    def begin(self) -> tuple[ProcessClock, SlowThreads]:
        """A new process begins."""
        self.network.came_up(self.host)
        self.lost_power = False
        self.clock = clock = ProcessClock(self._shared, self.network, self.host)
        return clock, SlowThreads(clock, self._chance, self._slowest)

    def end(self, *, power: bool) -> None:
        """kill -9, or the machine loses its power."""
        assert self.clock is not None
        self.clock.die()
        self.network.die(self.host, power=power)
        self.clock, self.is_paused, self.lost_power = None, False, power
        if power:
            self.files = self.files.crash(self._chance.randrange(1 << 30))
        else:
            self.files = self.files.kill()

    def pause(self) -> None:
        """SIGSTOP."""
        assert self.clock is not None
        self.is_paused = True
        self.network.stopped.add(self.host)
        self.clock.pause()

    def go_on(self) -> None:
        """SIGCONT."""
        assert self.clock is not None
        self.is_paused = False
        self.clock.go_on()
        self.network.go_on(self.host)


class ControllerProcess(Process):
    """One of the controllers; `peers` are all of them by their ids, `on_apply` hears of each entry
    once it is applied."""

    def __init__(
        self,
        *around: Any,
        member: str,
        peers: dict[str, str],
        keys: dict[str, Any],
        on_apply: Callable[[ControllerProcess, int], None],
    ) -> None:
        super().__init__(*around)
        self.member = member
        self.controller: Controller | None = None
        self._peers = peers
        self._keys = keys
        self._on_apply = on_apply

    def start(self) -> None:
        """A new process on what the disk holds."""
        clock, threads = self.begin()
        config = ControllerConfig(
            controller_dledger_group="controllers",
            controller_dledger_peers=";".join(f"{one}-{at}" for one, at in self._peers.items()),
            controller_dledger_self_id=self.member,
            mapped_file_size=_LEDGER_FILE_SIZE,
            config_store_path="/conf/controller.conf",
            **self._keys,
        )
        self.controller = controller = Controller(
            clock,
            config,
            kept_config(self.files, config, (), threads),
            MemberStore(self.files, "/s", _LEDGER_FILE_SIZE, _LEDGER_INDEX_SIZE),
            clock.client(),
            threads,
            Random(self._chance.randrange(1 << 30)),
        )
        apply = controller.machine.apply

        def observed(entry: Any) -> None:
            apply(entry)
            self._on_apply(self, entry.index)

        controller.machine.apply = observed  # type: ignore[method-assign]
        host, port = split_address(self._peers[self.member])
        server = RemotingServer(clock, NettyServerConfig(bind_address=host, listen_port=port))
        controller.start(server)

    @property
    def leads(self) -> bool:
        """Whether it takes itself for the leader."""
        return self.is_able and self.controller is not None and self.controller.node.is_leader

    def end(self, *, power: bool) -> None:
        super().end(power=power)
        self.controller = None


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
    """One of the brokers; `keys` are of its store."""

    def __init__(
        self, *around: Any, controllers: str, settings: dict[str, Any], keys: dict[str, Any]
    ) -> None:
        super().__init__(*around)
        self.broker: BrokerInMemory | None = None
        self._settings = {
            "broker_name": NAME,
            "broker_cluster_name": CLUSTER,
            "enable_controller_mode": True,
            "controller_addr": controllers,
            **settings,
        }
        self._keys = keys

    def start(self) -> None:
        """A new process on what the disk holds."""
        clock, threads = self.begin()
        self.broker = broker = BrokerInMemory(
            self.files,
            clock=clock,
            network=self.network,
            address=f"{self.host}:10911",
            threads=threads,
            broker=self._settings,
            client=clock.client(),
            started=False,
            **self._keys,
        )
        broker.broker[Replicas].endpoint_for = clock.endpoint
        broker.start()

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

    def end(self, *, power: bool) -> None:
        super().end(power=power)
        self.broker = None
