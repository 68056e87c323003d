"""mqadmin's names and letters, and what is told of a wrong call."""

from __future__ import annotations

import re

import pytest
import rich_click as click
from click.testing import CliRunner

from rocketmq_tw.admin.main import COMMANDS, cli
from rocketmq_tw.admin.tool import Tool
from rocketmq_tw.config.net import TlsConfig

#: Of stock 5.3.3: letter, long name, whether it is required, whether it takes a value. (Stock has
#: a blank at the end of beginTimestamp and endTimestamp.)
STOCK = {
    "clusterList": "m moreStats - flag, i interval - value, c clusterName - value",
    "topicList": "c clusterModel - flag",
    "topicRoute": "t topic required value, l list - flag",
    "topicStatus": "t topic required value, c cluster - value",
    "updateTopic": "b brokerAddr - value, c clusterName - value, a attributes - value,"
    " t topic required value, r readQueueNums - value, w writeQueueNums - value, p perm - value,"
    " o order - value, u unit - value, s hasUnitSub - value",
    "updateStaticTopic": "c clusters - value, b brokers - value, t topic required value,"
    " qn totalQueueNum required value, mf mapFile - value, fr forceReplace - value",
    "remappingStaticTopic": "c clusters - value, b brokers - value, t topic required value,"
    " mf mapFile - value, fr forceReplace - value",
    "deleteTopic": "t topic required value, c clusterName required value",
    "sendMessage": "t topic required value, p body required value, k key - value, c tags - value,"
    " b broker - value, i qid - value, m msgTraceEnable - value",
    "consumeMessage": "t topic required value, b brokerName - value, i queueId - value,"
    " o offset - value, g consumerGroup - value, s beginTimestamp - value,"
    " e endTimestamp - value, c MessageNumber - value",
    "updateSubGroup": "b brokerAddr - value, c clusterName - value, g groupName required value,"
    " s consumeEnable - value, m consumeFromMinEnable - value, d consumeBroadcastEnable - value,"
    " o consumeMessageOrderly - value, q retryQueueNums - value, r retryMaxTimes - value,"
    " p groupRetryPolicy - value, i brokerId - value, w whichBrokerWhenConsumeSlowly - value,"
    " a notifyConsumerIdsChanged - value",
    "deleteSubGroup": "b brokerAddr - value, c clusterName - value, g groupName required value,"
    " r removeOffset - value",
    "getBrokerConfig": "b brokerAddr - value, c clusterName - value",
    "updateBrokerConfig": "b brokerAddr - value, c clusterName - value, a updateAllBroker - value,"
    " k key required value, v value required value",
    "addBroker": "c brokerContainerAddr required value, b brokerConfigPath required value",
    "removeBroker": "c brokerContainerAddr required value, b brokerIdentity required value",
    "haStatus": "c clusterName - value, b brokerAddr - value, i interval - value",
    "getBrokerEpoch": "c clusterName - value, b brokerName - value, i interval - value",
    "getSyncStateSet": "a controllerAddress required value, c clusterName - value,"
    " b brokerName - value, i interval - value",
    "getControllerMetaData": "a controllerAddress required value",
    "electMaster": "a controllerAddress required value, b brokerId required value,"
    " bn brokerName required value, c clusterName required value",
    "cleanBrokerMetadata": "a controllerAddress required value,"
    " b brokerControllerIdsToClean - value, bn brokerName required value, c clusterName - value,"
    " l cleanLivingBroker - flag",
    "getControllerConfig": "a controllerAddress required value",
    "updateControllerConfig": "a controllerAddress required value, k key required value,"
    " v value required value",
    "queryMsgById": "t topic required value, i msgId required value, g consumerGroup - value,"
    " d clientId - value, s sendMessage - value, u unitName - value, f bodyFormat - value,"
    " c cluster - value",
    "consumerStatus": "g consumerGroup required value, i clientId - value, b brokerAddr - value,"
    " s jstack - flag",
    "resetOffsetByTime": "g group required value, t topic required value,"
    " s timestamp required value, f force - value, b broker - value, q queue - value,"
    " o offset - value, c cluster - value",
    "skipAccumulatedMessage": "g group required value, t topic required value, f force - value,"
    " c cluster - value",
    "cloneGroupOffset": "s srcGroup required value, d destGroup required value,"
    " t topic required value, o offline - value",
    "getConsumerConfig": "g groupName required value",
    "consumerProgress": "g groupName - value, t topicName - value, s showClientIP - value,"
    " c cluster - value",
}
#: What all commands have, the way around a question, and what has no letter in stock either.
OURS = {"-n", "--output", "--tls", "--tls-config", "-y", "--attributes"}


def never(name_servers, work, tls):
    raise AssertionError("a wrong call must not reach a server")


@pytest.mark.parametrize("name", STOCK)
def test_commands_have_the_options_of_mqadmin(name: str) -> None:
    (command,) = [command for command in COMMANDS if command.name == name]
    options = {}
    for option in command.params:
        assert isinstance(option, click.Option)
        options[option.opts[0]] = option
    wanted = [text.split() for text in STOCK[name].split(",")]
    assert set(options) - OURS == {f"-{letter}" for letter, *_ in wanted}
    for letter, long_name, required, value in wanted:
        option = options[f"-{letter}"]
        assert option.opts == [f"-{letter}", f"--{long_name}"]
        assert option.required == (required == "required")
        assert option.is_flag == (value == "flag")


def test_all_commands_are_there() -> None:
    assert sorted(cli.commands) == sorted(STOCK)


@pytest.mark.parametrize("arguments", [[], ["-h"], *([name, "-h"] for name in STOCK)])
def test_help_is_shown(arguments: list[str]) -> None:
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0
    assert "--namesrvAddr" in result.output
    assert "--output" in result.output


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("nope", "No such command 'nope'"),
        ("topicRoute", "Missing option '-t'"),
        ("clusterList -i 0", "-i"),
        ("haStatus", "give one of -b"),
        ("addBroker -b f", "Missing option '-c'"),
        ("addBroker -c nowhere -b f", "'nowhere' is no address: give host:port"),
        ("haStatus -b nowhere", "-b: 'nowhere' is no address: give host:port"),
        ("getBrokerConfig -b nowhere", "-b: 'nowhere' is no address: give host:port"),
        ("updateTopic -t T", "give one of -b, a broker's address, and -c, a cluster's name"),
        ("updateTopic -t T -b a:1 -c C", "give one of -b"),
        ("updateTopic -t T -b nowhere", "-b: 'nowhere' is no address: give host:port"),
        ("updateTopic -t a/b -c C", "'a/b' has an illegal character"),
        ("updateTopic -t T -c C -p 8", "8 is not in the range 0<=x<=7"),
        ("updateTopic -t T -c C -o maybe", "'maybe' is not a valid boolean"),
        ("updateTopic -t T -c C -a x=1", "'x=1': give +name=value to set one, -name to drop it"),
        ("updateTopic -t T -c C -a +x=1,-x", "an attribute is named twice"),
        ("updateSubGroup -g G", "give one of -b, a broker's address, and -c, a cluster's name"),
        ("updateSubGroup -g G -b nowhere", "-b: 'nowhere' is no address: give host:port"),
        ("updateSubGroup -g a/b -c C", "'a/b' has an illegal character"),
        ("updateSubGroup -g G -c C -q -1", "-1 is not in the range x>=0"),
        ("updateSubGroup -g G -c C -p nix", "no JSON of a retry policy"),
        ('updateSubGroup -g G -c C -p {"type":"X"}', "'X' is none of EXPONENTIAL, CUSTOMIZED"),
        ('updateSubGroup -g G -c C -p {"customizedRetryPolicy":1}', "no JSON of a retry policy"),
        ("updateSubGroup -g G -c C --attributes x=1", "'x=1': give +name=value to set one"),
        ("deleteSubGroup -g G", "give one of -b"),
        ("getBrokerConfig", "give one of -b"),
        ("updateBrokerConfig -k k -v v", "give one of -b"),
        ("updateBrokerConfig -k k -v v -b a:1 -a true", "-a is about a cluster"),
        ("sendMessage -t T -p x -i 1", "-i names a queue of one broker: name that with -b"),
        ("sendMessage -t T -p x -m true", "messages cannot be traced"),
        ("consumeMessage -t T -i 1", "-i names a queue of one broker: name that with -b"),
        ("consumeMessage -t T -b a -o 1", "-o is an offset of one queue: name that with -b and -i"),
        ("consumeMessage -t T -s yesterday", "give milliseconds since 1970 or yyyy-MM-dd#HH:mm:ss"),
        ("consumeMessage -t T -e 99999999999999", "is not between 1970 and now"),
        ("consumeMessage -t T -s 2 -e 1", "-s is after -e"),
        ("consumeMessage -t T -g a/b", "'a/b' has an illegal character"),
        ("consumerProgress -t T", "-t and -s are about one group: name that with -g"),
    ],
)
def test_a_wrong_call_is_told_in_one_line(world, arguments: str, line: str) -> None:
    outcome = world.bare(["-n", "10.0.0.1:9876", *arguments.split()], Tool(never))
    assert outcome.status == 2
    assert outcome.out == ""
    assert outcome.err.startswith("rmqadmin: ")
    assert outcome.err.count("\n") == 1
    assert line in outcome.err
    assert outcome.err.endswith("-h shows the options)\n")


@pytest.mark.parametrize("address", ["localhost", "localhost:0", "a:1;b:x"])
def test_a_wrong_name_server_is_told(world, address: str) -> None:
    outcome = world.bare(["topicList", "-n", address], Tool(never))
    assert outcome.status == 2
    assert "give host:port" in outcome.err


def test_without_name_servers_it_says_how_to_name_them(world, monkeypatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    outcome = world.bare(["topicList"], Tool(never))
    assert outcome.status == 2
    assert "add -n host:port or set NAMESRV_ADDR" in outcome.err


def test_name_servers_come_from_the_command_the_group_or_the_environment(
    world, monkeypatch
) -> None:
    asked = []

    def note(name_servers, work, tls):
        asked.append(name_servers)
        return world.run(world.names, work, tls)

    monkeypatch.setenv("NAMESRV_ADDR", "env:1")
    for arguments in (
        ["-n", "group:1", "topicList", "-n", "command:1"],
        ["-n", "group:1", "topicList"],
        ["topicList"],
    ):
        assert world.bare(arguments, Tool(note)).status == 0
    assert asked == ["command:1", "group:1", "env:1"]


def test_tls_comes_from_the_command_the_group_or_the_environment(
    world, monkeypatch, tmp_path
) -> None:
    file = tmp_path / "tls.properties"
    file.write_text("tls.test.mode.enable=false\ntls.client.certPath=/c.pem\n")
    seen = []
    for arguments in (
        ["--tls", "topicList"],
        ["topicList", "--tls"],
        ["topicList", "--tls", "--tls-config", str(file)],
        ["--tls-config", str(file), "topicList", "--tls"],
        ["topicList"],
    ):
        assert world.bare(["-n", world.names, *arguments], Tool(world.run)).status == 0
        seen.append(world.tls)
    checked = TlsConfig(test_mode_enable=False, client_cert_path="/c.pem")
    assert seen == [TlsConfig(), TlsConfig(), checked, checked, None]
    for name, value, tls in (
        ("TLS_ENABLE", "true", TlsConfig()),
        ("TLS_CONFIG_FILE", str(file), checked),
    ):
        monkeypatch.setenv(name, value)
        world.rmqadmin("topicList")
        assert world.tls == tls


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("tls.client.trustCertPth=/x\n", ":1: tls.client.trustCertPth is no known key: did you"),
        ("tls.client.authServer=maybe\n", ":1: tls.client.authServer=maybe: give true or false"),
        (None, ": No such file or directory"),
    ],
)
def test_a_wrong_tls_configuration_is_told(world, tmp_path, text, line: str) -> None:
    file = tmp_path / "tls.properties"
    if text is not None:
        file.write_text(text)
    outcome = world.bare(["topicList", "--tls-config", str(file)], Tool(never))
    assert outcome.status == 2
    assert f"{file}{line}" in outcome.err


def test_output_is_chosen_before_or_after_the_command(world) -> None:
    for arguments in (["--output", "json", "topicList"], ["topicList", "--output", "json"]):
        assert world.rmqadmin(*arguments).json["topics"]
    table = world.rmqadmin("--output", "json", "topicList", "--output", "table")
    assert table.out.startswith("BenchmarkTest\n")


@pytest.mark.parametrize(
    "command", ["clusterList -n 10.0.0.2:10911", "updateTopic -t T -b 10.0.0.1:9876"]
)
def test_a_server_of_the_other_kind_is_told_apart(world, command: str) -> None:
    outcome = world.rmqadmin(command)
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err.endswith("is not supported: -n names name servers, -b a broker\n")


def test_the_help_of_a_switch_says_what_it_takes() -> None:
    result = CliRunner().invoke(cli, ["updateTopic", "-h"])
    assert len(re.findall(r"-[ous] +true\|false", result.output)) == 3, result.output
