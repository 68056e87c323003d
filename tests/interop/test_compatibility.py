"""Old and new name servers with old and new brokers: who serves, and who replaces a master.

The table of stock's guide on controller mode, a test for each cell. Old servers are stock's 4.9.7,
new ones are ours. A pair of brokers is registered with every name server that it may be used with,
as in a cluster that is upgraded piece by piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.controller import GetReplicaInfoRequestHeader
from tests.support.cluster import OURS, make_broker, make_name_server
from tests.support.controllers import (
    CONTROLLER_MODE,
    ControllerGroup,
    ControllerInNameServer,
    controlled_keys,
    running_controllers,
)
from tests.support.java_client import JavaClients, JavaError
from tests.support.load import send_request
from tests.support.processes import BrokerProcess, NameServerProcess
from tests.support.remoting import ask
from tests.support.wait import wait_until

OLD = "4.9.7"

NAME_SERVERS = ("old", "old and controllers", "new with a controller", "new")
BROKERS = ("old", "in controller mode", "new")
#: Where a broker in controller mode has no controller.
WITHOUT_CONTROLLER = ("old", "new")
SERVING = [
    (broker, column)
    for broker in BROKERS
    for column in NAME_SERVERS
    if broker != "in controller mode" or column not in WITHOUT_CONTROLLER
]


class Pair:
    """Two brokers of one name; `elected` are the controllers that choose the master, else it is the
    first one."""

    def __init__(self, brokers: list[BrokerProcess], *, elected: ControllerGroup | None) -> None:
        self.brokers = brokers
        self.name = brokers[0].name
        self._elected = elected
        self.master, self.slave = brokers

    def start(self) -> None:
        for broker in self.brokers:
            broker.launch()
        for broker in self.brokers:
            broker.wait_ready()
        if self._elected is not None:
            self._elected_in_sync(self._elected)

    def _elected_in_sync(self, controllers: ControllerGroup) -> None:
        wait_until(lambda: len(controllers.master(self.name).sync_state_set) == 2, "both in sync")
        address = controllers.master(self.name).address
        self.master, self.slave = sorted(self.brokers, key=lambda one: one.address != address)


class World:
    """All servers of the table, each started when a cell asks for it."""

    def __init__(self, home: Path, stack: ExitStack) -> None:
        self._home = home
        self._stack = stack
        self._pairs: dict[object, Pair] = {}
        self.old = self._started(make_name_server(OLD, home / "old-names"))
        self.new = self._started(make_name_server(OURS, home / "new-names"))
        enter = stack.enter_context
        self.alone = enter(running_controllers(home / "alone", ["ours"]))
        self.inside = enter(running_controllers(home / "inside", ["in-namesrv"]))
        (member,) = self.inside.members.values()
        assert isinstance(member, ControllerInNameServer)
        self.new_with_controller = member.name_server

    def _started(self, server: NameServerProcess) -> NameServerProcess:
        self._stack.callback(server.close)
        server.start()
        return server

    def name_server(self, column: str) -> NameServerProcess:
        if column == "new with a controller":
            return self.new_with_controller
        return self.old if column.startswith("old") else self.new

    def controllers(self, column: str) -> ControllerGroup | None:
        return {"old and controllers": self.alone, "new with a controller": self.inside}.get(column)

    def pair(self, broker: str, column: str) -> Pair:
        """The running pair of a cell."""
        elected = self.controllers(column) if broker == "in controller mode" else None
        key = (broker, column if elected else None)
        if key not in self._pairs:
            self._pairs[key] = pair = self._make(broker, column, elected)
            pair.start()
        return self._pairs[key]

    def _make(self, broker: str, column: str, elected: ControllerGroup | None) -> Pair:
        kind = OLD if broker == "old" else OURS
        names = [self.old, self.new_with_controller, self.new]
        where = self._home / f"{broker} {column}".replace(" ", "-")
        own: list[dict[str, str]] = [{}, {"brokerRole": "SLAVE", "brokerId": "1"}]
        if elected is not None:
            names = [self.name_server(column)]
            own = [controlled_keys(where / str(number), elected) for number in (0, 1)]
        brokers = [
            make_broker(kind, where.name, where / str(number), names, settings=settings)
            for number, settings in enumerate(own)
        ]
        for each in brokers:
            self._stack.callback(each.close)
        return Pair(brokers, elected=elected)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(tmp_path_factory.mktemp("world"), stack)


def serves(java: JavaClients, namesrv: str, topic: str) -> bool:
    """Whether a stock producer and consumer get a message through."""
    with java.producer(namesrv, f"p-{topic}") as producer:
        try:
            producer.send({"topic": topic, "body": "through"})
        except JavaError:
            return False
    with java.puller(namesrv) as puller:
        found = puller.wait_drained(topic, 1)
    return "through" in {message["body"] for message in found}


@pytest.mark.parametrize(("broker", "column"), SERVING)
def test_it_serves(
    broker: str, column: str, world: World, jvms: dict[str, JavaClients], names
) -> None:
    pair, name_server = world.pair(broker, column), world.name_server(column)
    # Clients of the old version as well: nothing changes for them.
    java, topic = jvms[OLD], names.topic
    java.create_topic(name_server.address, pair.master.address, topic, 2)
    wait_until(lambda: name_server.routes(topic, [pair.master]), "the route")
    assert serves(java, name_server.address, topic)


@pytest.mark.parametrize("column", WITHOUT_CONTROLLER)
def test_a_broker_in_controller_mode_stays_unseen_without_a_controller(
    column: str, world: World, tmp_path: Path, names
) -> None:
    name_server = world.name_server(column)
    # Where a controller would be if this name server had one.
    settings = CONTROLLER_MODE | {"controllerAddr": name_server.address}
    with ExitStack() as stack:
        broker = make_broker(OURS, names.new("b"), tmp_path, [name_server], settings=settings)
        stack.callback(broker.close)
        broker.launch()

        def has_given_up_once() -> bool:
            return "no role from the controllers, tried again" in broker.log_text()

        wait_until(has_given_up_once, "it to say why")
        refused = ask(broker.address, send_request("T", 0, b"no"))
        assert refused.code not in (ResponseCode.SUCCESS, ResponseCode.FLUSH_SLAVE_TIMEOUT)
        assert not name_server.knows(broker)


def master_of(name_server: NameServerProcess, pair: Pair) -> BrokerProcess | None:
    """Whom the name server names as master."""
    body = name_server.cluster_body()
    found = [each for each in pair.brokers if f'0:"{each.address}"'.encode() in body]
    return found[0] if found else None


def is_unknown(controllers: ControllerGroup, name: str) -> bool:
    """Whether the controllers have never heard of the group, so that they cannot elect in it."""
    command = RemotingCommand.request(
        RequestCode.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfoRequestHeader(broker_name=name)
    )
    answer = controllers.request(command)
    return answer.code == ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST


def takes_sends(broker: BrokerProcess) -> bool:
    return ask(broker.address, send_request("TBW-probe", 0, b"probe")).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(("broker", "column"), SERVING)
def test_who_replaces_a_master(broker: str, column: str, world: World) -> None:
    pair, name_server = world.pair(broker, column), world.name_server(column)
    lost, other = pair.master, pair.slave
    # The first cell of a pair does it, the others look.
    lost.kill()
    if broker == "in controller mode":
        wait_until(lambda: master_of(name_server, pair) is other, "the other one to be master")
        wait_until(lambda: takes_sends(other), "it to take messages")
        return
    wait_until(lambda: not name_server.knows(lost), "the name server to miss the master")
    assert name_server.knows(other) and master_of(name_server, pair) is None
    assert not takes_sends(other)
    controllers = world.controllers(column)
    assert controllers is None or is_unknown(controllers, pair.name)


def test_routes_outlive_the_majority_of_the_controllers(tmp_path: Path, names) -> None:
    """Name servers with controllers: of three the last one serves on, alone it elects nobody."""
    with ExitStack() as stack:
        group = stack.enter_context(running_controllers(tmp_path, ["in-namesrv"] * 3))
        members = [one for one in group.members.values() if isinstance(one, ControllerInNameServer)]
        settings = controlled_keys(tmp_path / "broker", group)
        broker = make_broker(
            OURS,
            names.new("b"),
            tmp_path / "broker",
            [one.name_server for one in members],
            settings=settings,
        )
        stack.callback(broker.close)
        broker.start()
        last = members[2]
        for lost in members[:2]:
            lost.kill()
        broker.name_servers = [last.name_server]

        def leads_no_more() -> bool:
            return not last.metadata().controller_leader_id

        wait_until(leads_no_more, "the last controller to know no leader")
        # A new topic is registered, and its route is told; the master goes on.
        assert ask(broker.address, send_request("Later", 0, b"m")).code == ResponseCode.SUCCESS
        wait_until(lambda: last.name_server.routes("Later", [broker]), "the route")
        broker.kill()
        wait_until(lambda: not last.name_server.knows(broker), "the lost broker to be missed")
        members[0].launch()
        # Two of three elect again what comes back.
        broker.start()
        wait_until(lambda: takes_sends(broker), "it to be the master again")
