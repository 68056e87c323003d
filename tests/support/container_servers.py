"""Containers of brokers, ours and stock's, as processes."""

from __future__ import annotations

from pathlib import Path

from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.cluster import OURS
from tests.support.jars import stock_jars
from tests.support.ports import BrokerPorts
from tests.support.processes import TEST_SETTINGS, ServerProcess, write_properties
from tests.support.remoting import ask
from tests.support.servers import twistd_command, twistd_environment
from tests.support.stock import stock_java, stock_logs

_HEAP_MB = 512
_PROBE_TIMEOUT = 5.0


class ContainerProcess(ServerProcess):
    """A container that starts without brokers; `settings` are keys of its own."""

    def __init__(
        self, home: Path, name_server: str, settings: dict[str, str] | None = None
    ) -> None:
        super().__init__("container", home)
        self._name_server = name_server
        self._settings = settings or {}
        self._ports = BrokerPorts()
        self._brokers: list[BrokerPorts] = []

    @property
    def address(self) -> str:
        return self._ports.listen.address

    def ready(self) -> bool:
        command = RemotingCommand.request(RequestCode.GET_BROKER_CONFIG)
        return not ask(self.address, command, _PROBE_TIMEOUT).code

    def write_properties(self) -> Path:
        settings = {
            "bindAddress": self.ip,
            "brokerContainerIP": self.ip,
            "listenPort": str(self._ports.listen.number),
            "namesrvAddr": self._name_server,
            **self._settings,
        }
        return write_properties(self.home / "broker-container.conf", settings)

    def broker_file(self, name: str, text: str = "") -> str:
        """Writes the file of a broker, with lines of `text` at its end, and returns its path."""
        self._brokers.append(BrokerPorts())
        store = self.home / name
        settings = {
            **TEST_SETTINGS,
            "brokerName": name,
            "brokerIP1": self.ip,
            "listenPort": str(self._brokers[-1].listen.number),
            "storePathRootDir": str(store),
            "storePathCommitLog": str(store / "commitlog"),
        }
        path = write_properties(self.home / f"{name}.conf", settings)
        with path.open("a") as file:
            file.write(text)
        return str(path)

    def broker_addresses(self) -> list[str]:
        """Where the brokers serve, in the order of their files."""
        return [ports.listen.address for ports in self._brokers]

    def close(self) -> None:
        super().close()
        for ports in (self._ports, *self._brokers):
            ports.release()


class OurContainer(ContainerProcess):
    """`twistd -n rmq-container`. Its brokers live together in it: mqadmin waits 5 s for a start,
    which a process of its own may need on a busy machine."""

    def __init__(self, home: Path, name_server: str, brokers: str = "together") -> None:
        super().__init__(home, name_server, {"brokerProcesses": brokers})

    def command(self) -> list[str]:
        return twistd_command("rmq-container", self.write_properties())

    def environment(self) -> dict[str, str]:
        return twistd_environment()


class StockContainer(ContainerProcess):
    """BrokerContainerStartup of `version`."""

    def __init__(self, version: str, home: Path, name_server: str) -> None:
        super().__init__(home, name_server)
        self._version = version

    def command(self) -> list[str]:
        main_class = "org.apache.rocketmq.container.BrokerContainerStartup"
        # Beside what brokers need, of whose classes there is an archive.
        jar = stock_jars(self._version, "controller") / f"rocketmq-container-{self._version}.jar"
        java = stock_java(self._version, self.home, _HEAP_MB, main_class, more=[jar])
        return [*java, "-c", str(self.write_properties())]

    def log_files(self) -> list[Path]:
        return [*super().log_files(), *stock_logs(self.home)]


def make_container(kind: str, home: Path, name_server: str) -> ContainerProcess:
    """A container of the kind, not started."""
    if kind == OURS:
        return OurContainer(home, name_server)
    return StockContainer(kind, home, name_server)
