"""Servers as child processes: started, probed, killed, and their logs shown when they fail."""

from __future__ import annotations

import os
import signal
import subprocess
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from weakref import WeakSet

from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.fastjson import loads
from tests.support.hosts import Host
from tests.support.ports import LOOPBACK, BrokerPorts, ReservedPort
from tests.support.remoting import ask
from tests.support.running import Running
from tests.support.wait import wait_until

#: Four JVMs that start at once on two busy cores take a minute.
START_LIMIT = 240.0
STOP_LIMIT = 120.0
_PROBE_TIMEOUT = 5.0
_TAIL_BYTES = 6000


#: Servers that were started since the present test began, for the report of its failure.
started: WeakSet[ServerProcess] = WeakSet()


class ServerFailed(Exception):
    """A server did not start or stop as asked; the message ends with the tails of its logs."""


class ServerProcess(Running):
    """One server under `home`, where its configuration, data and logs live.

    `start` waits until the server is `ready`; `kill` is kill -9; `stop` asks and waits. A server
    may be started again after either, on the same address and data.
    """

    def __init__(self, name: str, home: Path) -> None:
        self.name = name
        self.home = home
        self.output = home / "output.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._host: Host | None = None
        self._loopback = LOOPBACK
        #: Paused or cut off: alive, but nobody hears of it.
        self.away = False
        home.mkdir(parents=True, exist_ok=True)

    @property
    @abstractmethod
    def address(self) -> str:
        """`host:port` that clients use."""

    @abstractmethod
    def command(self) -> list[str]:
        """The command line; called at each start, so it may write configuration first."""

    @abstractmethod
    def ready(self) -> bool:
        """Whether the server answers; may raise what a wait takes for "not yet"."""

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def place(self, host: Host) -> None:
        """It runs on a host of its own from its next start on; before others learn its address."""
        self._host = host

    def move(self, loopback: str) -> None:
        """It is at another address of this machine from its next start on."""
        self._loopback = loopback

    @property
    def ip(self) -> str:
        """Where it listens."""
        return self._loopback if self._host is None else self._host.address

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ServerFailed(f"{self.name} was never started")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Starts the process and does not wait for it."""
        if self.running:
            raise ServerFailed(f"{self.name} is running already")
        started.add(self)
        with self.output.open("ab") as output:
            prefix = [] if self._host is None else self._host.prefix
            self._process = subprocess.Popen(
                [*prefix, *self.command()],
                cwd=self.home,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def start(self, limit: float = START_LIMIT) -> None:
        self.launch()
        self.wait_ready(limit)

    def wait_ready(self, limit: float = START_LIMIT) -> None:
        """Waits until the server answers; raises `ServerFailed` where it died or is too slow."""
        try:
            wait_until(self._ready_or_dead, f"{self.name} to be ready", limit=limit)
        except TimeoutError as error:
            raise ServerFailed(f"{error}\n{self.log_tails()}") from error

    def _ready_or_dead(self) -> bool:
        if not self.running:
            code = self._process.returncode if self._process else None
            raise ServerFailed(f"{self.name} ended with {code}\n{self.log_tails()}")
        return self.ready()

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def pause(self) -> None:
        """SIGSTOP; until `resume` it does nothing, and others see only its silence. On a busy
        machine its threads go on for a while, so back once all of them have stopped."""
        self.away = True
        os.kill(self.pid, signal.SIGSTOP)
        wait_until(self._has_stopped, f"{self.name} to stop")

    def _has_stopped(self) -> bool:
        """Whether no thread of the process runs; the state stands behind the name in brackets."""
        threads = [path.read_text() for path in Path(f"/proc/{self.pid}/task").glob("*/stat")]
        return all(text.rpartition(")")[2].split()[0] in "Tt" for text in threads)

    def resume(self) -> None:
        """Undoes `pause`."""
        os.kill(self.pid, signal.SIGCONT)
        self.away = False

    def cut(self) -> None:
        """Cuts its host's link, until `mend`."""
        assert self._host is not None, f"{self.name} has no host of its own"
        self.away = True
        self._host.cut()

    def mend(self) -> None:
        """Undoes `cut`."""
        assert self._host is not None
        self._host.mend()
        self.away = False

    def stop(self, limit: float = STOP_LIMIT) -> None:
        """Terminates and waits for a clean end; does nothing where the server does not run."""
        if self._process is None or not self.running:
            return
        self._process.terminate()
        try:
            self._process.wait(limit)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise ServerFailed(
                f"{self.name} did not stop within {limit:g} s\n{self.log_tails()}"
            ) from error

    def close(self) -> None:
        """Ends the process, however it stands, and gives back what it holds."""
        self.kill()

    def resident_bytes(self) -> int:
        """VmRSS of the process."""
        with open(f"/proc/{self.pid}/status", encoding="ascii") as status:
            for line in status:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * 1024
        raise ServerFailed(f"{self.name} has no memory left to measure: is it running?")

    def log_files(self) -> list[Path]:
        return [self.output]

    def log_text(self) -> str:
        """All logs, for a test that looks for what must not be there."""
        return "\n".join(
            path.read_text(errors="replace") for path in self.log_files() if path.exists()
        )

    def log_tails(self) -> str:
        parts = []
        for path in self.log_files():
            if path.exists():
                tail = path.read_bytes()[-_TAIL_BYTES:].decode(errors="replace")
                parts.append(f"--- {self.name}: the end of {path.name}\n{tail}")
        return "\n".join(parts)


class NameServerProcess(ServerProcess):
    """What any name server has: a port, and readiness once it answers; `settings` are keys of its
    own."""

    def __init__(self, name: str, home: Path, settings: dict[str, str] | None = None) -> None:
        super().__init__(name, home)
        self._settings = settings or {}
        self._port = ReservedPort()

    @property
    def address(self) -> str:
        return f"{self.ip}:{self._port.number}"

    def ready(self) -> bool:
        return self.cluster_body() is not None

    def cluster_body(self) -> bytes:
        """The body of "cluster info": every broker that is registered here."""
        command = RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO)
        return ask(self.address, command, _PROBE_TIMEOUT).body

    def addresses_of(self, broker_name: str) -> dict[int, str]:
        """The addresses registered under a broker name, by broker id."""
        table = loads(self.cluster_body()).get("brokerAddrTable") or {}
        addresses = table.get(broker_name, {}).get("brokerAddrs", {})
        return {int(broker_id): address for broker_id, address in addresses.items()}

    def knows(self, broker: ServerProcess) -> bool:
        """Whether the broker's address is registered."""
        return f'"{broker.address}"'.encode() in self.cluster_body()

    def routes(self, topic: str, brokers: Sequence[ServerProcess]) -> bool:
        """Whether the topic's route leads to each of the brokers."""
        request = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC)
        request.ext_fields["topic"] = topic
        response = ask(self.address, request, _PROBE_TIMEOUT)
        return response.code == ResponseCode.SUCCESS and all(
            f'"{broker.address}"'.encode() in response.body for broker in brokers
        )

    def write_properties(self) -> Path:
        path = self.home / "namesrv.properties"
        settings = {
            "listenPort": str(self._port.number),
            "bindAddress": self.ip,
            "rocketmqHome": str(self.home),
            "kvConfigPath": str(self.home / "kvConfig.json"),
            "configStorePath": str(path),
            **self._settings,
        }
        return write_properties(path, settings)

    def close(self) -> None:
        super().close()
        self._port.release()


#: Small files, so that a store of a test is made fast, and delay levels of a few seconds: a
#: consumer's first retry is level 3, the next one level 4, and so on. Stock's brokers are patient:
#: by default they refuse a send that waited 200 ms for its thread, or 1 s for the page cache.
TEST_SETTINGS = {
    "mappedFileSizeCommitLog": str(16 * 1024 * 1024),
    "mappedFileSizeConsumeQueue": str(20 * 30_000),
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
    "messageDelayLevel": "1s 2s 1s 1s 1s 3s 4s 5s 6s 7s 8s 9s 10s 20s 30s 1m 2m 3m",
    "flushConsumerOffsetInterval": "500",
    "diskMaxUsedSpaceRatio": "95",
    "waitTimeMillsInSendQueue": "60000",
    "osPageCacheBusyTimeOutMills": "60000",
}


class BrokerProcess(ServerProcess):
    """What any broker has: ports, a store, name servers, and readiness once it is registered.

    `settings` are stock's .properties keys over `TEST_SETTINGS`. Brokers that take turns on one
    store may share its `store` directory and `ports`.
    """

    def __init__(
        self,
        name: str,
        home: Path,
        name_servers: list[NameServerProcess],
        *,
        cluster: str = "TestCluster",
        store: Path | None = None,
        ports: BrokerPorts | None = None,
        settings: dict[str, str] | None = None,
    ) -> None:
        super().__init__(name, home)
        self.name_servers = name_servers
        self.cluster = cluster
        self.store = store or home / "store"
        self.settings = dict(settings or {})
        self._ports = ports or BrokerPorts()

    @property
    def address(self) -> str:
        return f"{self.ip}:{self.port}"

    @property
    def port(self) -> int:
        return self._ports.listen.number

    @property
    def ha_port(self) -> int:
        return self._ports.ha.number

    def ready(self) -> bool:
        ask(
            self.address,
            RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO),
            _PROBE_TIMEOUT,
        )
        return all(name_server.knows(self) for name_server in self.name_servers)

    def _name_server_setting(self) -> dict[str, str]:
        # Stock takes an empty list for a wrong address; no key means none.
        addresses = ";".join(name_server.address for name_server in self.name_servers)
        return {"namesrvAddr": addresses} if addresses else {}

    def write_properties(self) -> Path:
        settings = {
            "brokerClusterName": self.cluster,
            "brokerName": self.name,
            "brokerId": "0",
            "brokerIP1": self.ip,
            "brokerIP2": self.ip,
            "bindAddress": self.ip,
            **self._name_server_setting(),
            "listenPort": str(self.port),
            "haListenPort": str(self.ha_port),
            "storePathRootDir": str(self.store),
            "storePathCommitLog": str(self.store / "commitlog"),
            **TEST_SETTINGS,
            **self.settings,
        }
        return write_properties(self.home / "broker.properties", settings)

    def stored_offsets(self, topic: str, group: str) -> dict[str, int]:
        """The group's offsets by queue id as they are on disk.

        Stock truncates the file before it writes it anew: raises what a wait takes for "not yet".
        """
        path = self.store / "config" / "consumerOffset.json"
        table = loads(path.read_bytes())["offsetTable"]
        return {str(queue): offset for queue, offset in table.get(f"{topic}@{group}", {}).items()}

    def close(self) -> None:
        super().close()
        self._ports.release()


def write_properties(path: Path, settings: dict[str, str]) -> Path:
    """Writes a .properties file; its path."""
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path
