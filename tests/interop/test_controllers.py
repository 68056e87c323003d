"""Controllers with stock's brokers: ours alone, in a group with stock's, on stock's files."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.controller import SyncStateSetBody
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.controller import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    ElectMasterRequestHeader,
)
from rocketmq_tw.wire.headers.namesrv import BrokerHeartbeatRequestHeader
from tests.support.cluster import Cluster
from tests.support.controllers import (
    ControllerGroup,
    ControllerProcess,
    OurController,
    StockController,
    running_controllers,
    stock_replica,
)
from tests.support.java_client import JavaClients
from tests.support.load import send_request
from tests.support.processes import BrokerProcess, NameServerProcess
from tests.support.remoting import Connection
from tests.support.rmqadmin import answer as rmqadmin_answer
from tests.support.rmqadmin import rmqadmin
from tests.support.running import Closing
from tests.support.servers import OurNameServer
from tests.support.wait import wait_until

BROKER_SET = "set-a"


class Setting:
    """Controllers, a name server, and two stock brokers of one name; the brokers run."""

    def __init__(
        self, controllers: ControllerGroup, names: NameServerProcess, brokers: list[BrokerProcess]
    ) -> None:
        self.controllers = controllers
        self.names = names
        self.brokers = brokers

    def wait_in_sync(self) -> BrokerProcess:
        """Waits until both are in the SyncStateSet; the master."""

        def in_sync() -> BrokerProcess | None:
            master = self.controllers.master(BROKER_SET)
            if len(master.sync_state_set) != 2:
                return None
            # None while a new leader of the controllers has no master yet.
            return next((one for one in self.brokers if one.address == master.address), None)

        found = wait_until(in_sync, "both brokers to be in the set", interval=0.2)
        assert found is not None
        return found

    def fail_over(self, *, comes_back: bool = True) -> None:
        """kill -9 of the master: the other one takes over; then the old one `comes_back`."""
        master = self.wait_in_sync()
        other = next(one for one in self.brokers if one is not master)
        before = wait_until(lambda: self.controllers.master(BROKER_SET), "the master's epoch")
        master.kill()
        wait_until(
            lambda: self.controllers.master(BROKER_SET).address == other.address,
            "the other broker to be master",
            interval=0.05,
        )
        after = wait_until(lambda: self.controllers.master(BROKER_SET), "the next master's epoch")
        assert after.epoch == before.epoch + 1
        assert after.sync_state_set == frozenset((after.broker_id,))
        wait_until(lambda: f'0:"{other.address}"'.encode() in self.names.cluster_body(), "routes")
        if not comes_back:
            return
        master.launch()
        assert self.wait_in_sync() is other
        # The id is given once.
        info = self.controllers.replicas(BROKER_SET)
        assert {one.broker_id for one in info.in_sync_replicas} == {1, 2}


@contextmanager
def brokers_of(home: Path, kinds: tuple[str, ...]) -> Iterator[Setting]:
    with ExitStack() as stack:
        controllers = stack.enter_context(running_controllers(home, kinds))
        names = stack.enter_context(OurNameServer(home / "names"))
        brokers = [
            stock_replica(BROKER_SET, home / f"broker-{number}", controllers, [names])
            for number in (1, 2)
        ]
        for broker in brokers:
            stack.callback(broker.close)
            broker.launch()
        for broker in brokers:
            broker.wait_ready()
        yield Setting(controllers, names, brokers)


def epochs_of(setting: Setting) -> list[Any]:
    """What each broker says of its log's epochs."""
    return rmqadmin_answer(setting.names.address, f"getBrokerEpoch -b {BROKER_SET}")["brokers"]


def both_epochs(setting: Setting) -> list[Any]:
    """As `epochs_of`; empty while name servers do not know one of the two."""
    told = epochs_of(setting)
    return told if len(told) == 2 else []


def store_one_everywhere(setting: Setting) -> None:
    """Both logs have a message: stock keeps no epoch in which there is none."""
    master = setting.wait_in_sync()

    def is_stored() -> bool:
        connection = Connection(master.address, 5)
        try:
            answer = connection.request(send_request("Epochs", 0, b"first"))
        finally:
            connection.close()
        return answer.code == ResponseCode.SUCCESS

    wait_until(is_stored, "the master to store a message", interval=0.2)

    def both_have_it() -> bool:
        ends = [broker["maxOffset"] for broker in both_epochs(setting)]
        return bool(ends) and 0 < ends[0] == ends[1]

    wait_until(both_have_it, "both to have the message", interval=0.2)


def test_stock_brokers_follow_our_controllers(tmp_path: Path) -> None:
    with brokers_of(tmp_path, ("ours", "ours", "ours")) as setting:
        store_one_everywhere(setting)
        setting.fail_over()
        # Stock's brokers say of their logs what the controllers decided; a slave of stock's notes
        # its master's epoch with the first message of it, and there may be none.
        both = wait_until(lambda: both_epochs(setting), "both to be registered", interval=0.2)
        told = [[epoch["epoch"] for epoch in broker["epochs"]] for broker in both]
        assert sorted(told) in ([[1], [1, 2]], [[1, 2], [1, 2]])
        setting.controllers.wait_leader().kill()
        setting.fail_over(comes_back=False)


def test_stock_brokers_follow_whoever_leads_a_mixed_group(tmp_path: Path) -> None:
    with brokers_of(tmp_path, ("stock", "ours", "ours")) as setting:
        setting.controllers.lead_by(StockController)
        setting.fail_over()
        setting.controllers.lead_by(OurController)
        setting.fail_over(comes_back=False)
        # What ours decided stock's has too, and the other way round.
        told = wait_until(lambda: setting.controllers.master(BROKER_SET), "the epoch of ours")
        setting.controllers.lead_by(StockController)
        again = wait_until(lambda: setting.controllers.master(BROKER_SET), "stock's epoch")
        assert again.epoch >= told.epoch >= 3


def decide_something(group: ControllerGroup, name: str) -> None:
    """Three replicas of a broker set with a master, by requests as brokers send them."""
    for number in (1, 2, 3):
        header = ApplyBrokerIdRequestHeader(
            cluster_name="C",
            broker_name=name,
            applied_broker_id=number,
            register_check_code=f"127.0.0.1:{number};code",
        )
        command = RemotingCommand.request(RequestCode.CONTROLLER_APPLY_BROKER_ID, header)
        assert group.request(command).code == ResponseCode.SUCCESS
    election = ElectMasterRequestHeader(cluster_name="C", broker_name=name, broker_id=2)
    command = RemotingCommand.request(RequestCode.CONTROLLER_ELECT_MASTER, election)
    assert group.request(command).code == ResponseCode.SUCCESS


def test_a_controllers_store_is_opened_by_either_kind(tmp_path: Path) -> None:
    """One member that is stock's, then ours, then stock's, then ours."""
    group = ControllerGroup(tmp_path, ("stock",))
    (first,) = group.members.values()
    members: list[ControllerProcess] = [first]
    try:
        for number in range(4):
            if number:
                kind = OurController if number % 2 else StockController
                member: ControllerProcess = kind("n0", tmp_path / str(number), port=first.port)
                member.peers, member.store = first.peers, first.store
                members.append(member)
                group.members["n0"] = member
            group.start()
            group.wait_leader()
            seen = [group.replicas(f"set-{earlier}") for earlier in range(number)]
            assert all(one.master_broker_id == 2 and one.master_epoch == 1 for one in seen)
            decide_something(group, f"set-{number}")
            assert group.master(f"set-{number}").sync_state_set == frozenset((2,))
            group.members["n0"].stop()
    finally:
        for member in members:
            member.close()


class LivingBrokers(Closing):
    """Connections over which the heartbeats of three brokers came."""

    def __init__(self, group: ControllerGroup, name: str) -> None:
        self.connections = []
        for number in (1, 2, 3):
            connection = Connection(group.wait_leader().address)
            header = BrokerHeartbeatRequestHeader(
                cluster_name="C",
                broker_name=name,
                broker_addr=f"127.0.0.1:{number}",
                broker_id=number,
                heartbeat_timeout_mills=3_600_000,
            )
            command = RemotingCommand.request(RequestCode.BROKER_HEARTBEAT, header)
            assert connection.request(command).code == ResponseCode.SUCCESS
            self.connections.append(connection)

    def close(self) -> None:
        for connection in self.connections:
            connection.close()


@pytest.mark.parametrize("kind", ["ours", "stock"])
def test_both_tools_on_both_kinds(
    kind: str, tmp_path: Path, jvms: dict[str, JavaClients], cluster: Cluster
) -> None:
    java, names = jvms["5.3.3"], cluster.namesrv
    with running_controllers(tmp_path, (kind,)) as group:
        name = "set-tools"
        decide_something(group, name)
        members = SyncStateSetBody(sync_state_set=[1, 2, 3], sync_state_set_epoch=1)
        header = AlterSyncStateSetRequestHeader(
            broker_name=name, master_broker_id=2, master_epoch=1
        )
        at = f"-a {group.addresses}"
        stock = ["-a", group.addresses, "-n", names]
        with LivingBrokers(group, name):
            altered = group.request(
                RemotingCommand.request(
                    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, header, encode_body(members)
                )
            )
            assert altered.code == ResponseCode.SUCCESS
            said = rmqadmin_answer("", f"getControllerMetaData {at}")
            assert said["leaderAddress"] == group.addresses
            printed = java.mqadmin_done("getControllerMetaData", *stock)
            assert f"#ControllerLeaderAddress\t{group.addresses}" in printed
            (shown,) = rmqadmin_answer("", f"getSyncStateSet {at} -b {name}")["brokerSets"]
            assert [one["brokerId"] for one in shown["replicas"] if one["inSync"]] == [1, 2, 3]
            printed = java.mqadmin_done("getSyncStateSet", *stock, "-b", name)
            assert "#MasterBrokerId\t2\n" in printed and "#SyncStateSetNums\t3\n" in printed
            elected = java.mqadmin("electMaster", *stock, "-b", "3", "-bn", name, "-c", "C")
            assert "#BrokerMasterAddr\t127.0.0.1:3" in elected and "#MasterEpoch\t2" in elected
            refused = rmqadmin("", f"electMaster {at} -b 1 -bn {name} -c C")
            assert refused.returncode == 1 and "2012" in refused.stderr
        _change_and_clean(java, stock, at, name)


def _change_and_clean(java: JavaClients, stock: list[str], at: str, name: str) -> None:
    key = "enableElectUncleanMaster"
    for tool_value, read in (("true", "mqadmin"), ("false", "rmqadmin")):
        if read == "mqadmin":
            rmqadmin_answer("", f"updateControllerConfig {at} -k {key} -v {tool_value}")
            printed = java.mqadmin_done("getControllerConfig", *stock)
            (line,) = [line for line in printed.splitlines() if line.startswith(key)]
            assert line.endswith("=  true")
        else:
            java.mqadmin_done("updateControllerConfig", *stock, "-k", key, "-v", tool_value)
            (shown,) = rmqadmin_answer("", f"getControllerConfig {at}")["controllers"]
            assert shown["config"][key] == "false"
    clean = ("cleanBrokerMetadata", *stock, "-bn", name, "-c", "C")
    assert "success" in java.mqadmin(*clean, "-b", "1")
    assert rmqadmin_answer("", f"cleanBrokerMetadata {at} -bn {name} -c C -b 2 --yes")
    (shown,) = rmqadmin_answer("", f"getSyncStateSet {at} -b {name}")["brokerSets"]
    assert [one["brokerId"] for one in shown["replicas"]] == [3]
