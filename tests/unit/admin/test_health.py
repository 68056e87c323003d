"""What `rmqadmin health` finds."""

from __future__ import annotations

import errno
import json

import pytest

from rocketmq_tw.admin.health import judge, judge_slaves
from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.structs import force_setattr
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.route import BrokerData, ClusterInfo
from rocketmq_tw.wire.bodies.stats import HAConnectionInfo, HARuntimeInfo
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError

A = "10.0.0.2:10911"


def refuse(request, peer):
    raise RequestError(ResponseCode.SYSTEM_ERROR, "no such thing here")


def hang_up(request, peer):
    peer.close("for the test")


def test_a_cluster_is_healthy(world) -> None:
    world.add_broker("broker-b", "10.0.0.3")
    outcome = world.rmqadmin("health")
    asked = "1 name server and 2 brokers were asked"
    assert (outcome.status, outcome.out) == (0, f"healthy: {asked}\n")
    assert world.rmqadmin("health -c DefaultCluster --output json").json == {
        "healthy": True,
        "problems": [],
        "asked": {"nameServers": 1, "brokers": 2},
    }


def test_a_name_server_that_is_gone_is_an_error(world) -> None:
    outcome = world.rmqadmin("health", name_servers=f"{world.names};10.9.9.9:9876")
    assert outcome.status == 1
    assert "10.9.9.9:9876" in outcome.out
    assert outcome.out.endswith("\nnot healthy: 2 name servers and 1 broker were asked\n")
    assert outcome.err == ""


def test_a_dead_broker_that_one_name_server_alone_knows_is_an_error(world) -> None:
    slave = BrokerData(cluster="Other", broker_name="broker-a", broker_addrs={1: "10.0.0.98:10911"})
    gone = BrokerData(cluster="Other", broker_name="gone", broker_addrs={0: "10.0.0.99:10911"})
    table = {"broker-a": slave, "gone": gone}
    info = ClusterInfo(broker_addr_table=table, cluster_addr_table={"Other": list(table)})

    def tell(request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        return request.response(body=encode_body(info))

    world.network.serve("10.0.0.7:9876", {RequestCode.GET_BROKER_CLUSTER_INFO: tell})
    for names in (f"{world.names};10.0.0.7:9876", f"10.0.0.7:9876;{world.names}"):
        for options in ("", "-c Other"):
            outcome = world.rmqadmin(f"health {options} --output json", name_servers=names)
            assert outcome.status == 1
            said = {row["where"]: row["what"] for row in json.loads(outcome.out)["problems"]}
            for where in ("gone 0 (10.0.0.99:10911)", "broker-a 1 (10.0.0.98:10911)"):
                assert said[where].startswith("does not answer: ")
            assert not any("no master" in what for what in said.values()) or options
        assert json.loads(outcome.out)["asked"]["nameServers"] == 2


def test_a_broker_in_place_of_a_name_server_is_told(world) -> None:
    outcome = world.rmqadmin("health", name_servers=A)
    assert outcome.status == 1
    said = "answered 3: it is a broker, no name server: -n names a name server"
    assert [A, *said.split()] == outcome.out.splitlines()[2].split()[1:]


def test_a_cluster_that_is_not_there_is_an_error(world) -> None:
    outcome = world.rmqadmin("health -c nix")
    assert outcome.status == 1
    assert "no broker of this cluster is registered" in outcome.out


@pytest.mark.parametrize(
    ("table", "level", "what"),
    [
        ({"brokerActive": "false"}, "error", "the master is not active"),
        ({"commitLogDiskRatio": "0.8"}, "warning", "the disk of the log is 80% full"),
        ({"consumeQueueDiskRatio": "0.9"}, "error", "the disk of the queues is 90% full"),
        ({"sendThreadPoolQueueHeadWaitTimeMills": "500"}, "warning", "sends wait for 500 ms"),
    ],
)
def test_what_a_broker_says_of_itself(table: dict[str, str], level: str, what: str) -> None:
    (problem,) = judge("broker-a", 0, table)
    assert (problem.level, problem.where) == (level, "broker-a")
    assert problem.what.startswith(what)


@pytest.mark.parametrize(
    ("permission", "said"),
    [
        (4, ["the master takes no messages: brokerPermission is 4"]),
        (2, ["consumers get no messages from it: brokerPermission is 2"]),
        (
            0,
            [
                "the master takes no messages: brokerPermission is 0",
                "consumers get no messages from it: brokerPermission is 0",
            ],
        ),
    ],
)
def test_a_master_that_refuses_what_clients_do_is_an_error(
    world, permission: int, said: list[str]
) -> None:
    b = world.add_broker("broker-b", "10.0.0.3")
    change = f"brokerPermission={permission}".encode()
    world.hosts[b].ask(RequestCode.UPDATE_BROKER_CONFIG, body=change)
    outcome = world.rmqadmin("health")
    assert outcome.status == 1
    problems = [["error", *f"broker-b 0 ({b}) {what}".split()] for what in said]
    assert [line.split() for line in outcome.out.splitlines()[2:-1]] == problems
    assert outcome.out.endswith("\nnot healthy: 1 name server and 2 brokers were asked\n")


def test_a_broker_that_cannot_store_messages_is_an_error(world) -> None:
    disk = FaultyFiles(MemoryFiles())
    world.add_broker("broker-b", "10.0.0.3", store={"files": disk})
    assert world.rmqadmin("health").status == 0
    disk.faults.append(Fault("pwrite", "probe", errno.EIO))
    world.wait_for(lambda: world.rmqadmin("health").status == 1)
    (problem,) = json.loads(world.rmqadmin("health --output json").out)["problems"]
    assert problem["where"] == "broker-b 0 (10.0.0.3:10911)"
    assert problem["what"].startswith("it cannot store messages: ")
    disk.faults.clear()
    world.wait_for(lambda: world.rmqadmin("health").status == 0)


def test_what_is_no_problem() -> None:
    assert not list(judge("broker-a", 0, {"commitLogDiskRatio": "x", "brokerActive": "true"}))
    # Slaves are never active.
    assert not list(judge("broker-a", 1, {"brokerActive": "false"}))
    assert not list(judge_slaves("broker-a", 2, None))


def test_slaves_that_are_behind_or_away() -> None:
    slave = HAConnectionInfo(addr="10.0.0.9:1", diff=7, in_sync=False)
    problems = list(judge_slaves("broker-a", 2, HARuntimeInfo(ha_connection_info=[slave])))
    assert [problem.what for problem in problems] == [
        "2 slaves are registered, and only 1 of them copies the log",
        "the slave 10.0.0.9:1 is 7 bytes behind",
    ]


@pytest.fixture
def lone_slave(world):
    """A master and its slave, which does not reach the master's log."""
    world.network.close("10.0.0.2:10912")
    world.add_broker("broker-a", "10.0.0.3", broker_id=1, store={"broker_role": "SLAVE"})
    return world


def problems(world) -> list[str]:
    return [row["what"] for row in world.rmqadmin("health --output json").json["problems"]]


def test_a_slave_that_copies_nothing_is_a_warning(lone_slave) -> None:
    assert problems(lone_slave) == ["1 slave is registered, and it does not copy the log"]


def test_slaves_of_a_dledger_group_have_no_links_to_their_master(lone_slave) -> None:
    force_setattr(lone_slave.hosts[A].store_config, "enable_dledger_commit_log", True)
    assert problems(lone_slave) == []


#: What health says that it does not know.
SLAVES = "its slaves could not be asked for: "
CONFIG = "its configuration could not be asked for: "


@pytest.mark.parametrize(
    ("code", "answer", "said"),
    [
        (RequestCode.GET_BROKER_HA_STATUS, refuse, SLAVES + "answered 1: no such thing here"),
        (RequestCode.GET_BROKER_HA_STATUS, hang_up, SLAVES + "does not answer: 10.0.0.2:10911"),
        (RequestCode.GET_BROKER_CONFIG, refuse, CONFIG + "answered 1: no such thing here"),
        (RequestCode.GET_BROKER_CONFIG, hang_up, CONFIG + "does not answer: 10.0.0.2:10911"),
    ],
)
def test_an_error_about_a_master_does_not_end_the_look(
    lone_slave, code: int, answer: Handler, said: str
) -> None:
    lone_slave.add_broker("broker-b", "10.0.0.4", store={"broker_role": "SYNC_MASTER"})
    lone_slave.let_answer(A, code, answer)
    lone_slave.let_answer("10.0.0.4:10911", RequestCode.GET_BROKER_RUNTIME_INFO, refuse)
    outcome = lone_slave.rmqadmin("health")
    assert outcome.err == ""
    assert said in outcome.out, outcome.out
    assert "broker-b 0 (10.0.0.4:10911)" in outcome.out
