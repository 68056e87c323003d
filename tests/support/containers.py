"""A container whose brokers live in one process, on files, a clock and a network in memory."""

from __future__ import annotations

import errno
from typing import Any

from twisted.internet.error import CannotListenError
from twisted.internet.testing import MemoryReactorClock

from rocketmq_tw.config.container import BrokerContainerConfig
from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.container.broker_files import BrokerFiles
from rocketmq_tw.container.container import BrokerContainer
from rocketmq_tw.container.interface import BrokerIdentity, BrokerSetup
from rocketmq_tw.container.requests import ContainerRequests
from rocketmq_tw.container.together import BrokersTogether, SharedMachine
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.net.interfaces import AccessChecks
from rocketmq_tw.net.live_config import CONTAINER_RULES, LiveConfig, in_config_file
from rocketmq_tw.net.server import RemotingServer
from rocketmq_tw.services.access import request_checks
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.base import Header
from rocketmq_tw.wire.headers.broker import AddBrokerRequestHeader, RemoveBrokerRequestHeader
from tests.support.broker import Threads
from tests.support.network import MemoryAddress, MemoryNetwork

HOST, PORT = "127.0.0.1", 10811
#: Bytes of the brokers' log files.
SMALL_FILES = "mappedFileSizeCommitLog=1048576\nmaxIndexNum=40\nmaxHashSlotNum=16\n"


class MemoryPort:
    """A port of `MemoryMachine`."""

    def __init__(self, machine: MemoryMachine, port: int) -> None:
        self._machine = machine
        self._port = port

    def getHost(self) -> MemoryAddress:
        return MemoryAddress(f"{HOST}:{self._port}")

    def stopListening(self) -> None:
        self._machine.open.discard(self._port)
        self._machine.network.close(f"{HOST}:{self._port}")


class MemoryMachine(MemoryReactorClock):
    """A reactor whose ports are on a network in memory; one that is taken cannot be listened on."""

    def __init__(self) -> None:
        super().__init__()
        self.network = MemoryNetwork(self)
        self.open: set[int] = set()

    def listenTCP(
        self, port: int, factory: Any, backlog: int = 50, interface: str = ""
    ) -> MemoryPort:
        if port in self.open:
            taken = OSError(errno.EADDRINUSE, "Address already in use")
            raise CannotListenError(interface, port, taken)
        self.open.add(port)
        self.network.listen(f"{HOST}:{port}", factory)
        return MemoryPort(self, port)


class ContainerInMemory:
    """A container at port 10811, asked over the network. `texts` are the files that 902 may name,
    by their paths."""

    def __init__(self, **keys: Any) -> None:
        self.machine = MemoryMachine()
        self.files = MemoryFiles()
        self.texts: dict[str, str] = {}
        self.config = BrokerContainerConfig(**keys)
        self.net = NettyServerConfig(bind_address=HOST, listen_port=PORT)
        access = AccessChecks(requests=request_checks(self.net, self.machine.seconds))
        self.server = RemotingServer(self.machine, self.net, access=access)
        threads = Threads()
        self.together = BrokersTogether(
            SharedMachine(
                reactor=self.machine,
                files=self.files,
                client=self.machine.network.client(HOST, clock=self.machine),
                server=self.server,
                net_config=self.net,
                in_thread=threads,
                describe=describe,
            )
        )
        files = BrokerFiles(self.config.namesrv_addr, HOST, "/home/me", self._read)
        self.container = BrokerContainer(files, self.together, threads)
        live = LiveConfig(
            self.config,
            [self.net],
            CONTAINER_RULES,
            in_config_file(self.files, "/container.conf", threads, is_made=True),
        )
        listener = self.server.listener()
        self.handlers = ContainerRequests(self.container, live, 1_000).handlers()
        listener.serve(self.handlers)
        listener.listen()

    def _read(self, path: str) -> str:
        if path not in self.texts:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return self.texts[path]

    def file(self, name: str, port: int, text: str = "", broker_id: int = 0) -> str:
        """Writes the file of a broker and returns its path."""
        path = f"/{name}-{broker_id}.conf"
        role = f"brokerRole=SLAVE\nbrokerId={broker_id}\n" if broker_id else ""
        self.texts[path] = (
            f"brokerName={name}\nlistenPort={port}\nstorePathRootDir=/store{path}\n"
            f"{role}{SMALL_FILES}{text}"
        )
        return path

    def ask(
        self,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        *,
        host: str = HOST,
        port: int = PORT,
        seconds: float = 5.0,
    ) -> RemotingCommand:
        """Asks a port of the machine from `host`; returns the answer, which has to come within
        `seconds`."""
        results: list[Any] = []
        request = RemotingCommand.request(code, header, body)
        client = self.machine.network.client(host, clock=self.machine)
        client.request(f"{HOST}:{port}", request, seconds).addBoth(results.append)
        for _ in range(round(seconds / 0.05)):
            if results:
                break
            self.machine.advance(0.05)
        (answer,) = results
        assert isinstance(answer, RemotingCommand), answer
        return answer

    def add(self, path: str, *, host: str = HOST) -> RemotingCommand:
        """Asks 902."""
        return self.ask(RequestCode.ADD_BROKER, AddBrokerRequestHeader(config_path=path), host=host)

    def remove(self, name: str, broker_id: int = 0, *, host: str = HOST) -> RemotingCommand:
        """Asks 903 for a broker of the default cluster."""
        header = RemoveBrokerRequestHeader(
            broker_name=name, broker_cluster_name="DefaultCluster", broker_id=broker_id
        )
        return self.ask(RequestCode.REMOVE_BROKER, header, host=host)

    def names(self) -> list[str]:
        """The brokers that the container has."""
        return [identity.canonical_name for identity in self.container.identities]


def describe(error: BaseException, setup: BrokerSetup) -> str:
    """Says why a broker did not start."""
    return f"{type(error).__name__}: {error}"


def identity(name: str, broker_id: int = 0) -> BrokerIdentity:
    """A broker of the default cluster."""
    return BrokerIdentity("DefaultCluster", name, broker_id)
