"""Groups of controllers, stock's and ours, and brokers in controller mode, as processes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rocketmq_tw.raft.bodies import DLedgerRequestCode, TransferRequestBody
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.bodies.base import decode_body, encode_body
from rocketmq_tw.wire.bodies.controller import BrokerReplicasInfo, ReplicasInfo, SyncStateSetBody
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.controller import (
    GetMetaDataResponseHeader,
    GetReplicaInfoRequestHeader,
    GetReplicaInfoResponseHeader,
)
from tests.support.hosts import HostNetwork
from tests.support.outages import Outage
from tests.support.ports import ReservedPort
from tests.support.processes import (
    BrokerProcess,
    NameServerProcess,
    ServerProcess,
    write_properties,
)
from tests.support.remoting import DEFAULT_TIMEOUT, ask
from tests.support.servers import OurNameServer, twistd_command, twistd_environment
from tests.support.stock import StockBroker, stock_java, stock_logs
from tests.support.wait import PeerFailed, wait_until

GROUP = "controllers"
STOCK_VERSION = "5.3.3"
_DATA_FILE_SIZE = 1024 * 1024
_PROBE_TIMEOUT = 5.0
_HEAP_MB = 128


class ControllerProcess(ServerProcess):
    """One controller; `settings` are stock's keys over those of a test. Controllers that take turns
    on one store share its `port` too."""

    def __init__(
        self,
        member: str,
        home: Path,
        settings: dict[str, str] | None = None,
        *,
        port: ReservedPort | None = None,
    ) -> None:
        super().__init__(member, home)
        self.port = port or ReservedPort()
        self.peers = ""
        self.store = home / "store"
        self.settings = dict(settings or {})

    @property
    def address(self) -> str:
        return f"{self.ip}:{self.port.number}"

    def metadata(self) -> GetMetaDataResponseHeader:
        command = RemotingCommand.request(RequestCode.CONTROLLER_GET_METADATA_INFO)
        return ask(self.address, command, _PROBE_TIMEOUT).header(GetMetaDataResponseHeader)

    def ready(self) -> bool:
        return self.metadata().group == GROUP

    def decides(self) -> bool:
        """Whether it answers what only a leader answers that has applied its log."""
        command = RemotingCommand.request(
            RequestCode.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfoRequestHeader(broker_name="?")
        )
        answer = ask(self.address, command, _PROBE_TIMEOUT)
        return answer.code == ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST

    def term(self) -> int:
        """The term that the controller has stored."""
        text = (self.store / f"dledger-{self.name}" / "currterm").read_text()
        found = re.search(r"currTerm=(\d+)", text)
        return int(found.group(1)) if found else 0

    def keys(self) -> dict[str, str]:
        """What its file says."""
        return {
            "controllerDLegerGroup": GROUP,
            "controllerDLegerPeers": self.peers,
            "controllerDLegerSelfId": self.name,
            "controllerStorePath": str(self.store),
            "mappedFileSize": str(_DATA_FILE_SIZE),
            # A test that takes longer than two minutes must not lose the brokers that it plays.
            "serverChannelMaxIdleTimeSeconds": "3600",
            "rocketmqHome": str(self.home),
            **self.settings,
        }

    def write_properties(self) -> Path:
        return write_properties(self.home / "controller.conf", self.keys())

    def close(self) -> None:
        super().close()
        self.port.release()


class OurController(ControllerProcess):
    """`twistd -n rmq-controller`."""

    def command(self) -> list[str]:
        return twistd_command("rmq-controller", self.write_properties())

    def environment(self) -> dict[str, str]:
        return twistd_environment()


class StockController(ControllerProcess):
    """ControllerStartup in a JVM."""

    def command(self) -> list[str]:
        main_class = "org.apache.rocketmq.controller.ControllerStartup"
        java = stock_java(STOCK_VERSION, self.home, _HEAP_MB, main_class)
        return [*java, "-c", str(self.write_properties())]

    def log_files(self) -> list[Path]:
        return [*super().log_files(), *stock_logs(self.home)]


class ControllerInNameServer(OurController):
    """`twistd -n rmq-namesrv` with enableControllerInNamesrv."""

    def __init__(self, member: str, home: Path, settings: dict[str, str] | None = None) -> None:
        super().__init__(member, home, settings)
        #: What brokers and clients know of it; never started by itself.
        self.name_server = OurNameServer(home)

    def command(self) -> list[str]:
        path = self.name_server.write_properties()
        keys = self.keys() | {"enableControllerInNamesrv": "true"}
        with path.open("a") as file:
            file.writelines(f"{key}={value}\n" for key, value in keys.items())
        return twistd_command("rmq-namesrv", path)

    def close(self) -> None:
        super().close()
        self.name_server.close()


_KINDS = {"ours": OurController, "stock": StockController, "in-namesrv": ControllerInNameServer}


class ControllerGroup:
    """Controllers that vote; `kinds` has "stock", "ours" or "in-namesrv" (ours) for each,
    `network` a host for each."""

    def __init__(
        self,
        home: Path,
        kinds: Sequence[str],
        settings: dict[str, str] | None = None,
        network: HostNetwork | None = None,
    ) -> None:
        self.members: dict[str, ControllerProcess] = {}
        for number, kind in enumerate(kinds):
            name = f"n{number}"
            self.members[name] = _KINDS[kind](name, home / f"controller-{name}", settings)
            if network is not None:
                self.members[name].place(network.add_host())
        peers = ";".join(f"{name}-{one.address}" for name, one in self.members.items())
        for member in self.members.values():
            member.peers = peers

    @property
    def addresses(self) -> str:
        """As controllerAddr has them."""
        return ";".join(member.address for member in self.members.values())

    def start(self) -> None:
        for member in self.members.values():
            member.launch()
        for member in self.members.values():
            member.wait_ready()

    def leader(self) -> ControllerProcess | None:
        """The member that decides, if there is one now."""
        for member in self.members.values():
            try:
                if member.running and not member.away and member.decides():
                    return member
            except (OSError, PeerFailed):
                continue
        return None

    def wait_leader(self) -> ControllerProcess:
        found = wait_until(self.leader, "a controller that decides", interval=0.1)
        assert found is not None
        return found

    def fail_leader(self, outage: Outage) -> ControllerProcess:
        """The one that decides goes; back when another one has taken over."""
        gone = self.wait_leader()
        outage.begin(gone)
        self.wait_leader()
        return gone

    def lead_by(self, kind: type[ControllerProcess]) -> ControllerProcess:
        """Hands the lead over until a member of the kind has it."""

        def led() -> ControllerProcess | None:
            leader = self.wait_leader()
            if isinstance(leader, kind):
                return leader
            target = next(one for one in self.members.values() if isinstance(one, kind))
            body = TransferRequestBody(
                group=GROUP,
                remote_id=leader.name,
                local_id="test",
                term=leader.term(),
                transfer_id=leader.name,
                transferee_id=target.name,
            )
            ask(
                leader.address,
                RemotingCommand.request(
                    DLedgerRequestCode.LEADERSHIP_TRANSFER, body=msgspec.json.encode(body)
                ),
                _PROBE_TIMEOUT,
            )
            return None

        found = wait_until(led, f"a leader that is {kind.__name__}", interval=0.5)
        assert found is not None
        return found

    def request(
        self, command: RemotingCommand, timeout: float = DEFAULT_TIMEOUT
    ) -> RemotingCommand:
        """What the one that decides answers."""
        return ask(self.wait_leader().address, command, timeout)

    def master(self, broker_name: str) -> Master:
        """Who the master of a group is, by the one that decides now; fails while there is none."""
        answer = self.request(
            RemotingCommand.request(
                RequestCode.CONTROLLER_GET_REPLICA_INFO,
                GetReplicaInfoRequestHeader(broker_name=broker_name),
            ),
            _PROBE_TIMEOUT,
        )
        if answer.code:
            raise PeerFailed(f"{broker_name}: {answer.code} {answer.remark}")
        header = answer.header(GetReplicaInfoResponseHeader)
        members = decode_body(SyncStateSetBody, answer.body)
        return Master(
            header.master_address,
            header.master_broker_id,
            header.master_epoch or 0,
            frozenset(members.sync_state_set),
        )

    def replicas(self, broker_name: str) -> ReplicasInfo:
        """All that the leader knows of a group."""
        answer = self.request(
            RemotingCommand.request(
                RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=encode_body([broker_name])
            )
        )
        return decode_body(BrokerReplicasInfo, answer.body).replicas_info_table[broker_name]

    def close(self) -> None:
        for member in self.members.values():
            member.close()


class Master(NamedTuple):
    """What controllers say of a group's master."""

    address: str | None
    broker_id: int | None
    epoch: int
    sync_state_set: frozenset[int]


@contextmanager
def running_controllers(
    home: Path,
    kinds: Sequence[str],
    settings: dict[str, str] | None = None,
    network: HostNetwork | None = None,
) -> Iterator[ControllerGroup]:
    """A started group with a leader; closed at the end."""
    group = ControllerGroup(home, kinds, settings, network)
    try:
        group.start()
        group.wait_leader()
        yield group
    finally:
        group.close()


#: What a broker in controller mode looks at often, so that a test need not wait.
CONTROLLER_MODE = {
    "enableControllerMode": "true",
    "syncBrokerMetadataPeriod": "500",
    "checkSyncStateSetPeriod": "500",
    "syncControllerMetadataPeriod": "500",
    "brokerHeartbeatInterval": "300",
}


def controlled_keys(home: Path, controllers: ControllerGroup) -> dict[str, str]:
    """What a broker with its store in `home` has in its file to follow the controllers."""
    return CONTROLLER_MODE | {
        "controllerAddr": controllers.addresses,
        "storePathEpochFile": str(home / "store" / "epochFileCheckpoint"),
        "storePathBrokerIdentity": str(home / "store" / "brokerIdentity"),
    }


def stock_replica(
    broker_name: str,
    home: Path,
    controllers: ControllerGroup,
    name_servers: list[NameServerProcess],
) -> BrokerProcess:
    """A stock broker, not started, that the controllers give an id and a role."""
    settings = controlled_keys(home, controllers)
    return StockBroker(STOCK_VERSION, broker_name, home, name_servers, settings=settings)
