"""Links are cut and mended at random between name servers and groups that act for their masters.

    python -m tools.acting_campaign --seconds 120 --seed 7

Two name servers and three groups of master and slave, each server a process on a host of its own. A
link, one or both ways, or all links of a host fall silent and come back, in the seed's order, while
each of the six brokers is sent messages, plain and delayed, and a push consumer of stock's reads.
Then all links are mended. Promises: no slave ever accepts a message, so that never two brokers of a
group do; every message that was acknowledged is consumed; the masters have their places again.

Linux with `unshare`, `nsenter` and `ip`, root or not.
"""

from __future__ import annotations

import argparse
import itertools
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from rocketmq_tw.message.properties import join_properties
from rocketmq_tw.wire.codes import ResponseCode
from tests.support.cluster import OURS, make_broker, make_name_server
from tests.support.hosts import Host, HostNetwork, can_enter_own_network, enter_own_network
from tests.support.jars import driver_class_path
from tests.support.java_client import JavaClients
from tests.support.load import send_request, send_until_accepted
from tests.support.processes import BrokerProcess, NameServerProcess, ServerFailed, ServerProcess
from tests.support.remoting import Connection
from tests.support.wait import wait_until

_MODULE = "tools.acting_campaign"
STOCK, TOPIC, GROUPS, QUEUES = "5.3.3", "Cut", ("a", "b", "c"), 4
NAMES = {"supportActingMaster": "true", "scanNotActiveBrokerInterval": "1000"}
KEYS = {
    "enableSlaveActingMaster": "true",
    "enableRemoteEscape": "true",
    "brokerNotActiveTimeoutMillis": "3000",
    "totalReplicas": "2",
}
#: Delay levels that messages ask for, 0 for none; of tests' brokers, so 1 s, 2 s and 3 s.
LEVELS = (0, 0, 0, 1, 2, 6)
#: Seconds between two sends to a broker, and for which one of them may take.
PAUSE, PATIENCE = 0.05, 3.0
#: Seconds between two changes of links, and in which all is well again at the end.
CHANGES, HEALING = (1.0, 4.0, 8.0), 300.0


class Sends:
    """Threads that send to each broker by itself; `taken` counts what each of them acknowledged."""

    def __init__(self, brokers: Sequence[BrokerProcess]) -> None:
        self.taken: dict[BrokerProcess, set[str]] = {broker: set() for broker in brokers}
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(each,)) for each in brokers]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Returns once all threads are done."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _run(self, broker: BrokerProcess) -> None:
        name = f"{broker.name}{broker.settings['brokerId']}"
        numbers = itertools.count()
        while not self._stopped.is_set():
            try:
                with Connection(broker.address, PATIENCE) as connection:
                    while not self._stopped.wait(PAUSE):
                        self._send(broker, connection, f"{name}-{next(numbers)}")
            except OSError:
                self._stopped.wait(PAUSE)

    def _send(self, broker: BrokerProcess, connection: Connection, body: str) -> None:
        number = int(body.partition("-")[2])
        level = LEVELS[number % len(LEVELS)]
        properties = {"UNIQ_KEY": body} | ({"DELAY": str(level)} if level else {})
        request = send_request(TOPIC, number % QUEUES, body.encode())
        request.ext_fields["i"] = join_properties(properties).decode()
        if connection.request(request).code == ResponseCode.SUCCESS:
            self.taken[broker].add(body)


class Link(NamedTuple):
    """From one host to another; or, with an empty address, all of a host's."""

    host: Host
    address: str

    def cut(self) -> None:
        self.host.cut_to(self.address) if self.address else self.host.cut()

    def mend(self) -> None:
        self.host.mend_to(self.address) if self.address else self.host.mend()


class Trouble:
    """Cuts and mends links in the order of a seed."""

    def __init__(self, hosts: Sequence[Host], seed: int) -> None:
        self._hosts = hosts
        self._chance = random.Random(seed)
        self._cut: list[Link] = []
        self.cuts = 0

    def go_on(self, seconds: float) -> None:
        """Makes trouble for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._change()
            time.sleep(min(self._chance.choice(CHANGES), max(0.0, end - time.monotonic())))

    def mend(self) -> None:
        """Mends all links."""
        while self._cut:
            self._cut.pop().mend()

    def _change(self) -> None:
        chance = self._chance
        what = chance.choice(
            ["link", "one way", "host", "host", "host", "mend", "mend", "mend all"]
        )
        if what == "mend all":
            self.mend()
        elif what == "mend" and self._cut:
            self._cut.pop(chance.randrange(len(self._cut))).mend()
        elif what == "host":
            self._begin(Link(chance.choice(self._hosts), ""))
        elif what != "mend":
            one, other = chance.sample(self._hosts, 2)
            self._begin(Link(one, other.address))
            if what == "link":
                self._begin(Link(other, one.address))

    def _begin(self, link: Link) -> None:
        if link not in self._cut:
            link.cut()
            self._cut.append(link)
            self.cuts += 1


class Groups:
    """The servers of one run, started, each on a host of its own."""

    def __init__(self, home: Path, network: HostNetwork, stack: ExitStack) -> None:
        self.hosts: list[Host] = []
        self.names: list[NameServerProcess] = []
        for number in range(2):
            server = make_name_server(OURS, home / f"names{number}", NAMES)
            self._start(server, network, stack)
            self.names.append(server)
        self.masters = [self._broker(name, 0, home, network, stack) for name in GROUPS]
        self.slaves = [self._broker(name, 1, home, network, stack) for name in GROUPS]
        for master in self.masters:
            send_until_accepted(master.address, TOPIC, b"first")
        for server in self.names:
            wait_until(lambda server=server: server.routes(TOPIC, self.masters), "the route")  # type: ignore[misc]

    def _broker(
        self, name: str, number: int, home: Path, network: HostNetwork, stack: ExitStack
    ) -> BrokerProcess:
        role = {"brokerId": str(number), "brokerRole": "SLAVE" if number else "ASYNC_MASTER"}
        place = home / f"{name}{number}"
        broker = make_broker(OURS, name, place, self.names, settings=KEYS | role)
        self._start(broker, network, stack)
        return broker

    def _start(self, server: ServerProcess, network: HostNetwork, stack: ExitStack) -> None:
        host = network.add_host()
        server.place(host)
        stack.callback(server.close)
        server.start()
        self.hosts.append(host)

    def acts(self) -> int:
        """How often a slave began to act."""
        return sum(slave.log_text().count("it acts for the master") for slave in self.slaves)

    def has_all_masters(self) -> bool:
        """Whether each name server has all masters in their places."""
        return all(
            server.addresses_of(master.name).get(0) == master.address
            for server in self.names
            for master in self.masters
        )


def run(options: argparse.Namespace, seed: int, home: Path, java: JavaClients) -> int:
    """Returns the exit status: 0 where all promises were kept."""
    with ExitStack() as stack:
        network = stack.enter_context(HostNetwork())
        groups = Groups(home, network, stack)
        addresses = ";".join(server.address for server in groups.names)
        consumer = stack.enter_context(java.consumer(addresses, "G", {TOPIC: "*"}))
        consumer.received(len(GROUPS))
        sends = Sends(groups.masters + groups.slaves)
        trouble = Trouble(groups.hosts, seed)
        try:
            trouble.go_on(options.seconds)
        finally:
            trouble.mend()
            sends.stop()
        began = time.monotonic()
        wrong = [
            f"slave {slave.name} took {sorted(sends.taken[slave])[:9]}"
            for slave in groups.slaves
            if sends.taken[slave]
        ]
        wait_until(groups.has_all_masters, "the masters in the routes", limit=HEALING)
        sent = set().union(*sends.taken.values())
        try:
            consumer.wait_bodies(sent, limit=HEALING)
        except TimeoutError:
            missing = sorted(sent - set(consumer.bodies()))
            wrong.append(f"{len(missing)} messages were not consumed: {missing[:9]}")
        times = Counter(body for body in consumer.bodies() if body in sent)
        delayed = [body for body in times if LEVELS[int(body.partition("-")[2]) % len(LEVELS)]]
        again = sum(times[body] > 1 for body in times)
        print(
            f"seed {seed}: {trouble.cuts} cuts in {options.seconds:g} s, slaves acted"
            f" {groups.acts()} times; {len(sent)} messages acknowledged, {len(delayed)} of them"
            f" delayed; {again} consumed more than once,"
            f" {sum(times[body] > 1 for body in delayed)} of them delayed;"
            f" all came {time.monotonic() - began:.0f} s after all was mended"
        )
        for each in wrong:
            print(f"BROKEN: {each}")
        return 1 if wrong else 0


def main() -> int:
    """Reads the arguments."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {_MODULE}",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=120, help="of trouble")
    parser.add_argument("--seed", type=int, help="the order of cuts")
    options = parser.parse_args()
    if not can_enter_own_network():
        parser.error("needs unshare, nsenter and ip, and a kernel that lets you make namespaces")
    # What is downloaded must be there before nothing but the servers is on the network.
    driver_class_path(STOCK)
    enter_own_network(_MODULE, sys.argv[1:])
    seed = options.seed if options.seed is not None else random.randrange(1 << 30)
    home = Path(tempfile.mkdtemp(prefix="rmq-acting-"))
    java = JavaClients(STOCK, home / "java")
    try:
        status = run(options, seed, home, java)
    except (AssertionError, TimeoutError, ServerFailed) as error:
        print(f"BROKEN: {error}")
        status = 1
    finally:
        java.close()
    if status:
        print(f"its files are in {home}; again with: python -m {_MODULE} --seed {seed}")
    else:
        shutil.rmtree(home, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
