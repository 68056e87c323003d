"""The files of etc/controller/, started by ours and by stock 5.3.3, one machine's worth of them."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.jars import PROJECT
from tests.support.ports import BrokerPorts, ReservedPort
from tests.support.processes import ServerProcess
from tests.support.rmqadmin import answer as rmqadmin_answer
from tests.support.servers import twistd_command, twistd_environment
from tests.support.stock import stock_java, stock_logs
from tests.support.wait import wait_until

STOCK = "5.3.3"
SAMPLES = PROJECT / "etc" / "controller"
#: The word of a file's name that says what reads it: our command, stock's class and its heap (MiB).
STARTED_BY = {
    "namesrv": ("rmq-namesrv", "namesrv.NamesrvStartup", 128),
    "controller": ("rmq-controller", "controller.ControllerStartup", 128),
    "broker": ("rmq-broker", "broker.BrokerStartup", 512),
}
PORTS = (9876, 9877, 9878, 9879)
BROKER_PORTS = (30911, 30921, 30931)
BROKERS = ("broker-n0.conf", "broker-n1.conf", "broker-n2.conf")
#: What takes the place of controller-n0.conf, and which of the files stock starts.
CASES = {
    "ours": ("controller-n0.conf", set[str]()),
    "a name server of ours": ("namesrv-n0.properties", {"controller-n1.conf", "broker-n1.conf"}),
    "a name server of stock's": ("namesrv-n0.properties", {"namesrv-n0.properties", BROKERS[0]}),
}


class SampleProcess(ServerProcess):
    """What a file starts, in the directory where all of them are started; only the ports are those
    of the test."""

    def __init__(self, file: Path, site: Path, ports: dict[str, str], *, stock: bool) -> None:
        super().__init__(file.name, site)
        self._kind = file.name.partition("-")[0].partition(".")[0]
        self._stock = site / f"stock-{file.name}" if stock else None
        self.output = site / f"{file.name}.log"
        self._file = site / file.name
        text = file.read_text()
        assert "${" not in text, "stock takes that for a name"
        self._file.write_text(re.sub(r"\b\d{4,5}\b", lambda m: ports.get(m[0], m[0]), text))

    @property
    def address(self) -> str:
        raise NotImplementedError("it is asked through rmqadmin")

    def ready(self) -> bool:
        return self.running

    def command(self) -> list[str]:
        ours, stock, heap = STARTED_BY[self._kind]
        if self._stock is None:
            return twistd_command(ours, self._file)
        self._stock.mkdir(exist_ok=True)
        java = stock_java(STOCK, self._stock, heap, f"org.apache.rocketmq.{stock}")
        return [*java, "-c", str(self._file)]

    def environment(self) -> dict[str, str]:
        return twistd_environment() | {"HOME": str(self.home)}

    def log_files(self) -> list[Path]:
        return [self.output, *(() if self._stock is None else stock_logs(self._stock))]


@pytest.mark.parametrize("case", CASES)
def test_the_samples_are_a_group_that_fails_over(case: str, tmp_path: Path) -> None:
    first, by_stock = CASES[case]
    files = [SAMPLES / name for name in (first, "controller-n1.conf", "controller-n2.conf")]
    if first.startswith("controller"):
        files.insert(0, PROJECT / "etc" / "namesrv.properties")
    files += [SAMPLES / name for name in BROKERS]
    with ExitStack() as stack:
        ports: dict[str, str] = {}
        for number in PORTS:
            port = ReservedPort()
            stack.callback(port.release)
            ports[str(number)] = str(port.number)
        for number in BROKER_PORTS:
            three = BrokerPorts()
            stack.callback(three.release)
            ports[str(number)] = str(three.listen.number)
        processes = {}
        for file in files:
            stock = file.name in by_stock
            process = SampleProcess(file, tmp_path, ports, stock=stock)
            stack.callback(process.close)
            processes[file.name] = process
            process.launch()
        address = {
            f"127.0.0.1:{ports[str(port)]}": processes[name]
            for name, port in zip(BROKERS, BROKER_PORTS, strict=True)
        }
        controllers = ";".join(f"127.0.0.1:{ports[str(port)]}" for port in PORTS[1:])
        namesrv = f"127.0.0.1:{ports[str(PORTS[0])]}"
        master = wait_in_sync(controllers, 3, processes)
        send(namesrv, "first")
        address[master].kill()
        wait_until(
            lambda: leads(controllers, 2) not in ("", master), "another master", interval=0.2
        )
        send(namesrv, "second")
        wait_until(lambda: bodies(namesrv) == {"first", "second"}, "both messages", interval=0.5)
        # Nothing of it is outside of where it was started.
        assert (tmp_path / "data" / "controller" / "broker-n0" / "commitlog").is_dir()


def leads(controllers: str, in_sync: int) -> str:
    """The master's address, where so many are in sync and it is one of them; else empty."""
    shown = rmqadmin_answer("", f"getSyncStateSet -a {controllers} -b broker-a")
    (group,) = shown["brokerSets"]
    members = [one for one in group["replicas"] if one["inSync"]]
    return str(group["masterAddress"] or "") if len(members) == in_sync else ""


def wait_in_sync(controllers: str, members: int, processes: dict[str, SampleProcess]) -> str:
    """Waits until all are in sync; the master's address."""
    try:
        return wait_until(lambda: leads(controllers, members), "all to be in sync", interval=0.5)
    except TimeoutError as error:
        logs = "\n".join(process.log_tails() for process in processes.values())
        raise TimeoutError(f"{error}\n{logs}") from error


def send(namesrv: str, body: str) -> None:
    """Waits until the message is acknowledged."""

    def is_acknowledged() -> bool:
        sent = rmqadmin_answer(namesrv, f"sendMessage -t Orders -p {body}")
        return bool(sent["sendStatus"] == "SEND_OK")

    wait_until(is_acknowledged, f"{body} to be acknowledged", interval=0.5)


def bodies(namesrv: str) -> set[str]:
    shown = rmqadmin_answer(namesrv, "consumeMessage -t Orders")
    return {message["body"] for message in shown["messages"]}
