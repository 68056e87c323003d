"""Values, configuration, write permissions and orders of topics on name servers."""

from __future__ import annotations

import pytest

from rocketmq_tw.config.namesrv import NamesrvConfig
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.namesrv.namesrv import NameServer
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand


def test_a_value_is_set_and_deleted(world) -> None:
    outcome = world.rmqadmin("updateKvConfig -s space -k key -v value --output json")
    assert outcome.json == {
        "namespace": "space",
        "key": "key",
        "value": "value",
        "nameServers": ["10.0.0.1:9876"],
    }
    outcome = world.rmqadmin("deleteKvConfig -s space -k key")
    assert (outcome.status, outcome.out) == (2, "")
    assert "give --yes" in outcome.err
    outcome = world.rmqadmin("deleteKvConfig -s space -k key --yes")
    assert outcome.out == "space key is deleted from 10.0.0.1:9876\n"
    outcome = world.rmqadmin("deleteKvConfig -s space -k key --yes")
    assert outcome.err == "rmqadmin: the namespace space has no key key\n"


def test_the_configuration_is_shown_and_changed(world) -> None:
    assert world.rmqadmin("updateNamesrvConfig -k orderMessageEnable -v true").out == (
        "orderMessageEnable=true on 10.0.0.1:9876\n"
        "10.0.0.1:9876: the change is in the file of configStorePath: no start reads it unless -c"
        " names it\n"
    )
    (shown,) = world.rmqadmin("getNamesrvConfig --output json").json["nameServers"]
    assert shown["address"] == "10.0.0.1:9876"
    assert shown["config"]["orderMessageEnable"] == "true"
    assert ["orderMessageEnable", "true"] in world.rmqadmin("getNamesrvConfig").lines
    outcome = world.rmqadmin("updateNamesrvConfig -k orderMessageEnabl -v true")
    assert outcome.status == 1
    assert "orderMessageEnable" in outcome.err


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("clusterList", RequestCode.GET_BROKER_CLUSTER_INFO),
        ("topicList", RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
        ("topicRoute -t T", RequestCode.GET_ROUTEINFO_BY_TOPIC),
        ("sendMessage -t T -p x", RequestCode.GET_ROUTEINFO_BY_TOPIC),
    ],
)
def test_a_name_server_whose_answer_cannot_be_read_is_named(world, command: str, code: int) -> None:
    def garbled(request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        return request.response(body=b'{"half')

    world.network.serve(world.names, {**world.name_server.handlers, code: garbled})
    outcome = world.rmqadmin(command)
    assert (outcome.status, outcome.err.count("\n")) == (1, 1)
    assert outcome.err.startswith(f"rmqadmin: {world.names}: its answer cannot be read, ")
    assert "look which server, and of which version, listens there" in outcome.err


def test_a_broker_loses_its_write_permission_and_gets_it_back(world) -> None:
    world.rmqadmin("updateTopic -t T -c DefaultCluster")

    def permission() -> int:
        route = world.rmqadmin("topicRoute -t T --output json").json
        return route["queueDatas"][0]["perm"]

    wiped = world.rmqadmin("wipeWritePerm -b broker-a --yes --output json").json
    assert wiped["brokerName"] == "broker-a"
    (row,) = wiped["nameServers"]
    assert row["address"] == "10.0.0.1:9876"
    assert row["topics"] >= 1
    assert permission() == 4
    assert wiped["remarks"]["10.0.0.1:9876"].startswith("it holds until the broker registers")
    given, remark = world.rmqadmin("addWritePerm -b broker-a").out.splitlines()
    assert "may be written to again, as name server 10.0.0.1:9876 tells" in given
    assert remark.startswith("10.0.0.1:9876: it holds until the broker registers again, as its")
    assert permission() == 6
    outcome = world.rmqadmin("addWritePerm -b nix")
    assert outcome.err == "rmqadmin: no broker is called nix; there are: broker-a\n"


@pytest.mark.parametrize(
    ("command", "look", "shown"),
    [
        ("updateKvConfig -s s -k k -v v", "deleteKvConfig -s s -k k --yes", "s k is deleted"),
        (
            "updateNamesrvConfig -k orderMessageEnable -v true",
            "getNamesrvConfig --output json",
            '"orderMessageEnable":"true"',
        ),
        ("wipeWritePerm -b broker-a --yes", "topicRoute -t T", "4 (R)"),
        ("updateOrderConf -t T -m put -v broker-a:4", "updateOrderConf -t T -m get", "broker-a:4"),
    ],
)
def test_name_servers_behind_one_that_is_down_are_told(
    world, command: str, look: str, shown: str
) -> None:
    world.rmqadmin("updateTopic -t T -c DefaultCluster")
    outcome = world.rmqadmin(command, name_servers=f"10.0.0.8:9876;{world.names}")
    assert (outcome.status, outcome.out) == (1, "")
    failed = outcome.err.splitlines()[-1]
    assert failed.startswith("rmqadmin: 10.0.0.8:9876: ")
    assert failed.endswith(f"; done on {world.names}")
    assert shown in world.rmqadmin(look).out


@pytest.mark.parametrize(
    ("command", "remark"),
    [
        ("updateNamesrvConfig -k orderMessageEnable -v true", "the change is in the file of conf"),
        ("wipeWritePerm -b broker-a --yes", "it holds until the broker registers again"),
    ],
)
def test_what_is_said_of_a_change_is_told_where_another_one_is_down(
    world, command: str, remark: str
) -> None:
    outcome = world.rmqadmin(command, name_servers=f"10.0.0.8:9876;{world.names}")
    assert (outcome.status, outcome.out) == (1, "")
    told, failed = outcome.err.splitlines()
    assert told.startswith(f"rmqadmin: {world.names}: {remark}")
    assert failed.startswith("rmqadmin: 10.0.0.8:9876: ")
    assert failed.endswith(f"; done on {world.names}")


def test_a_value_that_one_name_server_has_kept_is_deleted_there(world) -> None:
    empty, nowhere = "10.0.0.8:9876", "10.0.0.9:9876"
    other = NameServer(world.reactor, MemoryFiles(), NamesrvConfig(kv_config_path="/kv.json"))
    world.network.serve(empty, other.handlers)
    world.rmqadmin("updateKvConfig -s space -k key -v value")
    both = f"{empty};{world.names}"
    outcome = world.rmqadmin("deleteKvConfig -s space -k key --yes", name_servers=both)
    assert outcome.status == 0, outcome.err
    outcome = world.rmqadmin("deleteKvConfig -s space -k key --yes", name_servers=both)
    assert outcome.err == "rmqadmin: the namespace space has no key key\n"
    outcome = world.rmqadmin("deleteKvConfig -s space -k key --yes", name_servers=nowhere)
    assert outcome.err.startswith(f"rmqadmin: {nowhere}: cannot connect")


def busy(request, peer):
    return request.response(ResponseCode.SYSTEM_BUSY, "later")


@pytest.mark.parametrize("fails", ["is down", "is busy"])
def test_a_name_server_that_may_have_a_value_is_told_of(world, fails: str) -> None:
    away = "10.0.0.8:9876"
    if fails == "is busy":
        world.network.serve(away, {**world.name_server.handlers, RequestCode.GET_KV_CONFIG: busy})
    both = f"{away};{world.names}"
    for command, conclusion in (
        ("deleteKvConfig -s space -k key --yes", "the namespace space has no key key"),
        ("updateOrderConf -t T -m get", "topic T has no order configuration"),
    ):
        outcome = world.rmqadmin(command, name_servers=both)
        assert (outcome.status, outcome.out) == (1, "")
        told, failed = outcome.err.splitlines()
        assert told.startswith(f"rmqadmin: {away}")
        assert failed.startswith(f"rmqadmin: without {away}, which may know more: {conclusion}")
    world.rmqadmin("updateOrderConf -t T -m put -v broker-a:4")
    outcome = world.rmqadmin("updateOrderConf -t T -m get", name_servers=both)
    assert (outcome.out, outcome.err) == ("topic T: broker-a:4\n", "")


def test_a_name_server_that_is_down_hides_no_configuration(world) -> None:
    away = "10.0.0.8:9876"
    outcome = world.rmqadmin("getNamesrvConfig --output json", name_servers=f"{away};{world.names}")
    dead, alive = outcome.partial["nameServers"]
    assert (dead["address"], dead["config"]) == (away, {})
    assert dead["error"].startswith(f"{away}: cannot connect")
    assert (alive["config"]["orderMessageEnable"], alive["error"]) == ("false", None)
    assert outcome.err.startswith(f"rmqadmin: {away}: cannot connect")
    outcome = world.rmqadmin("getNamesrvConfig", name_servers=away)
    assert (outcome.status, outcome.out) == (1, "")


def test_what_all_refuse_is_told_once(world) -> None:
    world.network.serve("10.0.0.8:9876", world.name_server.handlers)
    outcome = world.rmqadmin(
        "updateNamesrvConfig -k nix -v true", name_servers=f"10.0.0.8:9876;{world.names}"
    )
    assert outcome.status == 1
    assert outcome.err.startswith(f"rmqadmin: 10.0.0.8:9876, {world.names} answered ")
    assert outcome.err.count("nix") == 1


def test_the_order_of_a_topic(world) -> None:
    def order(arguments: str):
        return world.rmqadmin(f"updateOrderConf -t T {arguments} --output json")

    assert order("-m put -v broker-a:4").json == {"topic": "T", "orderConf": "broker-a:4"}
    assert order("-m get").json == {"topic": "T", "orderConf": "broker-a:4"}
    assert "give --yes" in order("-m delete").err
    assert order("-m delete --yes").json == {"topic": "T", "orderConf": None}
    for method in ("get", "delete --yes"):
        assert "topic T has no order configuration" in order(f"-m {method}").err


@pytest.mark.parametrize("order", ["nonsense", "broker-a", "broker-a:x", ";", "a:1;b"])
def test_a_wrong_order_is_refused(world, order: str) -> None:
    outcome = world.rmqadmin("updateOrderConf -t T -m put -v", order)
    assert outcome.status == 2
    assert f"-v {order}: give broker:queues, several with ';' between them" in outcome.err


@pytest.mark.parametrize("arguments", ["-m put", "-m get -v x:1"])
def test_an_order_goes_with_put(world, arguments: str) -> None:
    outcome = world.rmqadmin(f"updateOrderConf -t T {arguments}")
    assert outcome.status == 2
    assert "-v goes with -m put" in outcome.err
