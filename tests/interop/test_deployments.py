"""The sets of `etc/`: read by both, complete, and working as they say."""

from pathlib import Path

import javaproperties
import pytest

from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.load import load
from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.config.properties import read_properties
from rocketmq_tw.config.schema import stock_keys
from rocketmq_tw.config.store import MessageStoreConfig
from tests.support.cluster import OURS, make_broker
from tests.support.jars import PROJECT
from tests.support.java_client import JavaClients
from tests.support.processes import BrokerProcess, NameServerProcess
from tests.support.replicas import wait_equal
from tests.support.wait import wait_until

STOCK = "5.3.3"
SETS = {
    "single": {("broker-a", 0)},
    "2m-noslave": {("broker-a", 0), ("broker-b", 0)},
    "2m-2s-async": {("broker-a", 0), ("broker-a", 1), ("broker-b", 0), ("broker-b", 1)},
    "2m-2s-sync": {("broker-a", 0), ("broker-a", 1), ("broker-b", 0), ("broker-b", 1)},
}
#: What a test must choose for itself.
OF_THE_MACHINE = {
    "listenPort",
    "bindAddress",
    "storePathRootDir",
    "storePathCommitLog",
    "brokerClusterName",
}


def settings_of(path: Path) -> dict[str, str]:
    settings: dict[str, str] = javaproperties.loads(path.read_text())
    return settings


def files_of(deployment: str) -> list[Path]:
    return sorted((PROJECT / "etc" / deployment).glob("*.properties"))


@pytest.mark.parametrize("deployment", SETS)
def test_every_key_is_one_that_works_here_and_in_stock(deployment: str) -> None:
    known = set().union(*stock_keys().values())
    ports, stores, brokers = [], [], set()
    for path in files_of(deployment):
        types = (BrokerConfig, MessageStoreConfig, NettyServerConfig)
        loaded = load(types, read_properties(path.read_text(), str(path)), "/home/nobody")
        assert not loaded.notices
        assert settings_of(path).keys() <= known
        ports.append(loaded[NettyServerConfig].listen_port)
        stores.append(loaded[MessageStoreConfig].store_path_root_dir)
        broker = loaded[BrokerConfig]
        brokers.add((broker.broker_name, broker.broker_id))
    assert brokers == SETS[deployment]
    assert len(set(stores)) == len(stores)
    taken = {port + distance for port in ports for distance in (-2, 0, 1)}
    assert len(taken) == 3 * len(ports), "VIP channels and HA ports too"


@pytest.mark.parametrize(
    ("deployment", "kind"),
    [*((deployment, OURS) for deployment in SETS), ("2m-2s-sync", STOCK)],
)
def test_a_set_works(
    deployment: str,
    kind: str,
    servers: str,
    jvms: dict[str, JavaClients],
    cluster,
    tmp_path: Path,
    names,
) -> None:
    name_server: NameServerProcess = cluster.name_servers[0]
    java, topic = jvms[STOCK], names.topic
    own = names.new("set")
    brokers: dict[tuple[str, int], BrokerProcess] = {}
    for path in files_of(deployment):
        settings = {k: v for k, v in settings_of(path).items() if k not in OF_THE_MACHINE}
        # One name server serves all tests, so broker names must differ from theirs.
        name = f"{own}-{settings.pop('brokerName')}"
        broker = make_broker(
            servers if kind == OURS else kind,
            name,
            tmp_path / path.stem,
            [name_server],
            cluster=own,
            settings=settings,
        )
        brokers[name, int(settings["brokerId"])] = broker
    try:
        for broker in brokers.values():
            broker.launch()
        for broker in brokers.values():
            broker.wait_ready()
        masters = {name: broker for (name, number), broker in brokers.items() if number == 0}
        for master in masters.values():
            java.create_topic(name_server.address, master.address, topic, 2)
        wait_until(lambda: name_server.routes(topic, list(masters.values())), "the route")
        with java.producer(name_server.address) as producer:

            def all_stored() -> bool:
                sent = producer.send(
                    *({"topic": topic, "body": f"m{n}"} for n in range(8)), check=False
                )
                return {result["status"] for result in sent} == {"SEND_OK"}

            # Until its slave is linked, a synchronous master says that there is none.
            wait_until(all_stored, "all sends to be answered with success", interval=0.2)
        for (name, number), broker in brokers.items():
            if number:
                wait_equal(masters[name], broker)
    finally:
        for broker in brokers.values():
            broker.close()
