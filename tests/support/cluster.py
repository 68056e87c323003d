"""Clusters of our servers and stock ones; a server's kind is "ours" or a version of stock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.java_client import JavaClients
from tests.support.ports import BrokerPorts
from tests.support.processes import BrokerProcess, NameServerProcess
from tests.support.running import Running
from tests.support.servers import OurBroker, OurNameServer
from tests.support.stock import StockBroker, StockNameServer
from tests.support.wait import wait_until

OURS = "ours"


def make_name_server(
    kind: str, home: Path, settings: dict[str, str] | None = None
) -> NameServerProcess:
    if kind == OURS:
        return OurNameServer(home, settings)
    return StockNameServer(kind, home, settings)


def make_broker(
    kind: str, name: str, home: Path, name_servers: list[NameServerProcess], **options: Any
) -> BrokerProcess:
    """A broker of the kind, not started; `options` as for every `BrokerProcess`."""
    if kind == OURS:
        return OurBroker(name, home, name_servers, **options)
    return StockBroker(kind, name, home, name_servers, **options)


def make_brokers_of_one_store(
    kinds: Sequence[str],
    name: str,
    home: Path,
    name_server: NameServerProcess,
    settings: dict[str, str] | None = None,
) -> list[BrokerProcess]:
    """Brokers of one name on one store and one set of ports, to be run one after the other."""
    ports, store = BrokerPorts(), home / "store"
    return [
        make_broker(
            kind,
            name,
            home / str(number),
            [name_server],
            store=store,
            ports=ports,
            settings=settings,
        )
        for number, kind in enumerate(kinds)
    ]


@dataclass
class Cluster(Running):
    """Name servers, and brokers that register with all of them."""

    name_servers: list[NameServerProcess]
    brokers: list[BrokerProcess]

    @classmethod
    def of(
        cls,
        home: Path,
        *,
        name_servers: list[str],
        brokers: list[str],
        settings: dict[str, str] | None = None,
    ) -> Cluster:
        """A cluster, not started, with a server of each kind that is named."""
        servers = [make_name_server(kind, home / f"namesrv-{kind}") for kind in name_servers]
        return cls(
            servers,
            [
                make_broker(
                    kind, f"broker-{kind}", home / f"broker-{kind}", servers, settings=settings
                )
                for kind in brokers
            ],
        )

    @classmethod
    def numbered(cls, home: Path, kinds: Iterable[str]) -> Cluster:
        """A cluster, not started, of `broker-0` and so on of these kinds and a name server of
        ours."""
        name_server = make_name_server(OURS, home / "namesrv")
        brokers = [
            make_broker(kind, f"broker-{number}", home / str(number), [name_server])
            for number, kind in enumerate(kinds)
        ]
        return cls([name_server], brokers)

    @property
    def namesrv(self) -> str:
        """The address of the first name server."""
        return self.name_servers[0].address

    @property
    def broker(self) -> BrokerProcess:
        return self.brokers[0]

    def start(self) -> None:
        """Starts all name servers at once, then all brokers at once."""
        for name_server in self.name_servers:
            name_server.launch()
        for name_server in self.name_servers:
            name_server.wait_ready()
        for broker in self.brokers:
            broker.launch()
        for broker in self.brokers:
            broker.wait_ready()

    def close(self) -> None:
        for server in (*self.brokers, *self.name_servers):
            server.close()

    def create_topic(
        self,
        java: JavaClients,
        topic: str,
        *,
        queues: int = 4,
        brokers: list[BrokerProcess] | None = None,
    ) -> str:
        """Creates the topic with stock's admin client; waits for its route everywhere."""
        chosen = self.brokers if brokers is None else brokers
        for broker in chosen:
            java.create_topic(self.namesrv, broker.address, topic, queues)
        wait_until(
            lambda: all(server.routes(topic, chosen) for server in self.name_servers),
            f"the route of {topic}",
        )
        return topic
