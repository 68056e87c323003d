"""Starts every set of etc/ with the line that docs/replication.md gives, ours and both stocks'.

    python -m tools.deployments [--set 2m-2s-sync] [--kind 4.9.7]

A file is used as it is, ports included, but for the addresses: all of it listens on 127.0.0.1. A
set works where stock's producer is answered with SEND_OK by each master, and each slave then has
its master's whole log, byte for byte. One line for each set and kind.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import javaproperties

from tests.support.cluster import OURS, make_name_server
from tests.support.jars import PROJECT, STOCK_VERSIONS
from tests.support.java_client import JavaClients
from tests.support.ports import LOOPBACK
from tests.support.processes import BrokerProcess, NameServerProcess
from tests.support.replicas import log_digest, log_end
from tests.support.servers import OurBroker
from tests.support.stock import StockBroker
from tests.support.wait import wait_until

SETS = ("single", "2m-noslave", "2m-2s-async", "2m-2s-sync")
MESSAGES = 16
TOPIC = "deployment"
LIMIT = 120.0


class SetBroker(BrokerProcess):
    """A broker that runs on a file of a set instead of the tests' own settings."""

    def write_properties(self) -> Path:
        path = self.home / "broker.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))
        return path

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.settings['listenPort']}"

    @property
    def arguments(self) -> list[str]:
        return ["-n", self.name_servers[0].address]


class OurSetBroker(SetBroker, OurBroker):
    def command(self) -> list[str]:
        return [*OurBroker.command(self), *self.arguments]


class StockSetBroker(SetBroker, StockBroker):
    def command(self) -> list[str]:
        return [*StockBroker.command(self), *self.arguments]


def make_set_broker(
    kind: str, path: Path, home: Path, name_server: NameServerProcess
) -> BrokerProcess:
    settings: dict[str, str] = javaproperties.loads(path.read_text())
    store = home / settings["storePathRootDir"]
    settings |= {"bindAddress": LOOPBACK, "brokerIP1": LOOPBACK, "brokerIP2": LOOPBACK}
    name = settings["brokerName"]
    if kind == OURS:
        return OurSetBroker(name, home, [name_server], settings=settings, store=store)
    return StockSetBroker(kind, name, home, [name_server], settings=settings, store=store)


def run_set(deployment: str, kind: str) -> str:
    """What came out, for people; raises where the set does not work."""
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        home = Path(directory)
        name_server = stack.enter_context(make_name_server(OURS, home / "namesrv"))
        assert isinstance(name_server, NameServerProcess)
        java = JavaClients(STOCK_VERSIONS[-1], home / "java")
        stack.callback(java.close)
        brokers = []
        began = time.monotonic()
        for path in sorted((PROJECT / "etc" / deployment).glob("*.properties")):
            broker = make_set_broker(kind, path, home / path.stem, name_server)
            stack.callback(broker.close)
            brokers.append(broker)
            broker.launch()
        for broker in brokers:
            broker.wait_ready(LIMIT)
        started = time.monotonic() - began
        masters = {b.name: b for b in brokers if b.settings["brokerId"] == "0"}
        slaves = [b for b in brokers if b.settings["brokerId"] != "0"]
        for master in masters.values():
            java.create_topic(name_server.address, master.address, TOPIC, 2)
        _wait(lambda: name_server.routes(TOPIC, list(masters.values())), "the route")
        with java.producer(name_server.address) as producer:

            def all_stored() -> bool:
                bodies = ({"topic": TOPIC, "body": f"m{n}"} for n in range(MESSAGES))
                sent = producer.send(*bodies, check=False)
                names = {result.get("broker") for result in sent}
                return names == masters.keys() and all(r["status"] == "SEND_OK" for r in sent)

            # Until its slave is linked, a synchronous master says that there is none.
            _wait(all_stored, "SEND_OK from every master")
        for slave in slaves:
            end = log_end(masters[slave.name])
            _wait(partial(_ends_at, slave, end), f"the copy of {slave.name}")
            if log_digest(slave, 0, end) != log_digest(masters[slave.name], 0, end):
                raise AssertionError(f"the logs of {slave.name} differ")
        return f"{len(brokers)} brokers started in {started:.1f} s, {len(slaves)} logs equal"


def _ends_at(broker: BrokerProcess, end: int) -> bool:
    return log_end(broker) == end


def _wait(condition: Callable[[], bool], what: str) -> None:
    wait_until(condition, what, limit=LIMIT, interval=0.2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--set", action="append", choices=SETS, help="all without it")
    kinds = (OURS, *STOCK_VERSIONS)
    parser.add_argument("--kind", action="append", choices=kinds, help="all without it")
    options = parser.parse_args()
    for deployment in options.set or SETS:
        for kind in options.kind or kinds:
            print(f"{deployment}, {kind}: {run_set(deployment, kind)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
