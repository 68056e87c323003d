"""mqadmin's names and letters, and what is told of a wrong call."""

from __future__ import annotations

import inspect
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from rocketmq_tw.admin.command_line import cli
from rocketmq_tw.admin.commands import MODULES, load
from rocketmq_tw.admin.refused import COMMANDS as REFUSED
from rocketmq_tw.admin.settings import Access
from rocketmq_tw.admin.tool import Tool
from rocketmq_tw.client.commands import Credentials
from rocketmq_tw.config.net import TlsConfig
from rocketmq_tw.wire.codes import RequestCode
from tests.support.interpreter import cpython_only
from tests.support.jars import PROJECT
from tests.support.wait import LIMIT

#: Stock's version to its commands, each with its options: letter, long name, whether it is
#: required, whether it takes a value.
STOCK: dict[str, dict[str, list[tuple[str | None, str, bool, bool]]]] = json.loads(
    Path(__file__).with_name("mqadmin.json").read_text()
)
#: What all commands have, the way around a question, and long names that stock has no letter for.
COMMON = {
    "-n",
    "--context",
    "--output",
    "--tls",
    "--tls-config",
    "--credentials",
    "--dry-run",
    "--watch",
}
OURS = COMMON | {"-y"}
#: Options of our own.
MORE = {
    "clusterRT": {"--rounds"},
    "consumeMessage": {"--follow", "--format"},
    "sendMessage": {"--body-file", "--lines", "--property"},
    "startMonitoring": {"--interval", "--rounds"},
}
#: Options that need not be given here, since another one may stand for them.
NOT_REQUIRED = {("sendMessage", "p"), ("queryMsgById", "t")}
#: Options of one version that mean something else in the other, and the new meaning is ours.
OTHERWISE = {("4.9.7", "resetOffsetByTime", "c")}
#: Commands of our own.
OWN = {"context", "decodeMessageId", "health", "store"}

NAMES = {name for names in MODULES.values() for name in names}
CASES = [(version, name) for version in STOCK for name in STOCK[version] if name in NAMES]


def never(name_servers, work, access):
    raise AssertionError("a wrong call must not reach a server")


def options_of(name: str) -> dict[str, click.Option]:
    command = load(name)
    assert command is not None, f"rmqadmin has no {name}"
    return {option.opts[0]: option for option in command.params if isinstance(option, click.Option)}


def long_name(name: str) -> str:
    """Stock has blanks in some."""
    first, *others = name.split()
    return "--" + first + "".join(word.title() for word in others)


@pytest.mark.parametrize(("version", "name"), CASES)
def test_commands_have_the_options_of_mqadmin(version: str, name: str) -> None:
    options = options_of(name)
    for letter, text, required, takes_value in STOCK[version][name]:
        if letter == "n" or (version, name, letter) in OTHERWISE:
            continue
        option = options[long_name(text) if letter is None else f"-{letter}"]
        assert option.opts == [*([f"-{letter}"] if letter else []), long_name(text)]
        assert option.is_flag != takes_value
        # 5.3.3 asks for more, and where it does so does ours.
        if version == "5.3.3":
            assert option.required == (required and (name, letter) not in NOT_REQUIRED), option


@pytest.mark.parametrize("name", sorted({name for _, name in CASES}))
def test_commands_have_no_options_that_mqadmin_has_not(name: str) -> None:
    known = {
        f"-{letter}" if letter else long_name(text)
        for commands in STOCK.values()
        for letter, text, *_ in commands.get(name, ())
    }
    assert set(options_of(name)) <= known | OURS | MORE.get(name, set())


def test_all_commands_are_there() -> None:
    assert {name for _, name in CASES} | OWN == NAMES


def test_commands_are_listed_by_family() -> None:
    output = CliRunner().invoke(cli, ["-h"]).output
    places = [
        output.index(f" {text}") for text in ("Topics ", "topicRoute ", "Refused,", "listUser,")
    ]
    assert places == sorted(places)
    listed = [words[1] for line in output.splitlines() if len(words := line.split()) > 2]
    assert set(listed) >= NAMES - set(REFUSED)
    names_of_refused = output[places[2] :]
    assert all(name in names_of_refused for name in REFUSED)
    assert len(names_of_refused.splitlines()) < 12


@pytest.mark.parametrize(("name", "line"), [pair for m in MODULES.values() for pair in m.items()])
def test_the_list_of_commands_says_what_the_help_of_each_says(name: str, line: str) -> None:
    command = load(name)
    assert command is not None and command.help is not None
    paragraph = inspect.cleandoc(command.help).split("\n\n")[0]
    assert line == " ".join(paragraph.split())


SHELLS = ("bash", "zsh", "fish")


def asked(shell: str, line: str) -> dict[str, str]:
    """The environment in which a shell asks what may stand for the last word of `line`."""
    words = line.split()
    last = words[-1] if shell == "fish" else str(len(words) - 1)
    return {
        "_RMQADMIN_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": last,
    }


def offered(shell: str, output: str) -> list[str]:
    """The words that a shell offers after such an answer."""
    lines = list(filter(None, output.splitlines()))
    if shell == "zsh":
        # The kind, the word and its help, or "_".
        assert len(lines) % 3 == 0 and set(lines[::3]) <= {"plain"}
        return lines[1::3]
    assert all(line.startswith("plain,") for line in lines)
    return [line.removeprefix("plain,").partition("\t")[0] for line in lines]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("line", "word"),
    [("rmqadmin topicL", "topicList"), ("rmqadmin topicRoute --to", "--topic")],
)
def test_a_shell_completes_commands_and_options(shell: str, line: str, word: str) -> None:
    output = CliRunner().invoke(cli, [], prog_name="rmqadmin", env=asked(shell, line)).output
    assert word in offered(shell, output)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("rmqadmin topicRoute -t Ord", ["Orders", "Orders2"]),
        ("rmqadmin sendMessage --topic Orders2", ["Orders2"]),
        ("rmqadmin updateTopic -t X -c Def", ["DefaultCluster"]),
        ("rmqadmin consumerProgress -g bil", ["billing"]),
        ("rmqadmin wipeWritePerm -b bro", ["broker-a"]),
        ("rmqadmin topicRoute -t nix", []),
        ("rmqadmin topicRoute -n 10.0.0.99:9876 -t Ord", []),
    ],
)
def test_a_shell_completes_names_of_the_cluster(
    world, monkeypatch: pytest.MonkeyPatch, shell: str, words: str, completed: list[str]
) -> None:
    for topic in ("Orders", "Orders2"):
        world.rmqadmin(f"updateTopic -t {topic} -c DefaultCluster")
    world.rmqadmin("updateSubGroup -g billing -c DefaultCluster")
    for name, value in asked(shell, words).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("NAMESRV_ADDR", world.names)
    assert offered(shell, world.rmqadmin("").out) == completed


def test_a_dead_broker_hinders_no_completion(world, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = world.add_broker("broker-b", "10.0.0.3")
    world.rmqadmin("updateSubGroup -g billing -b 10.0.0.2:10911")
    world.network.stop(dead)
    monkeypatch.setenv("_RMQADMIN_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "rmqadmin consumerProgress -g bil")
    monkeypatch.setenv("COMP_CWORD", "3")
    monkeypatch.setenv("NAMESRV_ADDR", world.names)
    outcome = world.rmqadmin("")
    assert (outcome.out.split(), outcome.err) == (["plain,billing"], "")


def test_a_command_that_is_not_there_is_told_with_one_like_it(world) -> None:
    outcome = world.rmqadmin("clusterlst")
    assert outcome.err.startswith(
        "rmqadmin: No such command 'clusterlst': did you mean clusterList?"
    )


@pytest.mark.parametrize("arguments", [[], ["-h"], *([name, "-h"] for name in sorted(NAMES))])
def test_help_is_shown(arguments: list[str]) -> None:
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0
    if arguments[:1] not in (["context"], ["store"]):
        assert "--namesrvAddr" in result.output
        assert "--output" in result.output


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("nope", "No such command 'nope'"),
        ("topicRoute", "Missing option '-t'"),
        ("clusterList -i 0", "-i"),
        ("clusterList -i x", "'x' is not a valid whole number"),
        ("clusterList --watch x", "'x' is not a valid whole number"),
        ("--watch x clusterList", "'x' is not a valid whole number"),
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
        ("updateTopic -t T -b a:1 -r 99999999999", "-r 99999999999: give 1 to 4096"),
        ("updateTopic -t T -b a:1 -w 2147483648", "-w 2147483648: give 1 to 4096"),
        ("sendMessage -t T -p x -i 1", "-i names a queue of one broker: name that with -b"),
        ("sendMessage -t T -p x -m true", "messages cannot be traced"),
        ("consumeMessage -t T -i 1", "-i names a queue of one broker: name that with -b"),
        ("consumeMessage -t T -b a -o 1", "-o is an offset of one queue: name that with -b and -i"),
        ("consumeMessage -t T -s yesterday", "give milliseconds since 1970 or yyyy-MM-dd#HH:mm:ss"),
        ("consumeMessage -t T -e 9223372036854775808", "is not between 1970 and"),
        ("consumeMessage -t T -s 2 -e 1", "-s is after -e"),
        ("consumeMessage -t T -g a/b", "'a/b' has an illegal character"),
        ("consumerProgress -t T", "-t, -s and -c are about one group: name that with -g"),
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


@pytest.mark.parametrize(
    "arguments",
    [
        ["topicStatus", "-t", "\udcff"],
        ["sendMessage", "-t", "T", "-p", "\udcff"],
        ["sendMessage", "-t", "T", "-p", "x", "-k", "\udcff"],
        ["queryMsgByKey", "-t", "T", "-k", "\udcff"],
        ["context", "use", "\udcff"],
    ],
)
def test_bytes_that_are_no_text_are_refused(world, arguments: list[str]) -> None:
    """Python has them in arguments as halves of characters, which nothing can be sent with."""
    outcome = world.bare(["-n", "10.0.0.1:9876", *arguments], Tool(never))
    assert (outcome.status, outcome.out) == (2, "")
    assert r"b'\xff' is no UTF-8" in outcome.err


def interruptible(*arguments: str) -> subprocess.Popen[str]:
    """rmqadmin with `--watch`, which Ctrl-C ends."""
    call = [*arguments, "--watch", "1"]
    # A background job of a shell ignores SIGINT, and so would what it starts.
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
        f" from rocketmq_tw.admin.main import main; main({call!r})"
    )
    path = os.pathsep.join(filter(None, (str(PROJECT), os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path},
        stderr=subprocess.PIPE,
        text=True,
    )


def test_ctrl_c_ends_with_a_status_of_its_own() -> None:
    with interruptible("topicList", "-n", "127.0.0.1:1") as process:
        assert process.stderr is not None
        assert "no name server answers" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT) == 130
        assert "nothing is changed" not in process.stderr.read()


def test_ctrl_c_is_no_failure_of_what_is_waited_for() -> None:
    silent = socket.create_server(("127.0.0.1", 0))
    silent.settimeout(LIMIT)
    address = f"127.0.0.1:{silent.getsockname()[1]}"
    with silent, interruptible("topicList", "-n", address) as process, silent.accept()[0] as asked:
        assert asked.recv(1)
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT) == 130
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_output_that_cannot_be_written_is_told() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", "from rocketmq_tw.admin.main import main; main(['--version'])"],
            env=os.environ | {"PYTHONPATH": str(PROJECT)},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=LIMIT,
        )
    assert done.returncode == 1
    assert done.stderr == (
        "rmqadmin: the output: No space left on device; what the command does may be done all the"
        " same\n"
    )


def test_a_closed_output_is_told() -> None:
    code = "from rocketmq_tw.admin.main import main; main(['--version'])"
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" -c "$1" >&-', sys.executable, code],
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        stderr=subprocess.PIPE,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("rmqadmin: the output is closed: ")


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

    def note(name_servers, work, access):
        asked.append(name_servers)
        return world.run(world.names, work, access)

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
        seen.append(world.access.tls)
    checked = TlsConfig(test_mode_enable=False, client_cert_path="/c.pem")
    assert seen == [TlsConfig(), TlsConfig(), checked, checked, None]
    for name, value, tls in (
        ("TLS_ENABLE", "true", TlsConfig()),
        ("TLS_CONFIG_FILE", str(file), checked),
    ):
        monkeypatch.setenv(name, value)
        world.rmqadmin("topicList")
        assert world.access.tls == tls


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


def test_credentials_come_from_the_command_the_group_or_the_environment(
    world, monkeypatch, tmp_path
) -> None:
    file, other = tmp_path / "tools.yml", tmp_path / "other.yml"
    # What looks like a number, as in stock's sample, is a key as it stands.
    file.write_text("accessKey: RocketMQ\nsecretKey: 0012345678\n")
    other.write_text("{accessKey: me, secretKey: 'x y', securityToken: t}")
    seen = []
    for arguments in (
        ["--credentials", str(file), "topicList"],
        ["--credentials", str(file), "topicList", "--credentials", str(other)],
        ["topicList"],
    ):
        assert world.bare(["-n", world.names, *arguments], Tool(world.run)).status == 0
        seen.append(world.access.credentials)
    assert seen == [Credentials("RocketMQ", "0012345678"), Credentials("me", "x y", "t"), None]
    monkeypatch.setenv("RMQADMIN_CREDENTIALS", str(file))
    world.rmqadmin("topicList")
    assert world.access == Access(None, Credentials("RocketMQ", "0012345678"))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (None, ": No such file or directory"),
        ("", ": give accessKey: KEY and secretKey: SECRET"),
        ("hush", ": give accessKey: KEY and secretKey: SECRET"),
        ("accessKey: me", " has no secretKey"),
        ("accessKey:\nsecretKey: hush", " has no accessKey"),
        ("accessKey: me\nsecretKey: [hush]", ": secretKey is no text"),
        ("accesskey: me\nsecretKey: hush", ": accesskey is none of accessKey, secretKey, "),
        ("accessKey: [me\nsecretKey: hush", ", line 2, column 10: "),
    ],
)
def test_a_wrong_file_of_credentials_is_told_without_its_secret(
    world, tmp_path, text, line: str
) -> None:
    file = tmp_path / "tools.yml"
    if text is not None:
        file.write_text(text)
    outcome = world.bare(["topicList", "--credentials", str(file)], Tool(never))
    assert (outcome.status, outcome.err.count("\n")) == (2, 1)
    assert outcome.err.startswith(f"rmqadmin: --credentials: {file}{line}")
    assert "hush" not in outcome.err


def test_output_is_chosen_before_or_after_the_command(world) -> None:
    for arguments in (["--output", "json", "topicList"], ["topicList", "--output", "json"]):
        assert world.rmqadmin(*arguments).json["topics"]
    table = world.rmqadmin("--output", "json", "topicList", "--output", "table")
    assert table.out.startswith("BenchmarkTest\n")


@pytest.mark.parametrize(
    "command, said",
    [
        (
            "clusterList -n 10.0.0.2:10911",
            "10.0.0.2:10911 answered 3: it is a broker, no name server: -n names a name server",
        ),
        (
            "updateTopic -t T -b 10.0.0.1:9876",
            "10.0.0.1:9876 answered 3: it is a name server, no broker: -b names a broker",
        ),
        (
            "addBroker -c 10.0.0.2:10911 -b b.properties",
            "10.0.0.2:10911 answered 3: it is a broker, no container: -c names a container",
        ),
        (
            "getControllerConfig -a 10.0.0.1:9876",
            "10.0.0.1:9876 answered 3: it is a name server, no controller: -a names a controller",
        ),
        (
            "electMaster -a 10.0.0.2:10911 -b 1 -bn broker-a -c DefaultCluster",
            "no controller leads: 10.0.0.2:10911 answered 3: it is a broker, no controller:"
            " -a names a controller",
        ),
    ],
)
def test_a_server_of_the_other_kind_says_what_it_is(world, command: str, said: str) -> None:
    outcome = world.rmqadmin(command)
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err == f"rmqadmin: {said}\n"


@pytest.mark.parametrize(
    "answered, said",
    [
        ((RequestCode.GET_BROKER_RUNTIME_INFO,), "request code 26 is not supported"),
        ((RequestCode.GET_BROKER_CONFIG,), "it is a container, no broker: -b names a broker"),
        ((), "it is no broker: -b names a broker"),
    ],
)
def test_a_server_says_what_it_is_by_what_it_answers(world, answered, said: str) -> None:
    handlers = {code: lambda request, peer: request.response() for code in answered}
    world.network.serve("10.0.0.7:10911", handlers)
    outcome = world.rmqadmin("updateTopic -t T -b 10.0.0.7:10911")
    assert outcome.err == f"rmqadmin: 10.0.0.7:10911 answered 3: {said}\n"


def test_the_help_of_a_switch_says_what_it_takes() -> None:
    result = CliRunner().invoke(cli, ["updateTopic", "-h"])
    assert len(re.findall(r"-[ous] +true\|false", result.output)) == 3, result.output


def in_a_process_of_its_own(code: str) -> str:
    path = os.pathsep.join(filter(None, (str(PROJECT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("arguments", "completed", "shown"),
    [
        ([], "", ""),
        (["-h"], "", "topicList"),
        ([], "rmqadmin topicL", "plain,topicList"),
        ([], "rmqadmin ", "plain,updateTopic"),
    ],
)
def test_a_list_of_commands_imports_none(arguments: list[str], completed: str, shown: str) -> None:
    """All of them together take half a second."""
    code = f"""if True:
        import os, sys
        if {completed!r}:
            os.environ.update(
                _RMQADMIN_COMPLETE="bash_complete", COMP_WORDS={completed!r}, COMP_CWORD="1"
            )
        from click.testing import CliRunner
        from rocketmq_tw.admin.command_line import cli
        from rocketmq_tw.admin.commands import MODULES
        result = CliRunner().invoke(cli, {arguments!r}, prog_name="rmqadmin")
        assert {shown!r} in result.output, result.output
        names = ("twisted", "yaml", *("rocketmq_tw.admin." + name for name in MODULES))
        print([name for name in names if name in sys.modules])
    """
    assert in_a_process_of_its_own(code) == "[]\n"


def test_a_start_imports_only_what_it_needs() -> None:
    """Each of these would take a part of the time of every start."""
    names = (
        "javaproperties", "rich_click", "rich.console", "yaml", "twisted", "cryptography", "asyncio"
    )  # fmt: skip
    code = f"""if True:
        import sys
        import rocketmq_tw.admin.command_line
        from rocketmq_tw.admin.commands import MODULES
        names = {names!r} + tuple("rocketmq_tw.admin." + name for name in MODULES)
        print([name for name in names if name in sys.modules])
    """
    assert in_a_process_of_its_own(code) == "[]\n"


@cpython_only("PyPy takes some twice the time to import, and tools stay on CPython")
@pytest.mark.parametrize("option", ["--version", "--help"])
def test_a_start_costs_little(option: str) -> None:
    """Half of this on an idle machine; a slow or busy one needs more CPU for the same."""

    def cpu_seconds() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def start() -> float:
        before = cpu_seconds()
        command = "from rocketmq_tw.admin.main import main; main()"
        subprocess.run([sys.executable, "-c", command, option], check=True, capture_output=True)
        return cpu_seconds() - before

    assert min(start() for _ in range(3)) < 0.6


def test_no_command_loads_what_opens_connections() -> None:
    """It takes OpenSSL with it, unless that is left out where it is known that no TLS is wanted."""
    names = ("OpenSSL", "twisted.internet.endpoints", "rocketmq_tw.net.client")
    code = f"""if True:
        import sys
        from rocketmq_tw.admin.commands import MODULES, load
        loaded = {{}}
        for module, commands in MODULES.items():
            for command in commands:
                load(command)
            found = [name for name in {names!r} if name in sys.modules]
            if found:
                loaded[module] = found
                break
        print(loaded)
    """
    assert in_a_process_of_its_own(code) == "{}\n"


@cpython_only("PyPy's collector cannot be told when to look")
def test_a_short_command_looks_for_no_garbage() -> None:
    """What it has imported stays to the end: a look at all of it took 15 ms."""
    code = """if True:
        import gc, sys
        from rocketmq_tw.admin.main import main
        sys.argv = ["rmqadmin", "-n", "127.0.0.1:1", "sendMessage", "-t", "T", "-p", "x"]
        before = gc.get_stats()[0]["collections"]
        try:
            main()
        except SystemExit as ended:
            print(ended.code, gc.get_stats()[0]["collections"] - before)
    """
    assert in_a_process_of_its_own(code) == "1 0\n"


def test_a_table_needs_no_console_of_rich() -> None:
    code = """if True:
        import sys
        from rocketmq_tw.admin.output import Column, Listing, Report, show_tables
        show_tables(Report(None, [Listing([Column("A", "a")], [{"a": 1}])]))
        print("rich.console" in sys.modules)
    """
    assert in_a_process_of_its_own(code).endswith("False\n")


#: What a command that asks for no message and no table does without, and without TLS.
UNUSED = (
    "OpenSSL", "cryptography", "ssl", "http.client", "urllib.error", "rich_click", "rich.console",
    "yaml", "javaproperties", "construct", "prometheus_client", "google.protobuf",
    "rocketmq_tw.client.decoding", "rocketmq_tw.net.whole_tables", "rocketmq_tw.files",
)  # fmt: skip


@pytest.mark.parametrize(
    ("call", "loaded"),
    [
        ("clusterList", []),
        ("haStatus -b 127.0.0.1:1", []),
        ("topicList", []),
        ("consumerProgress", []),
        ("updateSubGroup -g g -c c", []),
        ("sendMessage -t T -p x", ["rocketmq_tw.client.decoding"]),
        ("queryMsgByKey -t T -k k", []),
        ("getNamesrvConfig", []),
        ("getControllerMetaData -a 127.0.0.1:1", []),
        ("clusterList --tls", ["OpenSSL", "cryptography"]),
    ],
)
def test_a_command_loads_what_it_uses(call: str, loaded: list[str]) -> None:
    """A command of each family that asks servers. All that was loaded without need took half of the
    time of a short one. Twisted itself has more than 400 modules."""
    code = f"""if True:
        import sys
        from rocketmq_tw.admin.main import main
        sys.argv = {["rmqadmin", "-n", "127.0.0.1:1", *call.split()]!r}
        sys.stderr = sys.stdout
        try:
            main()
        except SystemExit as ended:
            assert ended.code == 1
        print([name for name in {UNUSED!r} if name in sys.modules])
        print(len(sys.modules))
    """
    told, found, count = in_a_process_of_its_own(code).splitlines()
    assert "127.0.0.1:1: cannot connect" in told
    assert found == str(loaded)
    assert "OpenSSL" in loaded or int(count) < 520


def test_what_reads_properties_loads_no_http_until_it_is_used() -> None:
    """It took 20 ms of each command that shows a configuration."""
    code = """if True:
        import sys
        from rocketmq_tw.admin.light_imports import load_http_lazily
        load_http_lazily()
        import rocketmq_tw.client.properties, javaproperties
        print("http.client" in sys.modules)
        import urllib.request
        print(urllib.request.Request("http://a/b").host, "http.client" in sys.modules)
    """
    assert in_a_process_of_its_own(code) == "False\na True\n"


def test_tls_is_left_out_for_twisted_alone() -> None:
    code = """if True:
        from rocketmq_tw.admin.light_imports import tls_left_out
        with tls_left_out(of_twisted=True):
            import twisted.internet.endpoints as endpoints
        import ssl, OpenSSL
        print(endpoints.TLSMemoryBIOFactory, ssl.OPENSSL_VERSION_INFO > (1,))
    """
    assert in_a_process_of_its_own(code) == "None True\n"
