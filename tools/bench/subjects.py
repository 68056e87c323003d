"""What is measured: stock's name server and broker, ours, and the ceiling of client and machine."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from rocketmq_tw.wire.codes import ResponseCode
from tests.support.jars import SHARED_ARCHIVE, stock_jars
from tests.support.load import send_request
from tests.support.ports import ReservedPort
from tests.support.processes import BrokerProcess, NameServerProcess, ServerProcess
from tests.support.remoting import Connection
from tests.support.running import Running
from tests.support.servers import OurBroker, OurNameServer
from tests.support.stock import StockBroker, StockNameServer
from tools.bench.statistics import CEILING, OURS, STOCK

STOCK_VERSION = "5.3.3"
__all__ = ("CEILING", "OURS", "STOCK", "STOCK_VERSION", "Subject", "cpu_seconds")

START_LIMIT = 120.0
#: Of brokers.
NAME = "bench"
#: Seconds between two attempts at a broker that does not take messages yet.
_FIRST_SEND_INTERVAL = 0.01

#: Stock's defaults, in place of the small files of the tests.
SETTINGS = {
    "mappedFileSizeCommitLog": str(1 << 30),
    "mappedFileSizeConsumeQueue": str(300_000 * 20),
    "maxHashSlotNum": "5000000",
    "maxIndexNum": "20000000",
    "flushConsumerOffsetInterval": "5000",
    "messageDelayLevel": "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
    "defaultTopicQueueNums": "8",
}

#: As stock's start script has it, with a heap that leaves the client room on a small machine.
_JVM = ("-server", "-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m", "-XX:MaxDirectMemorySize=2g")
_TEST_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:MaxDirectMemorySize=512m")


def as_in_production(command: list[str], heap_mb: int) -> list[str]:
    """The command of a test's JVM with the collector and compilers that a user runs."""
    kept = [
        word
        for word in command
        if word not in _TEST_JVM and not word.startswith(("-Xms", "-Xmx", SHARED_ARCHIVE))
    ]
    return [kept[0], f"-Xms{heap_mb}m", f"-Xmx{heap_mb}m", *_JVM, *kept[1:]]


class WarmStockNameServer(StockNameServer):
    """Stock's name server with a production JVM."""

    def command(self) -> list[str]:
        return as_in_production(super().command(), 256)


class WarmStockBroker(StockBroker):
    """Stock's broker with a production JVM."""

    def command(self) -> list[str]:
        return as_in_production(super().command(), 2048)


def make_name_server(kind: str, home: Path) -> NameServerProcess:
    """Stock's or ours."""
    return WarmStockNameServer(STOCK_VERSION, home) if kind == STOCK else OurNameServer(home)


def make_broker(
    kind: str, home: Path, name_server: NameServerProcess, settings: dict[str, str]
) -> BrokerProcess:
    """Stock's or ours."""
    if kind == STOCK:
        return WarmStockBroker(STOCK_VERSION, NAME, home, [name_server], settings=settings)
    return OurBroker(NAME, home, [name_server], settings=settings)


class Responder(NameServerProcess):
    """A server that parses, discards and answers (`responder.py`), name server and broker at once:
    no broker can be faster with these clients on this machine."""

    def __init__(self, home: Path) -> None:
        super().__init__("ceiling", home)
        self._listen = ReservedPort()

    @property
    def address(self) -> str:
        return self._listen.address

    def command(self) -> list[str]:
        return [sys.executable, str(Path(__file__).with_name("responder.py")), self.address]

    def ready(self) -> bool:
        with Connection(self.address) as connection:
            return connection.request(send_request("any", 0, b"x")).code == ResponseCode.SUCCESS

    def close(self) -> None:
        super().close()
        self._listen.release()


class Subject(Running):
    """A name server and a broker under `home`; `start_seconds` is filled by `start`: from the
    launch of the broker until a first message was stored."""

    def __init__(self, kind: str, home: Path, settings: dict[str, str] | None = None) -> None:
        self.kind = kind
        self.start_seconds = 0.0
        self._settings = SETTINGS | (settings or {})
        self.name_server: NameServerProcess
        self.broker: ServerProcess
        if kind == CEILING:
            self.name_server = self.broker = Responder(home / "ceiling")
            return
        name_server, broker = home / "namesrv", home / "broker"
        if kind == STOCK:
            stock_jars(STOCK_VERSION)
        self.name_server = make_name_server(kind, name_server)
        self.broker = make_broker(kind, broker, self.name_server, self._settings)

    @property
    def servers(self) -> Sequence[ServerProcess]:
        """The processes whose CPU, memory and start are measured."""
        return [self.broker]

    def start(self) -> None:
        if self.name_server is not self.broker:
            self.name_server.start(START_LIMIT)
        self.start_broker()

    def start_broker(self) -> None:
        started = time.perf_counter()
        self.broker.launch()
        until(self._takes_a_message, f"{self.kind} to take a message", START_LIMIT)
        self.start_seconds = time.perf_counter() - started
        self.broker.wait_ready(START_LIMIT)

    def _takes_a_message(self) -> bool:
        if not self.broker.running:
            self.broker.wait_ready()
        try:
            with Connection(self.broker.address, 5) as connection:
                request = send_request("bench-first", 0, b"x")
                return connection.request(request).code == ResponseCode.SUCCESS
        except OSError:
            return False

    def close(self) -> None:
        self.broker.close()
        if self.name_server is not self.broker:
            self.name_server.close()


def cpu_seconds(servers: Sequence[ServerProcess]) -> float:
    """Returns the CPU time that processes have taken, user and system."""
    times = [psutil.Process(server.pid).cpu_times() for server in servers]
    return sum(each.user + each.system for each in times)


def until(condition: Callable[[], bool], what: str, limit: float) -> None:
    """Asks every hundredth of a second; raises `TimeoutError`."""
    deadline = time.perf_counter() + limit
    while not condition():
        if time.perf_counter() > deadline:
            raise TimeoutError(f"waited {limit:g} s for {what}")
        time.sleep(_FIRST_SEND_INTERVAL)
