"""Configuration files: what is read, what is refused and how that is said."""

import re
from collections import Counter
from functools import cache
from pathlib import Path
from time import process_time
from typing import Any

import javaproperties
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rocketmq_tw
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.container import BrokerContainerConfig
from rocketmq_tw.config.controller import ControllerConfig
from rocketmq_tw.config.load import Loaded, load
from rocketmq_tw.config.namesrv import NamesrvConfig, StandaloneConfig
from rocketmq_tw.config.net import NettyClientConfig, NettyServerConfig, TlsConfig
from rocketmq_tw.config.properties import (
    ConfigError,
    Setting,
    change_properties,
    read_json,
    read_properties,
    write_properties,
)
from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.config.schema import all_stock_names, keys_of, stock_keys
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.config.values import delay_levels_ms, format_value

TYPES = (BrokerConfig, MessageStoreConfig, NettyServerConfig, TlsConfig)
ALL_TYPES = (
    *TYPES,
    NamesrvConfig,
    NettyClientConfig,
    StandaloneConfig,
    ControllerConfig,
    BrokerContainerConfig,
    ProxyConfig,
)
#: Keys that stock has not.
OURS = {
    "adminAddresses",
    "haProxyAddresses",
    "advertisedAddress",
    "brokerProcesses",
    "clusterAddresses",
    "brokerStopTimeoutMillis",
    "checkCRCOnRead",
    "controllerSnapshotInterval",
    # Stock's proxies have it.
    "enableTopicMessageTypeCheck",
    "frameMaxLength",
    "grpcKeepaliveSeconds",
    "grpcMaxMetadataBytes",
    "grpcMaxStreams",
    "haAddresses",
    "maxBrokerRestartPauseMillis",
    "maxBytesInFlight",
    "maxConnections",
    "maxConnectionsPerBroker",
    "maxTopicBytes",
    "maxUnreadBytes",
    "maxUnreadSeconds",
    "memberAddresses",
    "namesrvListenPort",
    # Stock's setter has this name, its listing the other one.
    "processReadEvent",
    "refuseTakenBrokerIds",
    "remotingBrokerPorts",
    "sharePorts",
}
#: Ports that a server sets by itself: its own one, and the one for slaves next to it.
PORTS = {"listenPort", "haListenPort"}


def read(text: str) -> Loaded:
    return load(TYPES, read_properties(text, "b.properties"), "/home/me")


def test_values_become_what_their_keys_are() -> None:
    loaded = read(
        "brokerName = b-1\nbrokerId=3\nautoCreateTopicEnable=FALSE\n"
        "flushDiskType=SYNC_FLUSH\nlistenPort=0\nbrokerIP1=10.0.0.1\n"
    )
    broker = loaded[BrokerConfig]
    assert (broker.broker_name, broker.broker_id, broker.broker_ip1) == ("b-1", 3, "10.0.0.1")
    assert broker.auto_create_topic_enable is False
    assert loaded[MessageStoreConfig].flush_disk_type == "SYNC_FLUSH"
    assert loaded[NettyServerConfig].listen_port == 0
    assert loaded.notices == []


def test_java_s_notation() -> None:
    settings = read_properties(
        "# c\n! c\nbrokerName : b\\u00e4\\\n   ck\n\nnamesrvAddr\\ x=1\nempty\n", "f"
    )
    assert settings == [
        Setting("brokerName", "b\u00e4ck", "f:3"),
        Setting("namesrvAddr x", "1", "f:6"),
        Setting("empty", "", "f:7"),
    ]


@pytest.mark.parametrize(
    ("line", "accepted"),
    [
        ("listenPort=abc", "integer from 0 to 65535"),
        ("listenPort=65536", "integer from 0 to 65535"),
        ("brokerId=-2", "integer from -1 to"),
        ("brokerId=1_0", "integer from -1 to"),
        ("flushIntervalCommitLog=2147483648", "to 2147483647"),
        ("autoCreateTopicEnable=yes", "true or false"),
        ("flushDiskType=SYNC", "ASYNC_FLUSH, SYNC_FLUSH"),
        ("brokerRole=MASTER", "ASYNC_MASTER, SYNC_MASTER, SLAVE"),
        ("namesrvAddr=127.0.0.1", "host:port"),
        ("namesrvAddr=a:1;b", "host:port"),
        ("namesrvAddr=a:0", "host:port"),
        ("bindAddress=", "a host name or an IP address"),
        ("bindAddress=a..b", "a host name or an IP address"),
        ("brokerIP1=127.0.0.1:10911", "a host name or an IP address"),
        ("storePathRootDir=", "give a path"),
        ("brokerPermission=8", "0 to 7"),
        ("tls.server.mode=on", "disabled, permissive, enforcing"),
        ("fileReservedTime=-1", "from 1 to 878400"),
        ("fileReservedTime=0", "from 1 to 878400"),
        ("deleteWhen=25", "hours from 0 to 23"),
        ("deleteWhen=-4", "hours from 0 to 23"),
        ("deleteWhen=", "hours from 0 to 23"),
        ("deleteWhen=04;;16", "hours from 0 to 23"),
        ("messageDelayLevel=1s 5x", "durations with s, m, h or d"),
        ("messageDelayLevel=", "durations with s, m, h or d"),
        ("consumerOffsetUpdateVersionStep=0", "from 1 to"),
        ("travelCqFileNumWhenGetMessage=0", "from 1 to"),
        ("flushIntervalCommitLog=0", "from 1 to 2147483647"),
        ("deleteFileBatchMax=0", "from 1 to"),
        ("maxHashSlotNum=0", "from 1 to 100000000"),
        ("maxIndexNum=2000000000", "from 2 to 80000000"),
        ("diskSpaceWarningLevelRatio=101", "from 0 to 100"),
        ("startAcceptSendRequestTimeStamp=-1", "from 0 to 9223372036854775807"),
        ("shutdownWaitTimeSeconds=-1", "from 0 to 2147483647"),
    ],
)
def test_a_wrong_value_names_file_line_and_what_is_accepted(line: str, accepted: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(f"brokerName=b\n\n{line}\n")
    assert str(caught.value).startswith(f"b.properties:3: {line}: ")
    assert accepted in str(caught.value)


def test_a_broken_escape_names_its_line() -> None:
    with pytest.raises(ConfigError, match=r"b\.properties:2"):
        read("brokerName=b\nbrokerId=\\u12\n")


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("brokerNam", "brokerName"),
        ("flushdisktype", "flushDiskType"),
        ("namesrvAddress", "namesrvAddr"),
        ("autoCreateTopicEnabled", "autoCreateTopicEnable"),
    ],
)
def test_an_unknown_key_warns_with_the_nearest(key: str, meant: str) -> None:
    (notice,) = read(f"{key}=1\n").notices
    assert notice.is_warning
    assert notice.text == f"b.properties:1: {key} is no known key: did you mean {meant}?"


def test_a_key_like_no_other_warns_without_a_guess() -> None:
    (notice,) = read("zzzzzzzz=1\n").notices
    assert notice.text == "b.properties:1: zzzzzzzz is no known key"


@pytest.mark.parametrize(
    "key",
    [
        "sendMessageThreadPoolNums",
        "filterServerNums",
        "rocketmqHome",
        "controllerDeployedStandAlone",
    ],
)
def test_a_key_of_stock_without_effect_is_no_warning(key: str) -> None:
    (notice,) = read(f"{key}=1\n").notices
    assert not notice.is_warning


@pytest.mark.parametrize("key", ["aclEnable", "authenticationEnabled"])
def test_what_is_not_there_is_not_promised(key: str) -> None:
    with pytest.raises(ConfigError, match=f"b.properties:2: {key}=true: .* is not there"):
        read(f"brokerName=b\n{key}=true\n")
    assert not read(f"{key}=true\n{key}=false\n")[BrokerConfig].broker_name


def test_the_later_setting_wins_and_home_is_known() -> None:
    settings = [
        Setting("brokerName", "first", "file:1"),
        Setting("brokerName", "second", "-o"),
        Setting("storePathRootDir", "${user.home}/store", "file:2"),
    ]
    loaded = load(TYPES, settings, "/home/me")
    assert loaded[BrokerConfig].broker_name == "second"
    assert loaded[MessageStoreConfig].store_path_root_dir == "/home/me/store"


def test_what_is_printed_loads_to_the_same() -> None:
    loaded = read("brokerName=b\u00e4=c\nlistenPort=7\nmessageDelayLevel=1s 2s\n")
    again = read(loaded.properties())
    for config_type in TYPES:
        assert again[config_type] == loaded[config_type]
    assert again.notices == []


@pytest.mark.parametrize("config_type", ALL_TYPES)
def test_our_keys_are_stocks_with_its_defaults(config_type: type[Any]) -> None:
    defaults = config_type()
    for name, key in keys_of(config_type).items():
        if name in OURS or name.startswith("tls."):
            continue
        assert name in all_stock_names(), f"{name} is no key of stock and not among ours"
        stock = stock_keys().get(config_type.__name__, {}).get(name)
        value = getattr(defaults, key.attribute)
        if stock is None or stock["default"] in (None, "(host)") or name in PORTS:
            continue
        assert format_value(value) == stock["default"], name


@pytest.mark.parametrize("config_type", ALL_TYPES)
def test_no_number_may_be_negative_and_every_default_is_accepted(config_type: type[Any]) -> None:
    defaults = config_type()
    for name, key in keys_of(config_type).items():
        default = getattr(defaults, key.attribute)
        assert key.parse(format_value(default)) == default, name
        # Stock's samples for controller mode have brokerId=-1.
        if key.type is int and default >= 0 and name != "brokerId":
            with pytest.raises(ValueError, match="give an integer from"):
                key.parse("-1")


@cache
def words_of_package() -> Counter[str]:
    """How often each word stands in the package's source."""
    words = Counter[str]()
    for file in Path(rocketmq_tw.__file__).parent.rglob("*.py"):
        words.update(re.findall(r"\w+", file.read_text()))
    return words


@pytest.mark.parametrize("config_type", ALL_TYPES)
def test_every_key_that_is_taken_is_read_somewhere(config_type: type[Any]) -> None:
    words = words_of_package()
    for key in keys_of(config_type).values():
        assert words[key.attribute] > 1, f"{key.name} has no effect"


@pytest.mark.parametrize("config_type", ALL_TYPES)
def test_no_number_is_larger_than_stock_can_read(config_type: type[Any]) -> None:
    of_java_s_int = {
        name for keys in stock_keys().values() for name, key in keys.items() if key["type"] == "int"
    }
    for name, key in keys_of(config_type).items():
        if key.type is int and name in of_java_s_int:
            with pytest.raises(ValueError, match="give an integer from"):
                key.parse(str(2**31))


@pytest.mark.parametrize("config_type", ALL_TYPES)
def test_what_is_long_in_stock_is_long_here(config_type: type[Any]) -> None:
    stock = stock_keys().get(config_type.__name__, {})
    for name, key in keys_of(config_type).items():
        if name in stock and stock[name]["type"] == "long":
            assert key.parse(str(2**63 - 1)) == 2**63 - 1, name


@pytest.mark.parametrize("config_type", ALL_TYPES)
def test_secrets_and_paths_say_that_they_are(config_type: type[Any]) -> None:
    for name, key in keys_of(config_type).items():
        secret = re.search("password|secret|token|credential|accesskey|header", name, re.I)
        assert key.is_secret == bool(secret), name
        assert key.is_local_path == bool(re.search("path|home", name, re.I)), name
        assert not (key.is_live and (key.is_secret or key.is_local_path)), name


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("deleteWhen=4; 16", "4; 16"),
        ("messageDelayLevel= 1s  2d ", "1s  2d"),
        ("deleteWhen=00;", "00;"),
    ],
)
def test_lists_are_kept_as_they_are(line: str, value: str) -> None:
    store = read(line)[MessageStoreConfig]
    assert value in (store.delete_when, store.message_delay_level)


def test_changes_stand_where_the_key_stood() -> None:
    text = "# top\na=1\nb=2\na=3"
    assert change_properties(text, {"a": "9", "new": "x"}) == "# top\na=9\nb=2\nnew=x\n"
    assert change_properties("b=2", {"a": "1"}) == "b=2\na=1\n"


@given(st.dictionaries(st.text(min_size=1), st.text(), max_size=5))
def test_what_is_written_is_read(values: dict[str, str]) -> None:
    text = write_properties(values.items())
    assert {s.key: s.value for s in read_properties(text, "f")} == values
    assert [s.origin for s in read_properties(text, "f")] == [
        f"f:{number}" for number in range(1, len(values) + 1)
    ]


@given(st.text("ab\\\\\\\n\n\r \t\f=:#!u0041", max_size=20))
def test_files_are_read_as_java_reads_them(text: str) -> None:
    try:
        pairs = [
            (element.key, element.value)
            for element in javaproperties.parse(text)
            if isinstance(element, javaproperties.KeyValue)
        ]
    except javaproperties.InvalidUEscapeError:
        with pytest.raises(ConfigError, match="escape"):
            read_properties(text, "f")
    else:
        assert [(each.key, each.value) for each in read_properties(text, "f")] == pairs
        assert change_properties(text, {}) == text


@pytest.mark.parametrize("piece", ["a\\\n", "\\\n", "\\a\n", "a\\\r", " \\\n", "\\", "\n"])
def test_the_time_of_reading_grows_with_the_text_only(piece: str) -> None:
    text = piece * (65_536 // len(piece))
    began = process_time()
    read_properties(text, "f")
    change_properties(text, {"a": "1"})
    # Tens of seconds where each line is put together with all before it.
    assert process_time() - began < 5


def test_a_json_file_has_a_value_for_each_key() -> None:
    text = '{"proxyClusterName": "c", "grpcServerPort": 0, "enableBatchAck": true, "x": null}'
    settings = read_json(text, "rmq-proxy.json")
    loaded = load((ProxyConfig,), settings, "/home/me")
    config = loaded[ProxyConfig]
    assert (config.proxy_cluster_name, config.grpc_server_port) == ("c", 0)
    assert config.enable_batch_ack
    assert loaded.notices == []


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", "[]", '{"a": []}', '{"a": {"b": 1}}', '{"a": [2]}']
)
def test_what_is_no_such_file_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="rmq-proxy"):
        read_json(text, "rmq-proxy.json")


def test_an_empty_json_file_has_the_defaults() -> None:
    assert read_json("{}", "rmq-proxy.json") == []


@pytest.mark.parametrize("mode", ["Local", "LOCAL", " local "])
def test_the_mode_of_a_proxy_is_read_in_any_case(mode: str) -> None:
    config = load((ProxyConfig,), [Setting("proxyMode", mode, "-o")], "/home/me")[ProxyConfig]
    assert config.proxy_mode == "LOCAL"


def test_delay_levels_are_milliseconds() -> None:
    assert delay_levels_ms("1s 2m 3h 1d") == (1_000, 120_000, 10_800_000, 86_400_000)
    for wrong in ("", "1", "s", "-1s", "1s 5y", "٣s"):
        with pytest.raises(ValueError, match="durations with s, m, h or d"):
            delay_levels_ms(wrong)
