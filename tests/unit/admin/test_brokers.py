"""Brokers: their state, what comes and goes, what they clean, what of them is exported."""

from __future__ import annotations

import json
import platform

import pytest

from rocketmq_tw.admin.refused import COMMANDS as REFUSED
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.controller import EpochEntryBody, EpochEntryCache
from rocketmq_tw.wire.codes import RequestCode

A, B = "10.0.0.2:10911", "10.0.0.3:10911"


@pytest.fixture
def topic(world):
    """Two brokers, a topic, a group that has consumed one of its two messages."""
    world.add_broker("broker-b", "10.0.0.3")
    world.rmqadmin("updateTopic -t T -c DefaultCluster -r 1 -w 1")
    world.rmqadmin("sendMessage -t T -p x -b broker-a -i 0")
    consumer = world.consume("billing", "T")
    offsets = world.brokers["broker-a"].offsets
    world.wait_for(lambda: offsets.query("billing", "T", 0) == 1)
    world.result(consumer.stop())
    world.rmqadmin("sendMessage -t T -p y -b broker-a -i 0")
    return world


def test_the_state_of_brokers(topic) -> None:
    world = topic
    (found,) = world.rmqadmin(f"brokerStatus -b {A} --output json").json["brokers"]
    assert (found["address"], found["error"]) == (A, None)
    assert found["status"]["brokerVersionDesc"]
    assert found["status"]["pythonVersion"].startswith(platform.python_version())
    both = world.rmqadmin("brokerStatus -c DefaultCluster --output json").json["brokers"]
    assert [one["address"] for one in both] == [A, B]
    assert f"Name at {B}" in world.rmqadmin("brokerStatus -c DefaultCluster").out


#: What looks at several brokers.
LOOKS = (
    "brokerStatus -c DefaultCluster",
    "haStatus -c DefaultCluster",
    "getBrokerConfig -c DefaultCluster",
    "getColdDataFlowCtrInfo -c DefaultCluster",
    "getBrokerEpoch -c DefaultCluster",
    "getConsumerConfig -g billing",
)


def let_tell_epochs(world, address: str) -> None:
    """A broker in controller mode says which reigns its log has; others refuse."""

    def epochs(request, peer):
        cache = EpochEntryCache(broker_name="told", epoch_list=[EpochEntryBody(epoch=1)])
        return request.response(body=encode_body(cache))

    world.let_answer(address, RequestCode.GET_BROKER_EPOCH_CACHE, epochs)


@pytest.mark.parametrize("dead", [A, B])
@pytest.mark.parametrize("command", LOOKS)
def test_a_broker_that_is_down_hides_no_other_one(topic, command: str, dead: str) -> None:
    world = topic
    world.rmqadmin("updateSubGroup -g billing -c DefaultCluster")
    living = ({A, B} - {dead}).pop()
    let_tell_epochs(world, living)
    world.network.stop(dead)
    outcome = world.rmqadmin(f"{command} --output json")
    rows = outcome.partial["brokers"]
    assert outcome.err.startswith(f"rmqadmin: {dead}: ") and outcome.err.count("\n") == 1
    if command.startswith("getConsumerConfig"):
        assert len(rows) == 1
    else:
        assert [row["address"] for row in rows] == [A, B]
        problems = {row["address"]: row["error"] for row in rows}
        assert problems == {living: None, dead: outcome.err.removeprefix("rmqadmin: ").strip()}
    assert world.rmqadmin(command).out
    world.network.stop(living)
    outcome = world.rmqadmin(command)
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err.startswith("rmqadmin: 10.0.0.") and outcome.err.count("\n") == 1


@pytest.mark.parametrize("command", [look for look in LOOKS if "-c" in look])
def test_a_broker_whose_answer_cannot_be_read_hides_no_other_one(topic, command: str) -> None:
    world = topic
    let_tell_epochs(world, B)
    codes = (
        RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.GET_BROKER_HA_STATUS,
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.GET_COLD_DATA_FLOW_CTR_INFO,
        RequestCode.GET_BROKER_EPOCH_CACHE,
    )
    unreadable = dict.fromkeys(codes, lambda request, peer: request.response(body=b"\xff"))
    world.network.serve(A, {**world.hosts[A].handlers, **unreadable})
    outcome = world.rmqadmin(f"{command} --output json")
    first, second = outcome.partial["brokers"]
    assert (second["address"], second["error"]) == (B, None)
    assert first["error"].startswith(A)
    assert outcome.err == f"rmqadmin: {first['error']}\n"


def test_all_groups_of_a_broker(topic) -> None:
    world = topic

    def behind(arguments: str = ""):
        found = world.rmqadmin(f"brokerConsumeStats -b {A} {arguments} --output json").json
        return [
            (row["group"], row["queueId"], row["brokerOffset"], row["consumerOffset"], row["diff"])
            for row in found["queues"]
            if row["topic"] == "T"
        ]

    assert behind() == [("billing", 0, 2, 1, 1)]
    assert behind("-l 1") == [("billing", 0, 2, 1, 1)]
    assert behind("-l 2") == []
    assert behind("-o true") == []
    assert world.rmqadmin(f"brokerConsumeStats -b {A}").lines[-1][:2] == ["Diff", "total:"]


def test_what_comes_and_goes(topic) -> None:
    world = topic
    world.wait_for(
        lambda: world.rmqadmin("statsAll -t T --output json").json["topics"][0]["inDay"] == 2
    )
    (row,) = world.rmqadmin("statsAll -t T --output json").json["topics"]
    assert (row["topic"], row["group"], row["diffTotal"]) == ("T", "billing", 1)
    assert row["outDay"] == 1
    active = world.rmqadmin("statsAll -a --output json").json["topics"]
    every = world.rmqadmin("statsAll --output json").json["topics"]
    assert "T" in [row["topic"] for row in active]
    assert len(active) < len(every)
    assert "no name server knows the topic nix" in world.rmqadmin("statsAll -t nix").err


@pytest.mark.parametrize(
    "command", ["cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"]
)
def test_brokers_clean(topic, command: str) -> None:
    world = topic
    if command != "cleanExpiredCQ":
        outcome = world.rmqadmin(command)
        assert outcome.status == 2
        assert "give --yes" in outcome.err
        command += " --yes"
    for arguments, addresses in ((f"-b {B}", [B]), ("-c DefaultCluster", [A, B]), ("", [A, B])):
        done = world.rmqadmin(f"{command} {arguments} --output json").json
        assert done == {"brokers": addresses}
    assert "give one of -b" in world.rmqadmin(f"{command} -b {A} -c DefaultCluster").err
    assert "there is no cluster nix" in world.rmqadmin(f"{command} -c nix").err


def test_a_slave_is_told_how_far_its_master_has_flushed(world) -> None:
    outcome = world.rmqadmin(f"resetMasterFlushOffset -b {A} -o 7")
    assert outcome.out == f"{A} takes it that its master has flushed up to 7\n"
    assert "give -b" in world.rmqadmin("resetMasterFlushOffset -o 0").err


def test_pops_are_brought_back(topic) -> None:
    world = topic
    done = world.rmqadmin("exportPopRecord -c DefaultCluster --output json").json
    assert done == {"dryRun": False, "brokers": [A, B]}
    outcome = world.rmqadmin(f"exportPopRecord -b {A} -d true")
    assert outcome.out == f"{A} would be told\n"


def test_the_log_is_read_ahead_or_not(topic) -> None:
    world = topic
    done = world.rmqadmin("setCommitLogReadAheadMode -c DefaultCluster -m 1 --output json").json
    assert [row["address"] for row in done["brokers"]] == [A, B]
    assert "mode: 1" in done["brokers"][0]["remark"]
    config = world.rmqadmin(f"getBrokerConfig -b {A} --output json").json["brokers"][0]["config"]
    assert config["dataReadAheadEnable"] == "false"
    assert "is not in the range" in world.rmqadmin(f"setCommitLogReadAheadMode -b {A} -m 7").err


def test_what_brokers_say_of_reading_ahead_is_shown_beside_a_dead_one(topic) -> None:
    topic.network.stop(B)
    outcome = topic.rmqadmin("setCommitLogReadAheadMode -c DefaultCluster -m 1")
    remark, failure = outcome.err.splitlines()
    assert outcome.status == 1
    assert remark.startswith(f"rmqadmin: {A}: ") and "mode: 1" in remark
    assert B in failure


def test_cold_reads_are_limited(topic) -> None:
    world = topic
    world.rmqadmin("updateSubGroup -g billing -c DefaultCluster")
    world.rmqadmin("updateColdDataFlowCtrGroupConfig -c DefaultCluster -g billing -v 1024")

    def limits() -> list[dict[str, str]]:
        found = world.rmqadmin("getColdDataFlowCtrInfo -c DefaultCluster --output json").json
        return [one["info"]["configTable"] for one in found["brokers"]]

    assert limits() == [{"billing": 1024}] * 2
    assert [A, "billing", "1024"] in world.rmqadmin(f"getColdDataFlowCtrInfo -b {A}").lines
    done = world.rmqadmin(f"removeColdDataFlowCtrGroupConfig -b {A} -g billing --yes")
    assert done.out == f"billing has no limit of its own on {A}\n"
    assert limits() == [{}, {"billing": 1024}]


def test_metadata_is_exported(topic, tmp_path) -> None:
    world = topic
    target = tmp_path / "new" / "folder"

    def exported(arguments: str):
        path = world.rmqadmin(f"exportMetadata {arguments} -f {target} --output json").json["path"]
        with open(path, encoding="utf-8") as file:
            return path, json.load(file)

    path, found = exported("-c DefaultCluster")
    assert path == str(target / "metadata.json")
    # Queues are summed up, as mqadmin does.
    assert found["topicConfigTable"]["T"]["readQueueNums"] == 2
    assert set(found["topicConfigTable"]) == {"T"}
    assert set(found["subscriptionGroupTable"]) == {"billing"}
    path, found = exported(f"-b {A} -t -s")
    assert path == str(target / "topic.json")
    assert set(found["topicConfigTable"]) == {"T", "%RETRY%billing"}
    path, found = exported(f"-b {A} -g")
    assert path == str(target / "subscriptionGroup.json")
    assert set(found["subscriptionGroupTable"]) == {"billing"}
    for file in ("/dev/full", path):
        outcome = world.rmqadmin("exportMetadata", "-b", A, "-f", file)
        assert outcome.status != 0 and outcome.err.count("\n") == 1
    assert (
        "-f /dev/full is no directory" in world.rmqadmin(f"exportMetadata -b {A} -f /dev/full").err
    )
    assert "give one of -t and -g" in world.rmqadmin(f"exportMetadata -b {A} -t -g").err


def test_configs_and_metrics_are_exported(topic, tmp_path) -> None:
    world = topic
    world.rmqadmin(f"exportConfigs -c DefaultCluster -f {tmp_path}")
    configs = json.loads((tmp_path / "configs.json").read_text())
    assert configs["clusterScale"] == {
        "namesrvSize": 1,
        "masterBrokerSize": 2,
        "slaveBrokerSize": 0,
    }
    assert configs["brokerConfigs"]["broker-b"]["brokerName"] == "broker-b"
    assert world.rmqadmin(f"exportMetrics -c DefaultCluster -f {tmp_path}").out == (
        f"{tmp_path}/metrics.json is written\n"
    )
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    quota = metrics["evaluateReport"]["broker-a"]["runtimeQuota"]
    assert (quota["topicSize"], quota["groupSize"]) == (1, 1)
    assert set(metrics["totalData"]["totalTps"]) == {
        "totalNormalInTps",
        "totalNormalOutTps",
        "totalTransInTps",
        "totalScheduleInTps",
    }
    (tmp_path / "file").write_text("")
    outcome = world.rmqadmin(f"exportConfigs -c DefaultCluster -f {tmp_path}/file/sub")
    assert outcome.status == 1
    assert "Not a directory" in outcome.err


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_cannot_be_done_says_why(world, name: str) -> None:
    arguments = [
        text for option in REFUSED[name].params if option.required for text in (option.opts[0], "x")
    ]
    outcome = world.rmqadmin(name, *arguments)
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err.startswith(f"rmqadmin: {name}: ")
    assert outcome.err.count("\n") == 1
    if "User" in name or "Acl" in name or name == "updateGlobalWhiteAddr":
        assert "there is no access control yet" in outcome.err


def test_what_cannot_be_done_asks_for_no_option_first(world) -> None:
    for arguments in ("createUser", "createAcl -s x", "updateGlobalWhiteAddr --what"):
        outcome = world.rmqadmin(arguments)
        assert outcome.status == 1
        assert "there is no access control yet" in outcome.err
        assert outcome.err.count("\n") == 1


def test_an_offset_is_reset_with_the_options_of_old(topic) -> None:
    world = topic
    moved = world.rmqadmin("resetOffsetByTimeOld -y -g billing -t T -s 0 --output json").json
    assert {"brokerName": "broker-a", "queueId": 0, "offset": 0} in moved["queues"]
