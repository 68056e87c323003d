"""What every command has: forms of output, contexts, plans of changes, looks again and again."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from rocketmq_tw.admin.commands import MODULES, load
from rocketmq_tw.admin.main import main
from rocketmq_tw.admin.output import Column, Listing, Report, show_yaml
from rocketmq_tw.admin.settings import FILE_VARIABLE, Access
from rocketmq_tw.admin.tool import Tool
from rocketmq_tw.client.commands import Credentials
from rocketmq_tw.config.namesrv import NamesrvConfig
from rocketmq_tw.config.net import TlsConfig
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.namesrv.namesrv import NameServer
from tests.support.interpreter import IS_CPYTHON

NOWHERE = "10.9.9.9:9876"


@pytest.fixture
def contexts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where contexts are kept; there are none."""
    file = tmp_path / "folder" / "contexts.yaml"
    monkeypatch.setenv(FILE_VARIABLE, str(file))
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    return file


def call(world: Any, command: str) -> Any:
    return world.bare(command.split(), Tool(world.run))


def test_the_version_is_shown(world) -> None:
    outcome = call(world, "--version")
    assert outcome.status == 0
    assert outcome.out.startswith("rmqadmin 0.")


@pytest.mark.parametrize(
    "keys", ["tls.server.mode=enforcing", "listenPort=10911\nbrokerName=b", ""]
)
def test_a_file_that_says_nothing_of_clients_is_refused(world, tmp_path: Path, keys: str) -> None:
    """A connection that trusts anybody would be taken for one that looks at who answers."""
    file = tmp_path / "broker.conf"
    file.write_text(keys)
    outcome = call(world, f"--tls-config {file} clusterList -n {world.names}")
    assert outcome.status == 2
    assert "no key that begins with tls.client." in outcome.err
    assert "tls.client.authServer=true" in outcome.err


def test_a_trust_path_alone_is_warned_of(world, tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    file.write_text("tls.client.trustCertPath=/ca.pem\n")
    outcome = call(world, f"--tls-config {file} topicList -n {world.names}")
    assert outcome.status == 0
    (line,) = outcome.err.splitlines()
    assert "/ca.pem alone checks nobody" in line
    assert "set tls.client.authServer=true and tls.test.mode.enable=false" in line


@pytest.mark.parametrize("command", ["updateTopic -t T -c C -r x", "store dump log /tmp --count x"])
def test_a_number_that_is_none_is_told_in_plain_words(world, command: str) -> None:
    outcome = call(world, command)
    assert outcome.status == 2
    assert "'x' is not a valid whole number" in outcome.err


# Output


def test_yaml_says_what_json_says(world) -> None:
    for command in ("clusterList", "getNamesrvConfig", "topicRoute -t BenchmarkTest"):
        first, second = (world.rmqadmin(f"{command} --output {form}") for form in ("yaml", "json"))
        assert first.out.startswith("---\n")
        found, wanted = yaml.safe_load(first.out), second.json
        if command == "clusterList":
            for rows in (found, wanted):
                rows["brokers"][0]["hours"] = None
        assert found == wanted


def test_yaml_acts_on_no_terminal_and_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("a\x1b[31m\x9b31m\x7f\u202eü🚀", "ü🚀", "true", "- no list", "two\nlines"):
        show_yaml(Report({"text": text}))
        out = capsys.readouterr().out
        assert "".join(out.split("\n")).isprintable()
        assert yaml.safe_load(out) == {"text": text}


def test_a_wide_table_has_everything(world) -> None:
    world.rmqadmin("sendMessage", "-t", "T", "-p", "x" * 500, "-k", "key")
    narrow = world.rmqadmin("consumeMessage -t T").out
    wide = world.rmqadmin("consumeMessage -t T --output wide").out
    assert "x" * 500 not in narrow and "offsetMessageId" not in narrow
    assert "x" * 500 in wide and "offsetMessageId" in wide
    assert '"KEYS":"key"' in wide


def test_a_wide_table_of_rows_with_different_keys(world) -> None:
    rows = [{"a": 1}, {"a": 2, "b": [1, 2], "c": None}]
    tool = Tool(world.run)
    tool.given = tool.given.over(type(tool.given)(output="wide"))
    tool.show(Report(rows, [Listing([Column("A", "a")], rows)]))
    out = world._capsys.readouterr().out
    assert out.split("\n")[0].split() == ["A", "b", "c"]
    assert "[1,2]" in out


# Contexts


def test_a_context_names_servers_tls_and_output(world, contexts: Path) -> None:
    assert "no name server is given" in call(world, "topicList").err
    made = call(world, f"context add test -n {world.names} --tls --output json")
    assert json.loads(made.out) == {"current": "test", "contexts": ["test"]}
    assert stat.S_IMODE(contexts.stat().st_mode) == 0o600
    outcome = call(world, "topicList")
    assert json.loads(outcome.out)["topics"]
    assert world.access.tls == TlsConfig()
    # What is given wins.
    assert call(world, "topicList --output table").out.startswith("BenchmarkTest\n")


def test_a_context_keeps_what_is_not_given_again(world, contexts: Path, tmp_path: Path) -> None:
    account = tmp_path / "tools.yml"
    account.write_text("accessKey: a\nsecretKey: b\n")
    call(world, f"context add test -n {NOWHERE} --tls --credentials {account} --output json")
    plan = call(world, f"context add test -n {world.names} --output table --dry-run")
    again = call(world, f"context add test -n {world.names} --output table")
    assert again.status == 0 and "the current context is test" in again.out
    told = f"keeps what is not given: tls True, credentials {account}; context remove drops"
    assert told in again.err and told in plan.err
    row = json.loads(call(world, "context list --output json").out)["contexts"][0]
    assert row["nameServers"] == world.names
    assert (row["tls"], row["credentials"], row["output"]) == (True, str(account), "table")
    call(world, "context remove test --yes")
    assert call(world, f"context add test -n {world.names}").err == ""
    assert call(world, "topicList").status == 0 and world.access.tls is None


@pytest.mark.parametrize("option", ["-n", "--context", "--tls-config"])
@pytest.mark.parametrize("value", ["", " "])
def test_an_empty_option_is_not_passed_over(
    world, contexts: Path, monkeypatch, option: str, value: str
) -> None:
    call(world, f"context add here -n {world.names}")
    monkeypatch.setenv("NAMESRV_ADDR", world.names)
    for arguments in ([option, value, "topicList"], ["topicList", option, value]):
        outcome = world.bare(arguments, Tool(world.run))
        assert outcome.status == 2
        assert f"{option} is empty: give " in outcome.err
        assert len(outcome.err.splitlines()) == 1
    monkeypatch.setenv("NAMESRV_ADDR", "")
    assert call(world, "topicList").status == 0


def test_contexts_are_chosen_and_removed(world, contexts: Path, monkeypatch) -> None:
    call(world, f"context add away -n {NOWHERE}")
    call(world, f"context add here -n {world.names}")
    assert "cannot connect" in call(world, "topicList").err or (
        "no name server answers" in call(world, "topicList").err
    )
    assert call(world, "topicList --context here").status == 0
    assert call(world, "--context here topicList").status == 0
    monkeypatch.setenv("NAMESRV_ADDR", world.names)
    # A variable counts more than the current context, and less than one that is named.
    assert call(world, "topicList").status == 0
    assert call(world, "topicList --context away").status == 1
    monkeypatch.delenv("NAMESRV_ADDR")
    monkeypatch.setenv("RMQADMIN_CONTEXT", "here")
    assert call(world, "topicList").status == 0
    monkeypatch.delenv("RMQADMIN_CONTEXT")
    assert call(world, "context use here").out == "the current context is here\n"
    assert call(world, "topicList").status == 0
    listed = json.loads(call(world, "context list --output json").out)
    assert [(one["name"], one["current"], one["nameServers"]) for one in listed["contexts"]] == [
        ("away", False, NOWHERE),
        ("here", True, world.names),
    ]
    outcome = call(world, "context remove here")
    assert (outcome.status, "give --yes" in outcome.err) == (2, True)
    assert call(world, "context remove here --yes").out == "the current context is none\n"
    outcome = call(world, "context use here")
    assert "there is no context here; there are: away" in outcome.err


#: What Python says of the 30th of February.
DAY = "day is out of range for month" if IS_CPYTHON else "day must be in 1..28"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("contexts: [x", "line 1, column 13: expected ',' or ']', but got '<stream end>': mend"),
        ("contexts: \0", "special characters are not allowed"),
        ("contexts: 2026-02-30", f"contexts.yaml: {DAY}: mend or remove it"),
        ("contexts: 1", "has no contexts by name under the key 'contexts': mend or remove it"),
        ("contexts:", "has no contexts by name under the key 'contexts': mend or remove it"),
        ("- contexts", "has no contexts by name under the key 'contexts': mend or remove it"),
        ("contexts: {}\ncurent: a", "'curent' is no key of it, those are current and contexts"),
        ("contexts: {}\nnull: a", "None is no key of it, those are current and contexts"),
    ],
)
@pytest.mark.parametrize("command", ["topicList", "context list", "context add b -n a:1"])
def test_a_wrong_file_of_contexts_is_told_and_kept(
    world, contexts: Path, command: str, text: str, reason: str
) -> None:
    contexts.parent.mkdir()
    contexts.write_text(text)
    outcome = call(world, command)
    assert outcome.status == 2
    assert outcome.err.count("\n") == 1
    assert str(contexts) in outcome.err and reason in outcome.err
    assert contexts.read_text() == text


def test_an_empty_file_of_contexts_has_none(world, contexts: Path) -> None:
    contexts.parent.mkdir()
    contexts.touch()
    assert "there is no context" in call(world, "context list").err
    assert call(world, f"context add here -n {world.names}").status == 0
    assert call(world, "topicList").status == 0


#: A context to what is wrong with it.
WRONG_CONTEXTS = {
    "1": "it has no settings by name, those are name-servers, tls, tls-config, credentials, output",
    "": "it has no settings by name",
    "[x]": "it has no settings by name",
    "{nameservers: x}": "'nameservers' is no setting of a context, those are name-servers, tls, ",
    "{1: x, a: x}": "1 is no setting of a context",
    "{output: xml}": "output 'xml': give one of table, wide, json, yaml",
    "{name-servers: nowhere}": "name-servers: ",
    '{tls: "false"}': "tls: 'false' is not true or false",
    "{name-servers: 1}": "name-servers: 1 is not a text",
    "{tls-config: [x]}": "tls-config: ['x'] is not a text",
}


@pytest.mark.parametrize("wrong", WRONG_CONTEXTS)
def test_a_wrong_context_locks_no_other_one(world, contexts: Path, wrong: str) -> None:
    contexts.parent.mkdir()
    contexts.write_text(
        f"current: a\ncontexts:\n  a: {wrong}\n  here: {{name-servers: '{world.names}'}}\n"
    )
    told = f"rmqadmin: {contexts}: context a: {WRONG_CONTEXTS[wrong]}"
    mend = "mend it, or rmqadmin context remove a"
    for command in ("topicList", "topicList --context a", "context use a"):
        outcome = call(world, command)
        assert outcome.status == 2
        assert outcome.err.startswith(told) and mend in outcome.err
        assert outcome.err.count("\n") == 1
    assert call(world, "topicList --context here").status == 0
    listed = call(world, "context list --output json")
    (first, second) = listed.json["contexts"]
    assert f"rmqadmin: {first['error']}" == listed.err.strip()
    assert listed.err.startswith(told)
    assert (second["nameServers"], second["error"]) == (world.names, None)
    # Others are written, and what is wrong stays as it was.
    before = yaml.safe_load(contexts.read_text())["contexts"]["a"]
    assert call(world, f"context add away -n {NOWHERE}").status == 0
    assert yaml.safe_load(contexts.read_text())["contexts"]["a"] == before
    assert call(world, "context use here").status == 0
    assert call(world, "topicList").status == 0
    assert call(world, "context remove a --yes").status == 0
    assert call(world, "context list").err == ""


def test_the_wrong_current_context_is_given_anew(world, contexts: Path) -> None:
    contexts.parent.mkdir()
    contexts.write_text("current: a\ncontexts: {a: 1}\n")
    assert call(world, f"context add a -n {world.names}").out == "the current context is a\n"
    assert call(world, "topicList").status == 0


@pytest.mark.parametrize("current", ["b", "1", "[b]"])
def test_a_current_context_that_is_none_is_told(world, contexts: Path, current: str) -> None:
    contexts.parent.mkdir()
    text = f"current: {current}\ncontexts: {{here: {{name-servers: '{world.names}'}}}}\n"
    contexts.write_text(text)
    outcome = call(world, "topicList")
    assert outcome.status == 2
    assert f"{contexts}: the current context " in outcome.err
    assert "is not among them: rmqadmin context use takes another one" in outcome.err
    assert call(world, "topicList --context here").status == 0
    assert call(world, "context use here").status == 0
    assert call(world, "topicList").status == 0


@pytest.mark.parametrize("text", ["contexts: [x", "- contexts", "current: a\ncontexts: {a: 1}"])
def test_who_needs_no_context_is_not_held_up_by_a_wrong_file(
    world, contexts: Path, monkeypatch, tmp_path: Path, text: str
) -> None:
    contexts.parent.mkdir()
    contexts.write_text(text)
    for command in ("", "--help", "--version", "topicList --help", "context --help"):
        outcome = call(world, command)
        assert (outcome.status, outcome.err) == (0, "")
    assert world.rmqadmin("topicList").err == ""
    assert call(world, f"topicList -n {world.names}").err == ""
    monkeypatch.setenv("NAMESRV_ADDR", world.names)
    assert call(world, "topicList").err == ""
    monkeypatch.delenv("NAMESRV_ADDR")
    # The form of output is asked for alone.
    message = "decodeMessageId -i 0A00000200002A9F00000000000000E8"
    assert call(world, f"{message} --output json").err == ""
    outcome = call(world, message)
    assert outcome.status == 0
    assert "10.0.0.2:10911" in outcome.out
    assert outcome.err.startswith(f"rmqadmin: {contexts}") and outcome.err.count("\n") == 1
    store = tmp_path / "store"
    (store / "commitlog").mkdir(parents=True)
    outcome = call(world, f"store repair --yes {store}")
    assert outcome.status == 0
    assert "nothing is wrong, nothing is changed" in outcome.out
    assert outcome.err.startswith(f"rmqadmin: {contexts}") and outcome.err.count("\n") == 1


def test_a_file_of_contexts_that_is_no_text_is_told(world, contexts: Path) -> None:
    contexts.parent.mkdir()
    contexts.write_bytes(b"\xff\xfe")
    assert f"{contexts} is no text in UTF-8: mend or remove it" in call(world, "topicList").err
    contexts.unlink()
    contexts.mkdir()
    assert f"{contexts}: Is a directory: mend or remove it" in call(world, "topicList").err


def test_a_context_without_its_file_locks_no_other_one(
    world, contexts: Path, tmp_path: Path, monkeypatch
) -> None:
    file = tmp_path / "tls.properties"
    file.write_text("tls.client.authServer=false\n")
    monkeypatch.chdir(tmp_path)
    call(world, f"context add here -n {world.names}")
    assert call(world, f"context add bad -n {world.names} --tls-config tls.properties").status == 0
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert call(world, "topicList --context bad").status == 0
    file.unlink()
    outcome = call(world, "topicList --context bad")
    assert outcome.status == 2
    assert f"{contexts}: context bad: tls-config: {file}" in outcome.err
    assert call(world, "topicList").status == 0
    assert call(world, "context use bad").status == 0
    assert f"{contexts}: context bad: tls-config: {file}" in call(world, "topicList").err
    assert "bad" in call(world, "context list").out
    assert call(world, "context remove bad --yes").status == 0
    assert call(world, "topicList --context here").status == 0


def test_a_context_names_a_file_of_credentials(
    world, contexts: Path, tmp_path: Path, monkeypatch
) -> None:
    file = tmp_path / "tools.yml"
    file.write_text("accessKey: me\nsecretKey: hush\n")
    monkeypatch.chdir(tmp_path)
    made = f"context add guarded -n {world.names} --credentials tools.yml"
    assert call(world, made).status == 0
    assert call(world, "topicList").status == 0
    assert world.access.credentials == Credentials("me", "hush")
    listed = json.loads(call(world, "context list --output json").out)
    assert [one["credentials"] for one in listed["contexts"]] == [str(file)]
    assert "hush" not in contexts.read_text()
    file.unlink()
    outcome = call(world, "topicList")
    assert outcome.status == 2
    assert f"{contexts}: context guarded: credentials: {file}: No such file" in outcome.err
    assert call(world, made.replace("guarded", "other")).status == 2
    assert call(world, "context remove guarded --yes").status == 0


def test_a_wrong_context_is_not_made(world, contexts: Path) -> None:
    assert "give host:port" in call(world, "context add x -n nowhere").err
    assert "No such file" in call(world, "context add x -n a:1 --tls-config /no/file").err
    unnamed = world.bare(["context", "add", "", "-n", "a:1"], Tool(world.run))
    assert (unnamed.status, "a context has a name" in unnamed.err) == (2, True)
    assert not contexts.exists()


# Plans


def test_a_plan_shows_what_would_be_sent_and_changes_nothing(world) -> None:
    outcome = world.rmqadmin("updateTopic -t T -c DefaultCluster -o true --dry-run --output json")
    plan = outcome.json
    assert (plan["dryRun"], plan["complete"]) == (True, True)
    assert [(one["request"], one["address"]) for one in plan["requests"]] == [
        ("UPDATE_AND_CREATE_TOPIC", "10.0.0.2:10911"),
        ("PUT_KV_CONFIG", "10.0.0.1:9876"),
    ]
    assert plan["requests"][0]["fields"]["topic"] == "T"
    assert "T" not in world.rmqadmin("topicList").out.split()
    lines = world.rmqadmin("updateBrokerConfig -c DefaultCluster -k a -v b --dry-run").out
    assert "a=b" in lines
    assert "nothing is changed; this would be sent\n" in lines


def test_a_plan_of_a_send_has_names(world) -> None:
    """On the wire they are letters, and properties one text with separators."""
    world.rmqadmin("updateTopic -t T -c DefaultCluster")
    call = "sendMessage -t T -p x -k k1 -c tag --property shop=7 -b broker-a -i 0 --dry-run"
    (request,) = world.rmqadmin(f"{call} --output json").json["requests"]
    fields = request["fields"]
    assert (fields["topic"], fields["queueId"], fields["defaultTopic"]) == ("T", "0", "TBW102")
    properties = fields["properties"]
    assert (properties["KEYS"], properties["TAGS"], properties["shop"]) == ("k1", "tag", "7")
    assert not [name for name in fields if len(name) == 1]
    table = world.rmqadmin(call).out
    assert " topic=T " in table and " properties.shop=7" in table
    assert "\\x01" not in table and " b=T" not in table


def test_a_plan_of_deleting_asks_nothing(world) -> None:
    world.rmqadmin("updateTopic -t T -c DefaultCluster")
    plan = world.rmqadmin("deleteTopic -t T -c DefaultCluster --dry-run --output json").json
    assert {one["request"] for one in plan["requests"]} == {
        "DELETE_TOPIC_IN_BROKER",
        "DELETE_TOPIC_IN_NAMESRV",
    }
    assert "T" in world.rmqadmin("topicList").out.split()


@pytest.mark.parametrize(
    "command",
    ["sendMessage -t T -p x", "wipeWritePerm -b broker-a", "checkMsgSendRT -t T -a 2"],
)
def test_a_plan_ends_where_it_needs_an_answer(world, command: str) -> None:
    world.rmqadmin("updateTopic -t T -c DefaultCluster")
    plan = world.rmqadmin(f"{command} --dry-run --output json").json
    assert (len(plan["requests"]), plan["complete"]) == (1, False)
    assert world.rmqadmin("consumeMessage -t T").out.splitlines()[-1] == "0 messages"


def test_a_plan_of_looking_looks(world) -> None:
    assert world.rmqadmin("topicList --dry-run").out == world.rmqadmin("topicList").out


@pytest.mark.parametrize(
    "command",
    ["topicList --watch 1", "clusterList -i 1", "startMonitoring", "clusterRT -c DefaultCluster"],
)
def test_a_plan_is_shown_once(world, command: str) -> None:
    assert world.rmqadmin(f"{command} --dry-run").status == 0


# Questions

#: Calls that destroy something or end a service.
ASKING = [
    "cleanBrokerMetadata -a 10.0.0.5:9877 -bn broker-a -c DefaultCluster",
    "cleanUnusedTopic",
    "cloneGroupOffset -s billing -d audit -t Orders",
    "deleteExpiredCommitLog",
    "deleteKvConfig -s space -k key",
    "deleteSubGroup -g billing -c DefaultCluster",
    "deleteSubGroup -g billing -b 10.0.0.2:10911",
    "deleteTopic -t Orders -c DefaultCluster",
    "removeBroker -c 10.0.0.6:10811 -b DefaultCluster:broker-a:0",
    "removeColdDataFlowCtrGroupConfig -g billing -c DefaultCluster",
    "resetOffsetByTime -g billing -t Orders -s 0",
    "resetOffsetByTime -g billing -t Orders -s now -b 10.0.0.2:10911 -q 1 -o 3",
    "resetOffsetByTimeOld -g billing -t Orders -s now",
    "skipAccumulatedMessage -g billing -t Orders",
    "updateOrderConf -t Orders -m delete",
    "wipeWritePerm -b broker-a",
]


def never(name_servers: str, work: Any, access: Access) -> None:
    raise AssertionError("nobody said yes")


@pytest.mark.parametrize("command", ASKING)
def test_what_destroys_is_asked_for(world, at_terminal, command: str) -> None:
    arguments = ["-n", world.names, *command.split()]
    outcome = world.bare(arguments, Tool(never))
    assert (outcome.status, outcome.out) == (2, "")
    assert "? Nobody can be asked here: give --yes (rmqadmin" in outcome.err
    at_terminal("n\n")
    outcome = world.bare(arguments, Tool(never))
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err.endswith("stopped, nothing is changed\n")
    with pytest.raises(AssertionError, match="nobody said yes"):
        main([*arguments, "--yes"], Tool(never))


def test_every_command_that_asks_is_tried_here() -> None:
    names = {name for names in MODULES.values() for name in names}
    asking = {name for name in names if any("--yes" in one.opts for one in load(name).params)}
    assert asking == {command.split()[0] for command in ASKING}


# Again and again


class _Enough(Tool):
    """Ends after three reports."""

    def __init__(self, runner: Any) -> None:
        super().__init__(runner)
        self.shown = 0

    def show(self, report: Report) -> None:
        super().show(report)
        self.shown += 1
        if self.shown == 3:
            raise SystemExit(0)


def test_a_look_is_taken_again_and_again(world) -> None:
    tool = _Enough(world.run)
    arguments = ["-n", world.names, "topicStatus", "-t", "BenchmarkTest", "--watch", "1"]
    outcome = world.bare([*arguments, "--output", "json"], tool)
    assert len(outcome.out.splitlines()) == 3


@pytest.mark.parametrize("interval", ["--watch", "-i"])
def test_a_command_with_an_interval_of_its_own_is_watched_too(world, interval: str) -> None:
    outcome = world.bare(["-n", world.names, "clusterList", interval, "1"], _Enough(world.run))
    assert outcome.out.count("broker-a") == 3


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("topicStatus -t Ordrs --watch 1", "did you mean Orders?"),
        ("consumerProgress -g billng --watch 1", "did you mean billing?"),
        ("haStatus -c nix --watch 1", "there is no cluster nix; there are: DefaultCluster"),
        ("haStatus -c nix -i 1", "there is no cluster nix; there are: DefaultCluster"),
        ("topicList -n 10.0.0.2:10911 --watch 1", "it is a broker, no name server: -n names"),
    ],
)
def test_a_mistyped_name_is_not_watched(world, command: str, reason: str) -> None:
    world.rmqadmin("updateSubGroup -g billing -c DefaultCluster")
    world.rmqadmin("updateTopic -t Orders -c DefaultCluster")
    once = world.rmqadmin(command.replace(" --watch 1", "").replace(" -i 1", ""))
    outcome = world.rmqadmin(command)
    assert outcome == once
    assert outcome.status in (1, 2) and outcome.err.count("\n") == 1
    assert reason in outcome.err


@pytest.mark.parametrize(
    ("address", "command", "reason"),
    [
        ("10.0.0.1:9876", "topicStatus -t BenchmarkTest --watch 1", "no name server answers"),
        ("10.0.0.1:9876", "clusterList -i 1", "no name server answers"),
        ("10.0.0.2:10911", "getBrokerConfig -b 10.0.0.2:10911 --watch 1", "cannot connect"),
    ],
)
def test_a_server_that_is_away_is_watched_until_it_is_back(
    world, address: str, command: str, reason: str
) -> None:
    handlers = {
        world.names: world.name_server.handlers,
        "10.0.0.2:10911": world.brokers["broker-a"].handlers,
    }
    world.network.close(address)
    world.reactor.callLater(3, world.network.serve, address, handlers[address])
    outcome = world.bare(["-n", world.names, *command.split()], _Enough(world.run))
    assert reason in outcome.err
    assert outcome.out and outcome.status == 0


@pytest.mark.parametrize("command", ["topicRoute -t BenchmarkTest", "haStatus -c DefaultCluster"])
def test_what_was_there_once_is_watched_while_it_is_gone(world, command: str) -> None:
    """A name server that starts anew knows no broker for a while."""
    tool = _Enough(world.run)
    show = tool.show

    def answer_with(server: NameServer) -> None:
        world.network.serve(world.names, server.handlers)
        for end in world.network.ends("10.0.1.1"):
            end.abortConnection()

    def show_and_restart(report: Report) -> None:
        show(report)
        if tool.shown == 1:
            new = NameServer(world.reactor, MemoryFiles(), NamesrvConfig())
            world.reactor.callLater(0.5, answer_with, new)
            world.reactor.callLater(3.5, answer_with, world.name_server)

    tool.show = show_and_restart  # type: ignore[method-assign]
    outcome = world.bare(["-n", world.names, *command.split(), "--watch", "1"], tool)
    assert outcome.status == 0
    assert "no broker is registered" in outcome.err


def test_what_changes_something_is_not_done_again_and_again(world, tmp_path: Path) -> None:
    outcome = world.rmqadmin("updateTopic -t T -c DefaultCluster --watch 1")
    assert outcome.status == 2
    assert "--watch is for commands that only look: this one sends UPDATE_AND_CREATE" in outcome.err
    for command in ("exportMetadata", "exportConfigs", "exportMetrics"):
        outcome = world.rmqadmin(f"{command} -c DefaultCluster -f {tmp_path}/new --watch 1")
        assert outcome.status == 2
        assert "--watch is for commands that only look: this one writes a file" in outcome.err
    assert not (tmp_path / "new").exists()
    assert "T" not in world.rmqadmin("topicList").out.split()
    outcome = world.rmqadmin("printMsg -t T --watch 1")
    assert "this command goes on by itself" in outcome.err
    outcome = world.rmqadmin("sendMessage -t T -p x --watch 1")
    assert outcome.status == 2
    assert "--watch is for commands that only look: this one sends messages" in outcome.err


@pytest.mark.parametrize(
    "command", ["store stats /nowhere", "context list", "decodeMessageId -i 7F00000100002A9F00"]
)
def test_what_asks_no_server_is_not_watched(world, command: str) -> None:
    outcome = world.bare(["--watch", "1", *command.split()], Tool(never))
    assert (outcome.status, outcome.out) == (2, "")
    assert "--watch is for commands that only look: this one asks no server" in outcome.err


def test_a_plan_writes_no_contexts(world, contexts: Path) -> None:
    outcome = call(world, f"context add test -n {world.names} --dry-run")
    assert outcome.out.startswith(f"nothing is changed; {contexts} would have test")
    assert not contexts.exists()
    call(world, f"context add test -n {world.names}")
    before = contexts.read_bytes()
    call(world, "--dry-run context remove test")
    call(world, f"--dry-run context add other -n {world.names}")
    call(world, "--dry-run context use test")
    assert contexts.read_bytes() == before


@pytest.mark.parametrize("command", ["exportMetadata", "exportConfigs", "exportMetrics"])
def test_a_plan_exports_no_file(command: str, world, tmp_path: Path) -> None:
    target = tmp_path / "exported"
    outcome = world.rmqadmin(f"{command} -c DefaultCluster -f {target} --dry-run")
    assert outcome.status == 0, outcome
    assert outcome.out.startswith(f"nothing is changed; {target}/")
    assert not target.exists()
