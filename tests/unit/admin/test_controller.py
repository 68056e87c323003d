"""The commands about controllers, on a group of them in memory."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rocketmq_tw.admin.settings import Access
from rocketmq_tw.admin.tool import Servers, Tool, Work
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.controller import EpochEntryBody, EpochEntryCache
from rocketmq_tw.wire.bodies.route import BrokerData, ClusterInfo
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.sim.controllers import CLUSTER, GROUP, PEERS, AskingBroker, Controllers
from tests.unit.admin.conftest import NAMES, World

ALL = ";".join(PEERS.values())


class ControlledWorld(World):
    """Three controllers, two brokers of one name of which the first is master, and a name server
    that knows them."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.controllers = Controllers()
        self.replicas = [AskingBroker(self.controllers, number) for number in (1, 2)]
        for broker in self.replicas:
            broker.come_up()
        first = self.replicas[0].client
        self.controllers.result(first.elect_master(CLUSTER, GROUP, 1))
        self.controllers.result(first.alter_sync_state_set(GROUP, 1, 1, [1, 2], 1))
        self.controllers.network.serve(
            NAMES, {RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster_info}
        )

    def _cluster_info(self, request: RemotingCommand, peer: Any) -> RemotingCommand:
        addresses = {number: one.address for number, one in enumerate(self.replicas)}
        broker = BrokerData(cluster=CLUSTER, broker_name=GROUP, broker_addrs=addresses)
        info = ClusterInfo(broker_addr_table={GROUP: broker}, cluster_addr_table={CLUSTER: [GROUP]})
        return request.response(body=encode_body(info))

    def run(self, name_servers: str, work: Work[Any], access: Access) -> Any:
        remoting = self.controllers.network.client("10.0.1.1")
        servers = Servers(self.controllers.clock, name_servers, remoting)
        return self.controllers.result(Deferred.fromCoroutine(work(servers)))

    def ask(self, command: str) -> Any:
        """The JSON of a command that needs no name server."""
        return self.bare([*command.split(), "--output", "json"], Tool(self.run)).json

    def fail(self, command: str) -> str:
        outcome = self.bare(command.split(), Tool(self.run))
        assert outcome.status == 1, outcome
        return outcome.err


@pytest.fixture
def controlled(capsys: pytest.CaptureFixture[str]) -> ControlledWorld:
    return ControlledWorld(capsys)


def test_who_leads_the_controllers(controlled: ControlledWorld) -> None:
    leader = controlled.controllers.leader_id()
    controlled.controllers.run(3)
    for address in PEERS.values():
        said = controlled.ask(f"getControllerMetaData -a {address}")
        assert (said["group"], said["leaderId"], said["leaderAddress"]) == (
            "controllers",
            leader,
            PEERS[leader],
        )
        assert said["peers"] == [{"id": one, "address": at} for one, at in PEERS.items()]


def test_who_leads_is_asked_until_one_answers(controlled: ControlledWorld) -> None:
    controllers = controlled.controllers
    first = next(iter(PEERS))
    controllers.stop(first)
    leader = controllers.leader_id()
    controllers.run(3)
    assert controlled.ask(f"getControllerMetaData -a {ALL}")["leaderId"] == leader
    error = controlled.fail(f"getControllerMetaData -a {PEERS[first]}")
    assert f"no controller answers: {PEERS[first]}" in error


@pytest.mark.parametrize("which", [f"-b {GROUP}", f"-c {CLUSTER} -n {NAMES}"])
def test_the_sync_state_set_is_shown(controlled: ControlledWorld, which: str) -> None:
    (shown,) = controlled.ask(f"getSyncStateSet -a {ALL} {which}")["brokerSets"]
    first, second = controlled.replicas
    assert shown == {
        "brokerName": GROUP,
        "masterBrokerId": 1,
        "masterAddress": first.address,
        "masterEpoch": 1,
        "syncStateSetEpoch": 2,
        "replicas": [
            {
                "brokerId": one.broker_id,
                "address": one.address,
                "master": one is first,
                "inSync": True,
                "alive": True,
            }
            for one in (first, second)
        ],
    }
    table = controlled.bare(f"getSyncStateSet -a {ALL} {which}".split(), Tool(controlled.run))
    assert "Lasting id" in table.out
    # The ids that electMaster takes, not those that name servers give a master.
    assert [line[:2] for line in table.lines if GROUP in line] == [[GROUP, "1"], [GROUP, "2"]]
    last = f"{GROUP}: {first.address} in epoch 1, 2 in sync (epoch 2)"
    assert table.lines[-1] == last.split()


def test_an_unknown_name_is_an_error(controlled: ControlledWorld) -> None:
    error = controlled.fail(f"getSyncStateSet -a {ALL} -b nobody")
    assert "the controllers know no brokers named nobody" in error


def test_a_replica_is_made_the_master(controlled: ControlledWorld) -> None:
    command = f"electMaster -a {ALL} -bn {GROUP} -c {CLUSTER} -b"
    elected = controlled.ask(f"{command} 2")
    assert (elected["masterBrokerId"], elected["masterEpoch"]) == (2, 2)
    assert elected["brokers"] == [
        {"brokerId": one.broker_id, "address": one.address} for one in controlled.replicas
    ]
    assert [one.told for one in controlled.replicas] != [[], []]
    assert "is the master of g already, in epoch 2" in controlled.fail(f"{command} 2")
    assert "2012" in controlled.fail(f"{command} 1")
    assert "2010" in controlled.fail(f"electMaster -a {ALL} -bn g -c foreign -b 1")


def test_brokers_are_forgotten(controlled: ControlledWorld) -> None:
    command = f"cleanBrokerMetadata -a {ALL} -bn {GROUP} -c {CLUSTER} --yes"
    assert "2009" in controlled.fail(f"{command} -b 2")
    controlled.replicas[1].die()
    assert f"{GROUP} has no broker 7, 9; there are: 1, 2" in controlled.fail(f"{command} -b 2;7;9")
    assert controlled.ask(f"{command} -b 2;")["brokerIds"] == "2"
    (shown,) = controlled.ask(f"getSyncStateSet -a {ALL} -b {GROUP}")["brokerSets"]
    assert [one["brokerId"] for one in shown["replicas"]] == [1]
    assert "2009" in controlled.fail(command)
    controlled.ask(f"cleanBrokerMetadata -a {ALL} -bn {GROUP} -l --yes")
    assert "know no brokers" in controlled.fail(f"getSyncStateSet -a {ALL} -b {GROUP}")


def test_who_forgets_all_in_sync_is_warned(controlled: ControlledWorld) -> None:
    controlled.ask(f"electMaster -a {ALL} -bn {GROUP} -c {CLUSTER} -b 2")
    controlled.replicas[1].die()
    command = f"cleanBrokerMetadata -a {ALL} -bn {GROUP} -c {CLUSTER} --yes -b"
    shown = controlled.bare(f"{command} 2".split(), Tool(controlled.run))
    assert shown.status == 0
    assert "warning: nobody in sync is left" in shown.out and "with 1 of it" in shown.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("-bn g", "give -c"),
        ("-bn g -c C -b x --yes", "give ids with ';' between them"),
        ("-bn g -l -b 1 --yes", "leave out -b"),
        ("-bn g -c C", "give --yes"),
    ],
)
def test_what_is_not_forgotten(controlled: ControlledWorld, arguments: str, said: str) -> None:
    words = f"cleanBrokerMetadata -a {ALL} {arguments}".split()
    outcome = controlled.bare(words, Tool(controlled.run))
    assert outcome.status == 2 and said in outcome.err


def test_the_configuration_of_controllers(controlled: ControlledWorld) -> None:
    changed = controlled.ask(f"updateControllerConfig -a {ALL} -k electMasterMaxRetryCount -v 7")
    assert changed == {
        "key": "electMasterMaxRetryCount",
        "value": "7",
        "controllers": list(PEERS.values()),
        "remarks": dict.fromkeys(
            PEERS.values(),
            "the change is in the file of configStorePath: no start reads it unless -c names it",
        ),
    }
    shown = controlled.ask(f"getControllerConfig -a {ALL}")["controllers"]
    assert [one["address"] for one in shown] == list(PEERS.values())
    assert {one["config"]["electMasterMaxRetryCount"] for one in shown} == {"7"}
    error = controlled.fail(f"updateControllerConfig -a {ALL} -k configStorePath -v /x")
    assert "configStorePath cannot be changed" in error


def test_no_controller_answers(controlled: ControlledWorld) -> None:
    error = controlled.fail("getSyncStateSet -a 10.9.9.9:1 -b g")
    assert "no controller leads: 10.9.9.9:1" in error
    outcome = controlled.bare(["getControllerMetaData", "-a", "here"], Tool(controlled.run))
    assert outcome.status == 2 and "'here' is no address" in outcome.err


@pytest.mark.parametrize("which", [f"-b {GROUP}", f"-c {CLUSTER}"])
def test_the_epochs_of_logs(controlled: ControlledWorld, which: str) -> None:
    def epochs(request: RemotingCommand, peer: Any) -> RemotingCommand:
        entries = [
            EpochEntryBody(epoch=1, start_offset=0, end_offset=50),
            EpochEntryBody(epoch=3, start_offset=50),
        ]
        cache = EpochEntryCache(
            cluster_name=CLUSTER, broker_name=GROUP, broker_id=7, epoch_list=entries, max_offset=90
        )
        return request.response(body=encode_body(cache))

    for one in controlled.replicas:
        controlled.controllers.network.serve(
            one.address, {RequestCode.GET_BROKER_EPOCH_CACHE: epochs}
        )
    shown = controlled.ask(f"getBrokerEpoch {which} -n {NAMES}")["brokers"]
    assert [one["address"] for one in shown] == [one.address for one in controlled.replicas]
    assert shown[0] | {"address": ""} == {
        "address": "",
        "clusterName": CLUSTER,
        "brokerName": GROUP,
        "brokerId": 7,
        "maxOffset": 90,
        "epochs": [
            {"epoch": 1, "startOffset": 0, "endOffset": 50},
            {"epoch": 3, "startOffset": 50, "endOffset": 90},
        ],
        "error": None,
    }
