"""318 and 319: a few keys may be changed, no path and no secret is ever told."""

import errno
from threading import Thread
from typing import Any

import pytest
from twisted.logger import LogLevel, capturedLogs, formatEvent

from rocketmq_tw.config.namesrv import NamesrvConfig
from rocketmq_tw.config.net import TlsConfig
from rocketmq_tw.config.properties import StartFile
from rocketmq_tw.files.atomic import write_atomic
from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.net.administrators import ADMINISTRATOR
from rocketmq_tw.net.live_config import in_config_file, kept_config
from rocketmq_tw.runtime.threads import at_once
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError
from tests.support.broker import fired
from tests.support.network import FakePeer


def test_a_change_holds_and_is_kept_beside_what_the_file_says(namesrv: Any) -> None:
    path = namesrv.config.config_store_path
    write_atomic(namesrv.files, path, b"# mine\nlistenPort=9876\nenableTopicList=true\n")
    with capturedLogs() as logs:
        administrator = FakePeer(identity=ADMINISTRATOR)
        namesrv.ask(
            318, {}, b"enableTopicList=false\norderMessageEnable=TRUE\n", peer=administrator
        )
    _, log = logs
    assert "enableTopicList=false (was true), orderMessageEnable=true (was false)" in formatEvent(
        log
    )
    assert not namesrv.config.enable_topic_list
    assert namesrv.config.order_message_enable
    assert namesrv.files.read(path) == (
        b"# mine\nlistenPort=9876\nenableTopicList=false\norderMessageEnable=true\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "kvConfigPath=/etc/passwd",
        "configStorePath=/etc/cron.d/x",
        "rocketmqHome=/tmp",
        "configBlackList=",
        "listenPort=1",
        "tls.server.mode=disabled",
        "unheardOf=1",
    ],
)
def test_what_may_not_be_changed(namesrv: Any, text: str) -> None:
    with pytest.raises(RequestError, match="keys that can be changed: ") as caught:
        namesrv.ask(318, {}, f"orderMessageEnable=true\n{text}\n".encode())
    assert caught.value.code == ResponseCode.NO_PERMISSION
    assert not namesrv.config.order_message_enable, "all or nothing"
    assert not namesrv.files.exists(namesrv.config.config_store_path)


@pytest.mark.parametrize(
    "body", [b"orderMessageEnable=perhaps", b"waitSecondsForService=-1", b"\xff=1", b"a=\\u12"]
)
def test_a_wrong_value_changes_nothing(namesrv: Any, body: bytes) -> None:
    with pytest.raises(RequestError) as caught:
        namesrv.ask(318, {}, body)
    assert caught.value.code == ResponseCode.SYSTEM_ERROR
    assert not namesrv.files.exists(namesrv.config.config_store_path)


def test_the_operators_black_list_counts(make_namesrv: Any) -> None:
    namesrv = make_namesrv(config_black_list="orderMessageEnable")
    with pytest.raises(RequestError):
        namesrv.ask(318, {}, b"orderMessageEnable=true")


def test_no_path_and_no_secret_is_told() -> None:
    tls = TlsConfig(server_key_password="hush", server_key_path="/etc/key.pem")
    text = kept_config(
        MemoryFiles(), NamesrvConfig(kv_config_path="/secret/kv"), [tls], at_once
    ).text()
    assert "orderMessageEnable=false\n" in text
    for word in ("hush", "pem", "/secret", "Path=", "assword"):
        assert word not in text


def test_keys_without_an_effect_have_the_defaults_of_stock(namesrv: Any) -> None:
    shown = namesrv.ask(319, {}).body.decode()
    assert "clientRequestThreadPoolNums=8\n" in shown
    namesrv.ask(318, {}, b"clientRequestThreadPoolNums=8")
    with pytest.raises(RequestError, match="it is taken as 8 and cannot be changed; "):
        namesrv.ask(318, {}, b"clientRequestThreadPoolNums=9")


@pytest.mark.parametrize("text", ["kvConfigPath=/secret/kv", "tls.server.keyPassword=hush"])
def test_what_is_not_told_is_not_compared_either(text: str) -> None:
    tls = TlsConfig(server_key_password="hush", server_key_path="/etc/key.pem")
    config = NamesrvConfig(kv_config_path="/secret/kv", config_black_list="")
    live = kept_config(MemoryFiles(), config, [tls], at_once)
    with pytest.raises(RequestError) as caught:
        fired(live.update(text.encode(), FakePeer()))
    assert caught.value.code == ResponseCode.NO_PERMISSION


def test_what_a_key_says_already_is_no_change(namesrv: Any) -> None:
    namesrv.ask(318, {}, b"scanNotActiveBrokerInterval=5000\nenableTopicList=true\n")
    assert not namesrv.files.exists(namesrv.config.config_store_path), "it may change neither"


def test_a_file_that_is_gone_is_not_made_of_one_change() -> None:
    """The next start would take it for the whole configuration."""
    files, config = MemoryFiles(), NamesrvConfig(config_store_path="/ns.properties")
    live = kept_config(files, config, (), at_once, start=StartFile("/ns.properties"))
    with pytest.raises(RequestError, match="of configStorePath: no such file") as caught:
        fired(live.update(b"orderMessageEnable=true", FakePeer()))
    assert caught.value.code == ResponseCode.SYSTEM_ERROR
    assert not config.order_message_enable
    assert not files.exists("/ns.properties")


def test_a_change_that_no_start_reads_is_said_to_be_one() -> None:
    files = MemoryFiles()
    config = NamesrvConfig(config_store_path="/home/me/namesrv.properties")
    live = kept_config(files, config, (), at_once)
    with capturedLogs() as logs:
        remark = fired(live.update(b"orderMessageEnable=true", FakePeer()))
    assert "no start reads it unless -c names it" in remark
    assert "/home/me" not in remark
    warnings = [formatEvent(log) for log in logs if log["log_level"] is LogLevel.warn]
    assert warnings == [
        "the change is in /home/me/namesrv.properties, which no start reads unless -c names it"
    ]
    assert files.read("/home/me/namesrv.properties") == b"orderMessageEnable=true\n"
    assert fired(live.update(b"orderMessageEnable=true", FakePeer())) == remark, "no less true"


def test_an_error_of_the_disk_names_the_key_of_the_file() -> None:
    files = FaultyFiles(MemoryFiles())
    config = NamesrvConfig(config_store_path="/etc/ns.properties")
    write_atomic(files, config.config_store_path, b"")
    files.faults.append(Fault("create", error=errno.EROFS))
    live = kept_config(files, config, (), at_once)
    with pytest.raises(RequestError, match="file of configStorePath: Read-only file system"):
        fired(live.update(b"orderMessageEnable=true", FakePeer()))


def test_two_servers_of_one_file_do_not_lose_each_others_changes() -> None:
    """As a name server and a broker in one process."""
    disk = MemoryFiles()
    write_atomic(disk, "/both.conf", b"a=1\nb=1\n")
    files = FaultyFiles(disk)
    other = Thread(target=lambda: in_config_file(disk, "/both.conf", at_once)({"b": "2"}))

    def meanwhile() -> None:
        files.before_change = lambda: None
        other.start()
        other.join(0.05)

    files.before_change = meanwhile
    in_config_file(files, "/both.conf", at_once)({"a": "2"})
    other.join()
    assert disk.read("/both.conf") == b"a=2\nb=2\n"
