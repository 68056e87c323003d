"""Controllers with stock's brokers: ours alone, in a group with stock's, on stock's files."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.controller import (
    ApplyBrokerIdRequestHeader,
    ElectMasterRequestHeader,
)
from tests.support.controllers import (
    ControllerGroup,
    ControllerProcess,
    OurController,
    StockController,
    running_controllers,
    stock_replica,
)
from tests.support.processes import BrokerProcess, NameServerProcess
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
            return next(one for one in self.brokers if one.address == master.address)

        found = wait_until(in_sync, "both brokers to be in the set", interval=0.2)
        assert found is not None
        return found

    def fail_over(self, *, comes_back: bool = True) -> None:
        """kill -9 of the master: the other one takes over; then the old one `comes_back`."""
        master = self.wait_in_sync()
        other = next(one for one in self.brokers if one is not master)
        before = self.controllers.master(BROKER_SET)
        master.kill()
        wait_until(
            lambda: self.controllers.master(BROKER_SET).address == other.address,
            "the other broker to be master",
            interval=0.05,
        )
        after = self.controllers.master(BROKER_SET)
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


def test_stock_brokers_follow_our_controllers(tmp_path: Path) -> None:
    with brokers_of(tmp_path, ("ours", "ours", "ours")) as setting:
        setting.fail_over()
        setting.controllers.wait_leader().kill()
        setting.fail_over(comes_back=False)


def test_stock_brokers_follow_whoever_leads_a_mixed_group(tmp_path: Path) -> None:
    with brokers_of(tmp_path, ("stock", "ours", "ours")) as setting:
        setting.controllers.lead_by(StockController)
        setting.fail_over()
        setting.controllers.lead_by(OurController)
        setting.fail_over(comes_back=False)
        # What ours decided stock's has too, and the other way round.
        setting.controllers.lead_by(StockController)
        assert setting.controllers.master(BROKER_SET).epoch == 3


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
