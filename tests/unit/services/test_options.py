"""The command line: what wins over what, and how a mistake ends."""

import platform
import socket
import sys
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from twisted.logger import LogLevel, capturedLogs, formatEvent
from twisted.python.usage import UsageError

from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.controller import ControllerConfig
from rocketmq_tw.config.namesrv import NamesrvConfig, StandaloneConfig
from rocketmq_tw.config.net import NettyClientConfig, NettyServerConfig
from rocketmq_tw.config.properties import read_properties
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.services import (
    broker,
    container,
    controller,
    dledger,
    namesrv,
    proxy,
    spark_receiver,
    standalone,
)
from rocketmq_tw.services.options import ServerOptions

ENVIRON = {"HOME": "/home/me"}


def parsed(kind: type[ServerOptions], *arguments: str, **environ: str) -> ServerOptions:
    options = kind(ENVIRON | environ)
    options.parseOptions(list(arguments))
    return options


def test_defaults_of_each_server() -> None:
    loaded = parsed(namesrv.Options).loaded
    assert loaded[NettyServerConfig].listen_port == 9876
    assert loaded[NettyServerConfig].bind_address == "0.0.0.0"
    assert loaded[NamesrvConfig].kv_config_path == "/home/me/namesrv/kvConfig.json"
    loaded = parsed(broker.Options).loaded
    assert loaded[NettyServerConfig].listen_port == 10911
    assert loaded[NettyServerConfig].bind_address == "0.0.0.0"
    assert loaded[MessageStoreConfig].store_path_root_dir == "/home/me/store"
    loaded = parsed(standalone.Options).loaded
    assert loaded[NettyServerConfig].listen_port == 10911
    assert loaded[NettyServerConfig].bind_address == "127.0.0.1"
    assert loaded[StandaloneConfig].namesrv_listen_port == 9876
    assert loaded[MessageStoreConfig].store_path_root_dir == "data/store"


@pytest.mark.parametrize("kind", [broker.Options, namesrv.Options, proxy.Options])
def test_the_version_is_of_this_package_and_of_python(
    kind: type[ServerOptions], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(kind, "--version")
    assert ended.value.code == 0
    told = f"rocketmq_tw {version('rocketmq_tw')} on Python {platform.python_version()}"
    assert capsys.readouterr().out.startswith(told)


def test_environment_then_file_then_single_keys_then_flags(tmp_path: Path) -> None:
    file = tmp_path / "b.properties"
    arguments: list[str] = []
    seen = []
    for step in (
        lambda: None,
        lambda: file.write_text("namesrvAddr=file:1\n"),
        lambda: arguments.extend(["-o", "namesrvAddr=single:1"]),
        lambda: arguments.extend(["-n", "flag:1;flag:2"]),
    ):
        step()
        given = [*arguments, *(["-c", str(file)] if file.exists() else [])]
        loaded = parsed(broker.Options, *given, NAMESRV_ADDR="environ:1").loaded
        seen.append(loaded[BrokerConfig].namesrv_addr)
    assert seen == ["environ:1", "file:1", "single:1", "flag:1;flag:2"]


@pytest.mark.parametrize(
    ("keys", "speaks_tls"),
    [
        ([], False),
        (["tls.server.mode=enforcing"], True),
        (["tls.server.mode=permissive"], False),
        (["tls.enable=true"], True),
        (["tls.enable=false", "tls.server.mode=enforcing"], False),
        (["useTLS=false", "tls.server.mode=enforcing"], False),
        (["useTLS=false", "tls.enable=true"], False),
        (["useTLS=true"], True),
    ],
)
def test_a_broker_speaks_tls_where_stock_s_does(keys: list[str], speaks_tls: bool) -> None:
    for kind in (broker.Options, standalone.Options):
        loaded = parsed(kind, *(part for key in keys for part in ("-o", key))).loaded
        assert loaded[NettyClientConfig].use_tls == speaks_tls
        assert loaded.notices == []


def test_a_name_server_keeps_changes_in_its_own_file(tmp_path: Path) -> None:
    file = tmp_path / "n.properties"
    file.write_text("orderMessageEnable=true\n")
    loaded = parsed(namesrv.Options, "-c", str(file)).loaded
    assert loaded[NamesrvConfig].config_store_path == str(file)


def test_a_standalones_name_server_keeps_its_changes_where_the_next_start_reads_them(
    tmp_path: Path,
) -> None:
    file = tmp_path / "s.properties"
    file.write_text("orderMessageEnable=true\n")
    loaded = parsed(standalone.Options, "-c", str(file)).loaded
    assert loaded[NamesrvConfig].config_store_path == str(file)
    loaded = parsed(standalone.Options, "-c", str(file), "-o", "configStorePath=x").loaded
    assert loaded[NamesrvConfig].config_store_path == "x"
    of_none = parsed(standalone.Options).loaded[NamesrvConfig]
    assert of_none.config_store_path == "data/namesrv/namesrv.properties"


def test_a_controller_has_the_places_that_stocks_has(tmp_path: Path) -> None:
    file = tmp_path / "c.conf"
    file.write_text("controllerDLegerSelfId=n0\n")
    for kind in (controller.Options, namesrv.Options):
        config = parsed(kind, "-c", str(file)).loaded[ControllerConfig]
        assert config.controller_store_path == "/home/me/DLedgerController"
        assert config.config_store_path == str(file)
        assert config.controller_dledger_self_id == "n0"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-c", "nowhere.properties"], "nowhere.properties: No such file"),
        (["-o", "listenPort=x"], "-o: listenPort=x: give an integer from 0 to 65535"),
        (["-n", "here"], "-n: namesrvAddr=here: give host:port"),
        (["-o", "listenPrt=1"], "-o: listenPrt is no known key: did you mean listenPort?"),
        (["-p", "-o", "zzzzzzzz=1"], "-o: zzzzzzzz is no known key"),
        (["-p", "-o", "brokerRole=SLAVE"], "brokerRole=SLAVE with brokerId=0: give a slave 1"),
        (["-o", "brokerId=2"], "brokerRole=ASYNC_MASTER with brokerId=2: a master has brokerId=0"),
        (["-o", "brokerName=a b"], "-o: brokerName=a b: give a name without blanks"),
        (["-o", "brokerName=a/b"], "-o: brokerName=a/b: give a name without blanks and slashes"),
        (["-o", "brokerClusterName="], "-o: brokerClusterName=: give a name"),
    ],
)
def test_a_mistake_ends_with_one_line(arguments: list[str], said: str) -> None:
    with pytest.raises(SystemExit) as caught:
        parsed(broker.Options, *arguments)
    text = str(caught.value.code)
    assert text.startswith(said)
    assert "\n" not in text


ENFORCING = ("-o", "tls.server.mode=enforcing", "-o", "tls.test.mode.enable=false")


@pytest.mark.parametrize(
    ("options", "arguments", "said"),
    [
        (broker.Options, ENFORCING, "cannot start: tls.server.certPath is not set"),
        (namesrv.Options, ENFORCING, "cannot start: tls.server.certPath is not set"),
        (standalone.Options, ENFORCING, "cannot start: tls.server.certPath is not set"),
        (container.Options, ENFORCING, "cannot start: tls.server.certPath is not set"),
        (
            proxy.Options,
            ("-n", "127.0.0.1:9876", "-o", "tlsTestModeEnable=false", *ENFORCING),
            "cannot start: tls.server.certPath is not set",
        ),
        (
            broker.Options,
            ("-o", "tls.enable=true", "-o", "tls.test.mode.enable=false",
             "-o", "tls.server.mode=disabled", "-o", "tls.client.authServer=true",
             "-o", "tls.client.trustCertPath=/nowhere.pem"),
            "cannot start: tls.client.trustCertPath /nowhere.pem: No such file",
        ),
        (broker.Options, ("-o", "brokerIP1=nowhere.invalid"), "nowhere.invalid is not known"),
        (broker.Options, ("-o", "enableControllerMode=true"), "without controllerAddr"),
        (
            standalone.Options,
            ("-o", "enableSlaveActingMaster=true", "-o", "brokerHeartbeatInterval=10000"),
            "brokerHeartbeatInterval=10000 with brokerNotActiveTimeoutMillis=10000: the broker",
        ),
        (
            broker.Options,
            ("-o", "enableDLegerCommitLog=true", "-o", "dLegerPeers=n0-127.0.0.1:1",
             "-o", "dLegerGroup=g", "-o", "dLegerSelfId=n7"),
            "dLegerSelfId=n7: give one of n0",
        ),
        (controller.Options, (), "cannot start: controllerDLegerGroup is missing"),
        (broker.Options, ("-o", "listenPort=2"), "(listenPort - 2) would be port 0"),
        (broker.Options, ("-o", "listenPort=65535"), "haListenPort would be port 65536"),
        (
            broker.Options,
            ("-o", "haListenPort=10909"),
            "haListenPort and the VIP channel (listenPort - 2) are both port 10909",
        ),
        (
            namesrv.Options,
            ("-o", "metricsExporterType=PROM", "-o", "metricsPromExporterPort=9876"),
            "metricsPromExporterPort and listenPort are both port 9876",
        ),
        (
            standalone.Options,
            ("-o", "namesrvListenPort=10912"),
            "haListenPort and namesrvListenPort are both port 10912",
        ),
        (
            broker.Options,
            ("-n", "a:1", "-o", "listenPort=8081", "--enable-proxy"),
            "grpcServerPort and listenPort are both port 8081",
        ),
        (proxy.Options, (), "no name server is named"),
        (proxy.Options, ("-o", "proxyMode=LOCAL"), "is a proxy in a broker's process"),
    ],
)  # fmt: skip
def test_p_refuses_what_a_start_refuses(
    options: Any, arguments: tuple[str, ...], said: str, capsys: Any
) -> None:
    with pytest.raises(SystemExit) as caught:
        parsed(options, "-p", *arguments)
    assert said in str(caught.value.code)
    assert "\n" not in str(caught.value.code)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("address", "is_warned"), [("0.0.0.0", True), ("::", True), ("127.0.0.1", False)]
)
@pytest.mark.parametrize("options", [namesrv.Options, broker.Options])
def test_a_server_that_is_open_to_all_warns(options: Any, address: str, is_warned: bool) -> None:
    with capturedLogs() as events:
        parsed(options, "-o", f"bindAddress={address}")
    warnings = [formatEvent(event) for event in events if event["log_level"] is LogLevel.warn]
    said = [text for text in warnings if "there is no access control" in text]
    assert len(said) == is_warned
    assert all(f"bindAddress is {address}," in text for text in said)


def test_ports_at_different_addresses_may_be_the_same(capsys: Any) -> None:
    keys = {"bindAddress": "127.0.0.1", "metricsExporterType": "PROM"}
    keys |= {"metricsPromExporterHost": "127.0.0.2", "metricsPromExporterPort": "9876"}
    arguments = [text for key, value in keys.items() for text in ("-o", f"{key}={value}")]
    with pytest.raises(SystemExit) as caught:
        parsed(namesrv.Options, "-p", *arguments)
    assert caught.value.code == 0
    assert "metricsPromExporterPort=9876" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("brokerName=b\nbrokerRole=SLAVE\n", "b.conf: slave broker id must be > 0"),
        ("listenPort=abc\n", "b.conf:1: listenPort=abc: give an integer from 0 to 65535"),
        ("brokerName=b\nbrokerIP1=nowhere.invalid\n", "nowhere.invalid is not known"),
        (
            "brokerName=b\nenableControllerMode=true\n",
            "b.conf: enableControllerMode=true without controllerAddr",
        ),
        ("nothing=here\n", "b.conf: it has no key of a broker"),
        ("brokerName=a\n", "b.conf: the broker DefaultCluster_a_0 is in "),
        ("brokerName=b\nstorePathRootDir=/of/a\n", "b.conf: storePathRootDir=/of/a is in "),
        ("brokerName=b\nlistenPort=7002\n", "the VIP channel (listenPort of "),
        ("brokerName=b\nlistenPort=10811\n", "b.conf and listenPort are both port 10811"),
        (None, "b.conf: No such file or directory"),
    ],
)
def test_p_of_a_container_looks_into_its_brokers_files(
    text: str | None, said: str, tmp_path: Path, capsys: Any
) -> None:
    one, other = tmp_path / "a.conf", tmp_path / "b.conf"
    one.write_text("brokerName=a\nlistenPort=7000\nstorePathRootDir=/of/a\n")
    if text is not None:
        other.write_text(text)
    arguments = ("-o", "bindAddress=127.0.0.1", "-b", f"{one}:{other}")
    with pytest.raises(SystemExit) as caught:
        parsed(container.Options, "-p", *arguments)
    line = str(caught.value.code)
    assert line.startswith("cannot start: ") and said in line and "\n" not in line
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("kind", [broker.Options, namesrv.Options, controller.Options])
def test_a_strict_server_refuses_unknown_keys_of_its_file(
    kind: type[ServerOptions], tmp_path: Path
) -> None:
    file = tmp_path / "server.properties"
    file.write_text("listenPort=9999\nlistenPrt=1\n")
    with pytest.raises(SystemExit) as caught:
        parsed(kind, "--strict", "-p", "-c", str(file))
    assert caught.value.code == f"{file}:2: listenPrt is no known key: did you mean listenPort?"


def test_a_strict_broker_refuses_unknown_keys_of_its_proxys_file(tmp_path: Path) -> None:
    file = tmp_path / "proxy.properties"
    file.write_text("grpcServerProt=7\n")
    with pytest.raises(SystemExit) as caught:
        parsed(broker.Options, "--strict", "-p", "--enable-proxy", "-pc", str(file))
    assert str(caught.value.code).startswith(f"{file}:1: grpcServerProt is no known key")


def test_p_of_a_container_names_what_looks_like_a_mistake(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "a.conf"
    file.write_text("brokerName=a\nfooBar=1\n")
    with pytest.raises(SystemExit) as caught:
        parsed(container.Options, "-p", "-o", "bindAddress=127.0.0.1", "-b", str(file))
    assert caught.value.code == 0
    assert capsys.readouterr().err == f"{file}:2: fooBar is no known key\n"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/dev/zero", "/dev/zero: it has more than 262144 bytes, and is no configuration"),
        (sys.executable, "is no configuration"),
        ("/nowhere.conf", "/nowhere.conf: No such file or directory: give the path of a file"),
    ],
)
def test_what_is_no_configuration_is_refused(path: str, said: str) -> None:
    with pytest.raises(SystemExit) as caught:
        parsed(broker.Options, "-c", path)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        broker.Options, namesrv.Options, proxy.Options, controller.Options, container.Options,
        standalone.Options, dledger.Options, spark_receiver.Options,
    ],
)  # fmt: skip
def test_a_word_that_is_no_option_is_named(options) -> None:
    with pytest.raises(SystemExit) as caught:
        options().parseOptions(["broker.conf", "more"])
    assert str(caught.value).startswith("unexpected 'broker.conf more': ")


def test_o_needs_a_key_and_a_value() -> None:
    with pytest.raises(UsageError, match="key=value"):
        parsed(broker.Options, "-o", "listenPort")


@pytest.mark.parametrize("module", [namesrv, broker, standalone, container, controller, proxy])
def test_p_prints_what_c_reads(module: Any, tmp_path: Path, capsys: Any) -> None:
    needed = {
        proxy: ["-n", "127.0.0.1:9876"],
        controller: [
            "-o", "controllerDLegerGroup=g", "-o", "controllerDLegerPeers=n0-127.0.0.1:9877",
            "-o", "controllerDLegerSelfId=n0",
        ],
    }  # fmt: skip
    with pytest.raises(SystemExit) as caught:
        parsed(module.Options, "-p", "-o", "maxConnections=17", *needed.get(module, []))
    assert caught.value.code == 0
    printed = capsys.readouterr().out
    assert "maxConnections=17\n" in printed
    file = tmp_path / "printed.properties"
    file.write_text(printed)
    with pytest.raises(SystemExit):
        parsed(module.Options, "-p", "-c", str(file), "-o", "maxConnections=17")
    again = capsys.readouterr().out

    def values(text: str) -> set[str]:
        return {line for line in text.splitlines() if " follows from " not in line}

    assert values(again) == values(printed)


def printed(options: Any, capsys: Any, *arguments: str) -> list[str]:
    """The lines of `-p`."""
    with pytest.raises(SystemExit):
        parsed(options, "-p", *arguments)
    lines: list[str] = capsys.readouterr().out.splitlines()
    return lines


def following(lines: list[str]) -> dict[str, tuple[str, str]]:
    """Key to value and to what that follows from, of those that follow from something."""
    found = {}
    for line, value in pairwise(lines):
        if " follows from " in line:
            key, origin = line.removeprefix("# ").split(" follows from ")
            (setting,) = read_properties(value, "the line")
            assert setting.key == key
            found[key] = setting.value, origin
    return found


def test_printing_tells_what_a_broker_warns_of_as_it_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = ["enableSlaveActingMaster=true", "brokerHeartbeatInterval=4000"]
    arguments = [part for setting in settings for part in ("-o", setting)]
    with pytest.raises(SystemExit) as ended:
        parsed(broker.Options, "-p", *arguments)
    assert ended.value.code == 0
    told = "brokerHeartbeatInterval=4000 is more than a third of brokerNotActiveTimeoutMillis=10000"
    assert told in capsys.readouterr().err


def test_p_shows_what_a_broker_is_given_no_value_for(capsys: Any) -> None:
    lines = printed(
        broker.Options, capsys, "-o", "listenPort=7001", "-o", "bindAddress=10.0.0.1",
        "-o", "storePathRootDir=/store", "-o", "tls.server.mode=enforcing",
    )  # fmt: skip
    assert following(lines) == {
        "brokerName": (socket.gethostname(), "this machine's name"),
        "brokerIP1": ("10.0.0.1", "bindAddress"),
        "brokerIP2": ("10.0.0.1", "brokerIP1"),
        "haListenPort": ("7002", "listenPort"),
        "storePathCommitLog": ("/store/commitlog", "storePathRootDir"),
        "storePathBrokerIdentity": ("/store/brokerIdentity", "storePathRootDir"),
        "storePathEpochFile": ("/store/epochFileCheckpoint", "storePathRootDir"),
        "useTLS": ("true", "tls.server.mode"),
    }


def test_p_shows_what_is_given_as_it_is(capsys: Any) -> None:
    given = {
        "brokerName": "b", "brokerIP1": "10.0.0.1", "brokerIP2": "10.0.0.2",
        "haListenPort": "7", "storePathCommitLog": "/l", "storePathBrokerIdentity": "/i",
        "storePathEpochFile": "/e", "useTLS": "false", "tls.enable": "true",
    }  # fmt: skip
    arguments = [part for key, value in given.items() for part in ("-o", f"{key}={value}")]
    lines = printed(broker.Options, capsys, *arguments)
    assert following(lines) == {}
    assert {"haListenPort=7", "brokerIP2=10.0.0.2", "useTLS=false"} <= set(lines)


def test_p_of_a_broker_in_a_group_of_dledger_shows_where_its_log_is(capsys: Any) -> None:
    lines = printed(
        broker.Options, capsys, "-o", "enableDLegerCommitLog=true", "-o", "dLegerSelfId=n0",
        "-o", "dLegerGroup=g", "-o", "dLegerPeers=n0-127.0.0.1:1",
        "-o", "storePathRootDir=/store",
    )  # fmt: skip
    assert following(lines)["storePathDLedgerCommitLog"] == (
        "/store/dledger-n0/data",
        "storePathRootDir and dLegerSelfId",
    )


@pytest.mark.parametrize(
    ("module", "arguments", "expected"),
    [
        (
            standalone,
            ["-n", "10.0.0.1:9876"],
            {"namesrvAddr": ("127.0.0.1:9876;10.0.0.1:9876", "namesrvListenPort")},
        ),
        (container, ["-o", "bindAddress=::1"], {"brokerContainerIP": ("::1", "bindAddress")}),
        (
            controller,
            [
                f"-ocontrollerDLeger{each}"
                for each in ("Peers=n1-127.0.0.1:8", "SelfId=n1", "Group=g")
            ],
            {"listenPort": ("8", "controllerDLegerPeers")},
        ),
        (controller, ["-o", "controllerDLegerSelfId=n1"], {}),
        (
            proxy,
            ["-n", "127.0.0.1:9876", "-o", "rocketMQClusterName=C"],
            {"heartbeatSyncerTopicClusterName": ("C", "rocketMQClusterName")},
        ),
        (namesrv, [], {}),
    ],
)
def test_p_of_other_servers(
    module: Any, arguments: list[str], expected: dict[str, tuple[str, str]], capsys: Any
) -> None:
    found = following(printed(module.Options, capsys, *arguments))
    assert found.items() >= expected.items()
    if not expected:
        assert not found


def of_the_proxy(lines: list[str]) -> list[str]:
    """The file of the proxy, which stands in comments."""
    heading = lines.index("# The proxy of --enable-proxy, as a file for -pc:")
    return [line.removeprefix("# ") for line in lines[heading + 1 :]]


@pytest.mark.parametrize(
    "kind, names", [(broker, "10.0.0.1:9876"), (standalone, "127.0.0.9:9876;10.0.0.1:9876")]
)
def test_p_shows_the_proxy_in_a_brokers_process_too(
    kind: Any, names: str, tmp_path: Path, capsys: Any
) -> None:
    file = tmp_path / "proxy.properties"
    file.write_text("grpcServerPort=7\nuseTLS=true\n")
    lines = printed(
        kind.Options, capsys, "--enable-proxy", "-pc", str(file), "-n", "10.0.0.1:9876",
        "-o", "bindAddress=127.0.0.9", "-o", "useTLS=true",
    )  # fmt: skip
    proxys = of_the_proxy(lines)
    assert {"grpcServerPort=7", "remotingListenPort=8080", "useTLS=true"} <= set(proxys)
    found = following(proxys)
    assert (
        found.items()
        >= {
            "bindAddress": ("127.0.0.9", "the broker's bindAddress"),
            "namesrvAddr": (names, "the broker's namesrvAddr"),
            "proxyMode": ("LOCAL", "--enable-proxy"),
            "heartbeatSyncerTopicClusterName": ("DefaultCluster", "rocketMQClusterName"),
        }.items()
    )
    assert "useTLS" not in found
    # What it prints is still the broker's file, and the proxy's by itself.
    for text, key, value in ((lines, "grpcServerPort", None), (proxys, "grpcServerPort", "7")):
        settings = {each.key: each.value for each in read_properties("\n".join(text), "printed")}
        assert settings.get(key) == value


def test_p_names_what_looks_like_a_mistake_in_the_proxys_file(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "proxy.properties"
    file.write_text("grpcServerProt=7\n")
    with pytest.raises(SystemExit):
        parsed(broker.Options, "-p", "--enable-proxy", "-pc", str(file))
    said = f"{file}:1: grpcServerProt is no known key: did you mean grpcServerPort?\n"
    assert capsys.readouterr().err == said


def test_p_names_what_looks_like_a_mistake_beside_what_it_prints(
    tmp_path: Path, capsys: Any
) -> None:
    file = tmp_path / "b.properties"
    file.write_text("listenPrt=1\n")
    with pytest.raises(SystemExit):
        parsed(broker.Options, "-p", "-c", str(file))
    printed = capsys.readouterr()
    assert printed.err == f"{file}:1: listenPrt is no known key: did you mean listenPort?\n"
    assert "listenPrt" not in printed.out


def test_the_id_and_role_of_stocks_samples_for_controller_mode_are_taken(tmp_path: Path) -> None:
    file = tmp_path / "broker-n0.conf"
    file.write_text(
        "brokerId = -1\nbrokerRole = SLAVE\n"
        "enableControllerMode = true\ncontrollerAddr = 127.0.0.1:9878\n"
    )
    assert parsed(broker.Options, "-c", str(file)).loaded.notices == []


@pytest.mark.parametrize(
    ("kind", "sample"),
    [
        (namesrv.Options, "namesrv.properties"),
        (broker.Options, "broker.properties"),
        (standalone.Options, "standalone.properties"),
        (controller.Options, "controller/controller-n0.conf"),
        (controller.Options, "controller/controller-n1.conf"),
        (controller.Options, "controller/controller-n2.conf"),
        (namesrv.Options, "controller/namesrv-n0.properties"),
        (broker.Options, "controller/broker-n0.conf"),
        (broker.Options, "controller/broker-n1.conf"),
        (broker.Options, "controller/broker-n2.conf"),
        (namesrv.Options, "acting/namesrv.properties"),
        (broker.Options, "acting/broker-a.conf"),
        (broker.Options, "acting/broker-a-s.conf"),
        (broker.Options, "acting/broker-b.conf"),
        (broker.Options, "acting/broker-b-s.conf"),
    ],
)
def test_the_samples_have_only_known_keys(kind: type[ServerOptions], sample: str) -> None:
    etc = Path(__file__).resolve().parents[3] / "etc"
    assert parsed(kind, "-c", str(etc / sample)).loaded.notices == []
    # Stock takes such a name for a directory.
    assert "${" not in (etc / sample).read_text()
