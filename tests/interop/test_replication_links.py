"""Links that are cut, delayed and throttled, and what haStatus says of them."""

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import OURS, Cluster
from tests.support.java_client import JavaClients
from tests.support.link_proxy import LinkProxy
from tests.support.load import Load, read_topic, send_until_accepted
from tests.support.ports import BrokerPorts
from tests.support.processes import BrokerProcess, NameServerProcess
from tests.support.replicas import Replicas, log_digest, wait_topic
from tests.support.rmqadmin import answer
from tests.support.storecheck import check_store
from tests.support.wait import wait_until

STOCK = "5.3.3"
CUTS = 8
#: Stock's slave waits 5 s before it connects again.
CUTS_OF_STOCK = 1


@pytest.fixture
def name_server(cluster: Cluster) -> NameServerProcess:
    return cluster.name_servers[0]


@contextmanager
def pair_over_proxy(
    name: str,
    home: Path,
    name_server: NameServerProcess,
    *,
    master: str,
    slave: str,
    **options: Any,
) -> Iterator[tuple[LinkProxy, Replicas]]:
    """A master and a slave, and what stands in the link between them; nothing is started."""
    ports = BrokerPorts()
    with (
        LinkProxy(ports.ha.address) as proxy,
        Replicas(
            name,
            home,
            [name_server],
            master=master,
            slaves=[slave],
            master_ha=proxy.address,
            ports=ports,
            **options,
        ) as pair,
    ):
        yield proxy, pair


def shows_slaves(master: BrokerProcess, end: int) -> int:
    """How many slaves rmqadmin haStatus shows that have the log up to `end`."""
    (shown,) = answer(master.name_servers[0].address, f"haStatus -b {master.address}")["brokers"]
    assert shown["role"] == "master"
    return sum(
        slave["inSync"] and slave["acknowledged"] == end and slave["behind"] == 0
        for slave in shown["slaves"]
    )


def served_by(broker: BrokerProcess, topic: str) -> dict[tuple[int, int], bytes]:
    """The bodies that the broker serves, by queue and offset."""
    return {(one.queue, one.offset): one.body for one in read_topic(broker.address, topic)}


def _cut_behind(proxy: LinkProxy, passed: int) -> bool:
    """Cuts the links once so many bytes went over them."""
    return proxy.passed >= passed and proxy.cut()


@pytest.mark.parametrize(("master", "slave"), [(OURS, OURS), (STOCK, OURS), (OURS, "4.9.7")])
def test_a_slave_catches_up_over_bad_links(
    master: str,
    slave: str,
    servers: str,
    name_server: NameServerProcess,
    tmp_path: Path,
    names,
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    topic = names.topic
    with pair_over_proxy(
        names.new("pair"),
        tmp_path,
        name_server,
        master=servers if master == OURS else master,
        slave=servers if slave == OURS else slave,
    ) as (proxy, pair):
        pair.master.start()
        send_until_accepted(pair.master.address, topic, b"first")
        pair.slave.start()
        # An empty slave begins with the master's last file; the load fills more than one.
        pair.wait_equal(pair.slave)
        load = Load(pair.master.address, topic, "m", threads=2)
        cuts = CUTS if slave == OURS else CUTS_OF_STOCK
        for _ in range(cuts):
            proxy.delay = dice.choice([0.0, 0.02, 0.05])
            proxy.bytes_per_second = dice.choice([0, 1 << 20, 8 << 20])
            passed = proxy.passed + dice.randrange(1000, 300_000)
            # The last bytes of the former connection may still be counted, with nothing to cut.
            wait_until(partial(_cut_behind, proxy, passed), "a link to cut")
        acked = load.stop()
        proxy.delay, proxy.bytes_per_second = 0.0, 0
        end = pair.wait_equal(pair.slave)
        assert log_digest(pair.slave, 0, end) == log_digest(pair.master, 0, end)
        wait_until(lambda: shows_slaves(pair.master, end) == 1, "rmqadmin to show the slave")
        if slave == OURS:
            (shown,) = answer(name_server.address, f"haStatus -b {pair.slave.address}")["brokers"]
            assert (shown["role"], shown["logEnd"], shown["master"]) == (
                "slave",
                end,
                proxy.address,
            )
        wait_topic(pair.slave, topic)
        wanted = {(a.queue, a.offset): a.body for a in acked}
        # A slave puts what it has into its queues a moment later.
        wait_until(
            lambda: wanted.items() <= served_by(pair.slave, topic).items(), "all to be served"
        )
        pair.slave.stop()
        stored = check_store(pair.slave.store)
        found = {(r.queue, r.offset): r.body for queue in range(4) for r in stored[topic, queue]}
        assert wanted.items() <= found.items()


def test_stocks_mqadmin_shows_how_replication_is_doing(
    servers: str,
    jvms: dict[str, JavaClients],
    name_server: NameServerProcess,
    tmp_path: Path,
    names,
) -> None:
    name, topic = names.new("pair"), names.topic
    with Replicas(name, tmp_path, [name_server], master=servers, slaves=[servers] * 2) as pair:
        for broker in (pair.master, *pair.slaves):
            broker.start()
        send_until_accepted(pair.master.address, topic, b"first")
        end = min(pair.wait_equal(slave) for slave in pair.slaves)
        wait_until(lambda: shows_slaves(pair.master, end) == 2, "both reports")
        java = jvms[STOCK]
        shown = java.mqadmin("haStatus", "-n", name_server.address, "-b", pair.master.address)
        assert re.search(rf"#MasterCommitLogMaxOffset\s+{end}\n#SlaveNum\s+2\n", shown), shown
        assert len(re.findall(rf"127\.0\.0\.1:\d+\s+{end}\s+0\s+[\d.]+\s+OK", shown)) == 2, shown
        shown = java.mqadmin("haStatus", "-n", name_server.address, "-b", pair.slave.address)
        assert re.search(rf"#CommitLogMaxOffset\s+{end}\n", shown), shown
        assert f"#MasterAddr\t127.0.0.1:{pair.master.ha_port}" in shown


@pytest.mark.parametrize("master", [OURS, "4.9.7"])
def test_a_sync_master_says_what_became_of_a_send(
    master: str,
    servers: str,
    jvms: dict[str, JavaClients],
    name_server: NameServerProcess,
    tmp_path: Path,
    names,
) -> None:
    """To stock's producer, and the same as a master of stock says."""
    topic, java = names.topic, jvms[STOCK]
    with (
        pair_over_proxy(
            names.new("pair"),
            tmp_path,
            name_server,
            master=servers if master == OURS else master,
            slave=servers,
            role="SYNC_MASTER",
            settings={"slaveTimeout": "1000", "haSlaveFallbehindMax": "200000"},
        ) as (proxy, pair),
        java.producer(name_server.address, timeoutMs=30_000) as producer,
    ):

        def status(size: int = 10) -> str:
            (sent,) = producer.send({"topic": topic, "size": size}, check=False)
            return str(sent["status"])

        pair.master.start()
        java.create_topic(name_server.address, pair.master.address, topic, 1)
        wait_until(lambda: name_server.routes(topic, [pair.master]), "the route")
        assert status() == "SLAVE_NOT_AVAILABLE", "there is none"
        pair.slave.start()
        wait_until(lambda: status() == "SEND_OK", "the link")
        proxy.delay = 2.5
        assert status() == "FLUSH_SLAVE_TIMEOUT"
        assert {status(100_000) for _ in range(3)} <= {"FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"}
        assert status() == "SLAVE_NOT_AVAILABLE", "it is too far behind"
        proxy.delay = 0.0
        wait_until(lambda: status() == "SEND_OK", "the slave to catch up")
        end = pair.wait_equal(pair.slave)
        assert log_digest(pair.slave, 0, end) == log_digest(pair.master, 0, end)
