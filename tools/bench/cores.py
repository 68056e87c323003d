"""Whether brokers in processes of their own do as much each as one alone.

    python -m tools.bench.cores [--most 2] [--seconds 10] [--turns 3]

A container starts 1 to `--most` brokers, each in its process, and for each there is a generator of
ours (`pipeline.py`) in a process of its own. CPU time a message is what compares on a machine with
fewer cores than processes: where it does not rise with the number of brokers, they have nothing
between them that would keep each from a core of its own. Throughput says so only where the cores
are free: two of them for each broker, one of which is the generator's.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import psutil

from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.ports import BrokerPorts, ReservedPort
from tests.support.processes import ServerProcess
from tests.support.remoting import ask
from tests.support.servers import twistd_command, twistd_environment
from tools.bench.pipeline import pipelined_sends

_CONNECTIONS, _WINDOW = 4, 16
_TOPIC = "cores"


class Container(ServerProcess):
    """A container with brokers that are processes of their own, and have no name server."""

    def __init__(self, home: Path, brokers: int) -> None:
        super().__init__("container", home)
        self._port = ReservedPort()
        self._brokers = [BrokerPorts() for _ in range(brokers)]

    @property
    def address(self) -> str:
        return self._port.address

    @property
    def brokers(self) -> list[str]:
        """Where the brokers serve."""
        return [ports.listen.address for ports in self._brokers]

    def command(self) -> list[str]:
        files = []
        for number, ports in enumerate(self._brokers):
            files.append(self.home / f"broker-{number}.conf")
            files[-1].write_text(
                f"brokerName=broker-{number}\nlistenPort={ports.listen.number}\n"
                f"storePathRootDir={self.home / str(number)}\nbrokerFastFailureEnable=false\n"
            )
        path = self.home / "container.conf"
        path.write_text(
            f"bindAddress=127.0.0.1\nlistenPort={self._port.number}\nbrokerProcesses=separate\n"
            f"brokerConfigPaths={':'.join(map(str, files))}\n"
        )
        return twistd_command("rmq-container", path)

    def environment(self) -> dict[str, str]:
        return twistd_environment()

    def ready(self) -> bool:
        request = RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO)
        return not any(ask(address, request, 5).code for address in self.brokers)

    def processes(self) -> list[psutil.Process]:
        """Those of the brokers."""
        return psutil.Process(self.pid).children()

    def close(self) -> None:
        # Brokers of a container that is killed stop by themselves, and need a while for it.
        self.stop()
        super().close()
        self._port.release()
        for ports in self._brokers:
            ports.release()


class Figures(NamedTuple):
    """Of one turn."""

    messages: int
    #: Messages a second, of all brokers together.
    throughput: float
    #: CPU time of a broker for a message, in microseconds.
    cpu_us: float


def measure(container: Container, seconds: float) -> Figures:
    """Sends to all brokers at once."""
    processes = container.processes()
    before = sum(map(_cpu_seconds, processes))
    addresses = container.brokers
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(addresses), mp_context=spawn) as pool:
        loads = [pool.submit(_load, address, seconds) for address in addresses]
        results = [load.result() for load in loads]
    messages = int(sum(result["count"] for result in results))
    busy = sum(map(_cpu_seconds, processes)) - before
    rate = sum(result["count"] / result["seconds"] for result in results)
    return Figures(messages, rate, busy / messages * 1e6)


def _load(address: str, seconds: float) -> dict[str, float]:
    return pipelined_sends(
        address, _TOPIC, connections=_CONNECTIONS, window=_WINDOW, seconds=seconds
    )


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools.bench.cores", description=__doc__)
    parser.add_argument("--most", type=int, default=2, help="brokers at most")
    parser.add_argument("--seconds", type=float, default=10, help="length of a turn")
    parser.add_argument("--turns", type=int, default=3, help="turns of each number of brokers")
    options = parser.parse_args(arguments)
    found: dict[int, list[Figures]] = {count: [] for count in range(1, options.most + 1)}
    with tempfile.TemporaryDirectory(prefix="rmq-cores-") as home:
        containers = {count: Container(Path(home) / str(count), count) for count in found}
        try:
            for container in containers.values():
                container.start()
                measure(container, min(options.seconds, 2))
            # By turns: what else the machine does changes with time.
            for _ in range(options.turns):
                for count, container in containers.items():
                    found[count].append(measure(container, options.seconds))
        finally:
            for container in containers.values():
                container.close()
    print(f"{psutil.cpu_count()} cores, load average {psutil.getloadavg()[0]:.1f}; medians")
    print("| brokers | messages/s | of one | CPU us a message | of one |\n|--:|--:|--:|--:|--:|")
    rate, cpu = _medians(found[1])
    for count, turns in found.items():
        own_rate, own_cpu = _medians(turns)
        print(
            f"| {count} | {own_rate:,.0f} | {own_rate / rate:.2f} |"
            f" {own_cpu:.1f} | {own_cpu / cpu:.2f} |"
        )
    return 0


def _medians(turns: list[Figures]) -> tuple[float, float]:
    return (
        statistics.median(turn.throughput for turn in turns),
        statistics.median(turn.cpu_us for turn in turns),
    )


if __name__ == "__main__":
    raise SystemExit(main())
