"""docs/upgrade.md, typed as it stands: brokers of 4.9.7 and 5.1.0 with messages become ours."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from rocketmq_tw.wire.fastjson import loads
from tests.support.cluster import OURS, make_broker, make_name_server
from tests.support.controllers import CONTROLLER_MODE, GROUP
from tests.support.jars import ADDRESS_IDS_VERSION, PROJECT
from tests.support.java_client import JavaClients, JavaError, PullConsumer
from tests.support.ports import ReservedPort
from tests.support.processes import BrokerProcess, NameServerProcess
from tests.support.replicas import log_digest, log_end, send_volume, wait_equal
from tests.support.rmqadmin import answer as rmqadmin_answer
from tests.support.rmqadmin import rmqadmin
from tests.support.runbook import Machine, Rehearsal
from tests.support.wait import wait_until

PAGE = PROJECT / "docs" / "upgrade.md"
BEFORE = [f"before-{number}" for number in range(40)]
COMMITTED = 5
#: Seconds of a delay: about what an upgrade takes here, and longer than it takes; by their levels.
DELAYS = {14: 20, 16: 60}
SOON, LATER = DELAYS
START = 'twistd --umask=022 --pidfile=broker.pid --logfile=broker.log rmq-broker -c "$CONF"'


class Production:
    """A name server that runs, and a master and its slave, not started."""

    def __init__(
        self,
        version: str,
        home: Path,
        stack: ExitStack,
        settings: list[dict[str, str]],
        *,
        names: str = "4.9.7",
    ) -> None:
        self.home = home
        self.version = version
        self.names: NameServerProcess = make_name_server(names, home / "names")
        stack.callback(self.names.close)
        self.names.start()
        self.brokers = []
        for place, own in zip(("master", "slave"), settings, strict=True):
            broker = make_broker(version, "broker-a", home / place, [self.names], settings=own)
            stack.callback(broker.close)
            self.brokers.append(broker)
        self.master, self.slave = self.brokers
        #: When the delayed message is delivered, by the monotonic clock.
        self.due = 0.0

    def machines(self, controllers: list[ReservedPort]) -> dict[str, list[Machine]]:
        """Where the page is typed, with the variables that it wants."""
        peers = [f"n{number}-{port.address}" for number, port in enumerate(controllers)]
        common = {
            "NAME": self.master.name,
            "CLUSTER": self.master.cluster,
            "NAMESRV": self.names.address,
            "CONTROLLERS": ";".join(port.address for port in controllers),
            "PEERS": ";".join(peers),
            "MASTER": self.master.address,
            "SLAVE": self.slave.address,
        }
        brokers = []
        version = "4.9.7" if self.version == OURS else self.version
        for broker in self.brokers:
            own = {"CONF": str(broker.home / "broker.properties"), "STORE": str(broker.store)}
            brokers.append(Machine(broker.home, common | own, version))
        leaders = []
        for number in range(len(controllers)):
            where = self.home / f"controller-{number}"
            own = {
                "SELF": f"n{number}",
                "CONTROLLER_CONF": str(where / "controller.conf"),
                "CONTROLLER_STORE": str(where / "DLedgerController"),
            }
            leaders.append(Machine(where, common | own, version))
        return {
            "anywhere": [Machine(self.home / "anywhere", common, version)],
            "each controller": leaders,
            "each broker": brokers,
            "the master": brokers[:1],
            "the slave": brokers[1:],
        }


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def controller_ports() -> Iterator[list[ReservedPort]]:
    ports = [ReservedPort() for _ in range(3)]
    yield ports
    for port in ports:
        port.release()


def create_topic(java: JavaClients, production: Production, topic: str, queues: int) -> None:
    """Creates a topic on the master; stock's client gives up after 3 s on a busy machine."""
    namesrv, address = production.names.address, production.master.address

    def is_created() -> bool:
        java.create_topic(namesrv, address, topic, queues)
        return production.names.routes(topic, [production.master])

    wait_until(is_created, "the topic", interval=0.5)


def fill(
    java: JavaClients, production: Production, topic: str, group: str, delay_level: int = SOON
) -> None:
    """Messages, a delayed one, and a group that has taken some of them."""
    namesrv = production.names.address
    create_topic(java, production, topic, 2)
    # The slave may not be linked yet.
    send(java, namesrv, topic, "first")
    with java.producer(namesrv, f"p-{group}") as producer:
        for number, body in enumerate(BEFORE):
            producer.send({"topic": topic, "body": body, "keys": body}, queue=number % 2)
        producer.send({"topic": topic, "body": "delayed", "delayLevel": delay_level})
        production.due = time.monotonic() + DELAYS[delay_level]
    with java.puller(namesrv, group) as puller:
        for queue in puller.queues(topic):
            assert len(puller.pull(queue, 0, COMMITTED)["messages"]) == COMMITTED
            puller.commit(queue, COMMITTED)
        wait_until(
            lambda: (
                list(production.master.stored_offsets(topic, group).values()) == [COMMITTED] * 2
            ),
            "the offsets on disk",
        )
        puller.stop()
    wait_equal(production.master, production.slave)


def wait_until_nothing_is_due(production: Production) -> None:
    """Waits until the delayed message was delivered, or is long before: a master that stores it as
    it stops may not give it to its slave any more, as the page says."""

    def is_far() -> bool:
        return not -2 < production.due - time.monotonic() < 15

    wait_until(is_far, "the delayed message to be due at another time", interval=0.2)
    wait_equal(production.master, production.slave)


def send(java: JavaClients, namesrv: str, topic: str, body: str) -> None:
    """Waits until a stock producer's message is acknowledged by all that must have it."""
    with java.producer(namesrv, f"p-{body}") as producer:

        def is_acknowledged() -> bool:
            try:
                (result,) = producer.send({"topic": topic, "body": body}, check=False)
            except JavaError:
                return False
            return bool(result["status"] == "SEND_OK")

        wait_until(is_acknowledged, f"{body} to be acknowledged", interval=0.2)


def wait_bodies(puller: PullConsumer, topic: str, *wanted: str) -> None:
    """Waits until all of `wanted` are served."""

    missing = {*wanted}

    def are_there() -> bool:
        missing.difference_update([message["body"] for message in puller.drain(topic)])
        return not missing

    try:
        wait_until(are_there, f"{len(wanted)} messages of {topic}", interval=0.5)
    except TimeoutError as error:
        raise AssertionError(f"not served: {sorted(missing)}") from error


def wait_in_sync(controllers: str, name: str, master: BrokerProcess) -> None:
    """Waits until the broker is the master of two that are in sync."""

    def holds() -> bool:
        shown = rmqadmin_answer("", f"getSyncStateSet -a {controllers} -b {name}")
        (group,) = shown["brokerSets"]
        in_sync = [one for one in group["replicas"] if one["inSync"]]
        return group["masterAddress"] == master.address and len(in_sync) == 2

    wait_until(holds, f"{master.address} to lead two", interval=0.3)


def check_equal(production: Production, master: BrokerProcess) -> None:
    for broker in production.brokers:
        if broker is not master:
            wait_equal(master, broker)
    end = log_end(master)
    assert len({log_digest(broker, 0, end) for broker in production.brokers}) == 1


def check_logs(machines: dict[str, list[Machine]]) -> None:
    """None of our servers met anything that it did not expect."""
    for machine in (*machines["each controller"], *machines["each broker"]):
        for name in ("controller.log", "broker.log"):
            if (machine.home / name).exists():
                assert "Traceback" not in (machine.home / name).read_text()


def no_role_yet(broker: BrokerProcess, said: str) -> bool:
    """Whether a broker that looks for a role in vain has said so; nobody may see it."""
    (name_server,) = broker.name_servers
    return said in broker.log_text() and not name_server.knows(broker)


def test_a_pair_of_4_9_elects_its_master_and_goes_back(
    tmp_path: Path,
    jvms: dict[str, JavaClients],
    stack: ExitStack,
    controller_ports: list[ReservedPort],
    names,
) -> None:
    java, topic, group = jvms["4.9.7"], names.topic, names.group
    roles = [{"brokerRole": "SYNC_MASTER"}, {"brokerRole": "SLAVE", "brokerId": "1"}]
    production = Production("4.9.7", tmp_path, stack, roles)
    for broker in production.brokers:
        broker.start()
    namesrv, master, slave = production.names.address, production.master, production.slave
    fill(java, production, topic, group, LATER)
    # Stock writes every key into the file then.
    java.mqadmin("updateBrokerConfig", "-b", master.address, "-k", "traceOn", "-v", "true")
    machines = production.machines(controller_ports)
    rehearsal = stack.enter_context(Rehearsal(PAGE, machines))
    puller = stack.enter_context(java.puller(namesrv))

    rehearsal.follow("1. Start the controllers")
    rehearsal.follow("2. End the writes")
    wait_until_nothing_is_due(production)
    rehearsal.follow("3. Stop both brokers")
    masters, slaves = rehearsal.follow("4. Compare the logs")
    assert masters == slaves and len(masters.split()) >= 2
    rehearsal.follow("5. Change the configuration")
    rehearsal.follow("6. Start the former master, then the slave")
    send(java, namesrv, topic, "after")
    # The index and the offsets came along, and what was delayed is delivered.
    wait_bodies(puller, topic, *BEFORE, "after", "delayed")
    assert [one["body"] for one in puller.query(topic, BEFORE[7])] == [BEFORE[7]]
    with java.puller(namesrv, group) as group_puller:
        committed = [group_puller.committed(queue) for queue in group_puller.queues(topic)]
    assert committed == [COMMITTED] * 2
    check_equal(production, master)

    controllers = ";".join(port.address for port in controller_ports)
    machines["the master"][0].kill("broker")
    send(java, namesrv, topic, "elected")
    assert machines["the master"][0].type(START).returncode == 0
    wait_in_sync(controllers, "broker-a", slave)
    wait_bodies(puller, topic, *BEFORE, "after", "delayed", "elected")
    check_equal(production, slave)

    rehearsal.follow("And back to 4.9")
    for broker in production.brokers:
        wait_until(broker.ready, f"{broker.address} to be 4.9 again")
    send(java, namesrv, topic, "back")
    wait_bodies(puller, topic, *BEFORE, "after", "delayed", "elected", "back")
    check_equal(production, master)
    check_logs(machines)


def test_the_shorter_of_two_logs_became_master(
    tmp_path: Path, stack: ExitStack, controller_ports: list[ReservedPort]
) -> None:
    roles = [{"brokerRole": "ASYNC_MASTER"}, {"brokerRole": "SLAVE", "brokerId": "1"}]
    production = Production(OURS, tmp_path, stack, roles, names=OURS)
    master, slave = production.master, production.slave
    for broker in production.brokers:
        broker.start()
    send_volume(master.address, "Unequal", 1 << 16, body=1024)
    wait_equal(master, slave)
    slave.stop()
    send_volume(master.address, "Unequal", 1 << 15, body=1024)
    end = log_end(master)
    master.stop()
    machines = production.machines(controller_ports[:1])
    rehearsal = stack.enter_context(Rehearsal(PAGE, machines))
    rehearsal.follow("1. Start the controllers")
    rehearsal.follow("5. Change the configuration")
    (longer,), (shorter,) = machines["the master"], machines["the slave"]
    assert shorter.type(START).returncode == 0
    wait_until(slave.ready, "the shorter one to be the master")
    assert longer.type(START).returncode == 0
    said = "this log has no epochs and ends at"
    wait_until(lambda: said in (longer.home / "broker.log").read_text(), "the longer one to stay")
    assert log_end(master) == end

    rehearsal.follow("Where the wrong one became master")
    rehearsal.follow("6. Start the former master, then the slave")
    check_equal(production, master)
    assert log_end(slave) >= end
    check_logs(machines)


def test_a_dledger_group_keeps_its_topics_and_groups(
    tmp_path: Path,
    jvms: dict[str, JavaClients],
    stack: ExitStack,
    controller_ports: list[ReservedPort],
    names,
) -> None:
    """A group of one: what must stay is the same on each."""
    java, topic, group = jvms["4.9.7"], names.topic, names.group
    port = ReservedPort()
    stack.callback(port.release)
    settings = {
        "enableDLegerCommitLog": "true",
        "dLegerGroup": "broker-a",
        "dLegerPeers": f"n0-{port.address}",
        "dLegerSelfId": "n0",
    }
    production = Production("4.9.7", tmp_path, stack, [settings, {}])
    namesrv, master = production.names.address, production.master
    master.start()
    create_topic(java, production, topic, 3)
    update = ("updateSubGroup", "-n", namesrv, "-b", master.address, "-g", group, "-r", "7")
    wait_until(lambda: "success" in java.mqadmin(*update), "the group to be made")
    send(java, namesrv, topic, "before")
    machines = production.machines(controller_ports[:1])
    machines["each broker"] = machines["the master"]
    rehearsal = stack.enter_context(Rehearsal(PAGE, machines))
    rehearsal.follow("1. Start the controllers")
    rehearsal.follow("1. End the writes and wait")
    rehearsal.follow("2. Stop the group and keep topics and groups")
    rehearsal.follow("3. Out of DLedger")
    rehearsal.follow("4. Start the group")
    send(java, namesrv, topic, "after")
    with java.puller(namesrv) as puller:
        # Once more where a busy machine's answer was late.
        assert {message["body"] for message in puller.drain(topic)} == {"after"}
        assert len(puller.queues(topic)) == 3
    groups = loads((master.store / "config" / "subscriptionGroup.json").read_bytes())
    assert groups["subscriptionGroupTable"][group]["retryMaxTimes"] == 7
    check_logs(machines)


def one_more(production: Production, kind: str, settings: dict[str, str]) -> BrokerProcess:
    """A broker of another group, not started."""
    home = production.home / f"more-{kind}"
    own = settings | {"storePathEpochFile": str(home / "epochs")}
    return make_broker(kind, f"broker-{kind}", home, [production.names], settings=own)


def test_brokers_of_5_1_get_lasting_ids(
    tmp_path: Path,
    jvms: dict[str, JavaClients],
    stack: ExitStack,
    controller_ports: list[ReservedPort],
    names,
) -> None:
    java, topic, group = jvms["5.3.3"], names.topic, names.group
    port = controller_ports[0]
    settings = [
        CONTROLLER_MODE
        | {
            "controllerAddr": port.address,
            "allAckInSyncStateSet": "true",
            "storePathEpochFile": str(tmp_path / place / "store" / "epochFileCheckpoint"),
        }
        for place in ("master", "slave")
    ]
    production = Production(ADDRESS_IDS_VERSION, tmp_path, stack, settings)
    machines = production.machines([port])
    (controller,) = machines["each controller"]
    rehearsal = stack.enter_context(Rehearsal(PAGE, machines))
    config = {
        "controllerDLegerGroup": GROUP,
        "controllerDLegerPeers": f"n0-{port.address}",
        "controllerDLegerSelfId": "n0",
        "controllerStorePath": str(controller.home / "DLedgerController"),
        "mappedFileSize": str(1 << 20),
        "rocketmqHome": str(controller.home),
    }
    text = "".join(f"{key}={value}\n" for key, value in config.items())
    (controller.home / "controller.conf").write_text(text)
    start = 'nohup sh "$ROCKETMQ_HOME/bin/mqcontroller" -c "$CONTROLLER_CONF" > old.log 2>&1 &'
    assert controller.type(start).returncode == 0
    for broker in production.brokers:
        broker.start()
    namesrv, master = production.names.address, production.master
    fill(java, production, topic, group)
    assert (master.store / "epochFileCheckpoint").exists()
    new, old = (
        stack.enter_context(closing(one_more(production, kind, settings[0])))
        for kind in (OURS, ADDRESS_IDS_VERSION)
    )
    new.launch()
    said = "no role from the controllers, tried again"
    wait_until(lambda: no_role_yet(new, said), "a new broker to find no place here")
    new.stop()

    rehearsal.follow("1. Change the controllers")
    # A broker whose role is known goes on; who does not know its group elects nobody in it.
    send(java, namesrv, topic, "meanwhile")
    unknown = rmqadmin("", f"getSyncStateSet -a {port.address} -b {master.name}")
    assert unknown.returncode == 1 and "know no brokers named" in unknown.stderr
    new.start()
    old.launch()
    refused = "request 1003 of"
    wait_until(lambda: refused in (controller.home / "controller.log").read_text(), "a refusal")
    assert not production.names.knows(old)
    old.kill()
    rehearsal.follow("2. Stop the brokers")
    rehearsal.follow("3. Forget the old epochs")
    rehearsal.follow("4. Start the former master, then the slaves")
    send(java, namesrv, topic, "after")
    puller = stack.enter_context(java.puller(namesrv))
    wait_bodies(puller, topic, *BEFORE, "meanwhile", "after", "delayed")
    check_equal(production, master)
    machines["the master"][0].kill("broker")
    send(java, namesrv, topic, "elected")
    wait_bodies(puller, topic, *BEFORE, "meanwhile", "after", "delayed", "elected")
    check_logs(machines)
