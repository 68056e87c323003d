"""Stock's mqadmin and rmqadmin on three of our controllers with living brokers of both kinds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.support.cluster import OURS, make_name_server
from tests.support.controllers import STOCK_VERSION, running_controllers
from tests.support.elected_brokers import ElectedBrokers
from tests.support.java_client import JavaClients
from tests.support.load import send_until_accepted
from tests.support.rmqadmin import answer as rmqadmin_answer
from tests.support.rmqadmin import rmqadmin
from tests.support.wait import wait_until


def test_both_tools_on_living_brokers(tmp_path: Path, jvms: dict[str, JavaClients], names) -> None:
    java, name = jvms[STOCK_VERSION], names.new("set")
    mqadmin = java.mqadmin
    with (
        running_controllers(tmp_path, ["ours"] * 3) as controllers,
        make_name_server(OURS, tmp_path / "names") as name_server,
        ElectedBrokers(name, tmp_path, name_server, controllers, [OURS, STOCK_VERSION]) as group,
    ):
        every = controllers.addresses
        stock = ["-n", name_server.address]
        master = group.wait_in_sync()
        cluster = master.cluster
        other = next(one for one in group.brokers if one is not master)
        ids = {
            each.broker_address: each.broker_id or 0
            for each in controllers.replicas(name).in_sync_replicas
        }
        other_id = ids[other.address]
        send_until_accepted(master.address, "T", b"m")

        expected = {broker.address: 1 for broker in group.brokers}
        for where in (("-b", name), ("-c", cluster)):
            shown = java.mqadmin_done("getSyncStateSet", "-a", every, *stock, *where)
            assert f"#MasterAddr\t{master.address}\n" in shown and "#SyncStateSetNums\t2" in shown
            tell = partial(mqadmin, "getBrokerEpoch", *stock, *where)
            wait_until(partial(shows_epochs, tell, expected), "an epoch everywhere")
        # Every controller that is asked finds the leader.
        leader = controllers.wait_leader()
        one = next(each.address for each in controllers.members.values() if each is not leader)
        elected = mqadmin(
            "electMaster", "-a", one, *stock, "-b", str(other_id), "-bn", name, "-c", cluster
        )
        assert f"#BrokerMasterAddr\t{other.address}\n" in elected
        assert group.wait_in_sync() is other

        key = "electMasterMaxRetryCount"
        changed = java.mqadmin_done(
            "updateControllerConfig", "-a", every, *stock, "-k", key, "-v", "7"
        )
        assert "update controller config success" in changed
        shown = rmqadmin_answer("", f"getControllerConfig -a {every}")["controllers"]
        assert [each["config"][key] for each in shown] == ["7"] * 3

        # Who lives is forgotten only where that is said.
        clean = ("cleanBrokerMetadata", "-a", one, *stock, "-bn", name, "-c", cluster)
        assert "success" not in mqadmin(*clean, "-b", str(other_id))
        command = f"cleanBrokerMetadata -a {every} -bn {name} -c {cluster} -b {other_id} --yes"
        assert rmqadmin("", command).returncode == 1
        assert group.wait_in_sync() is other
        master.kill()
        forget = partial(mqadmin, *clean, "-b", str(ids[master.address]))
        wait_until(lambda: "success" in forget(), "it to be forgotten")
        command = f"getSyncStateSet -a {every} -c {cluster}"
        (told,) = rmqadmin_answer(name_server.address, command)["brokerSets"]
        assert [each["brokerId"] for each in told["replicas"]] == [other_id]


def shows_epochs(tell: Callable[[], str], expected: dict[str, int]) -> bool:
    """Whether mqadmin shows so many epochs of the broker at each address."""
    epochs: dict[str, int] = {}
    address = ""
    for line in tell().splitlines():
        if line.startswith("#brokerAddr"):
            address = line.split("\t")[1]
            epochs[address] = 0
        elif line.startswith("#Epoch"):
            epochs[address] += 1
    return epochs == expected
