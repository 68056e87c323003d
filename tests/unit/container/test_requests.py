"""Brokers of one process come and go by requests 902 and 903; a container's own configuration."""

from __future__ import annotations

import re
from collections.abc import Callable

import javaproperties
import pytest
from twisted.logger import LogLevel, capturedLogs, formatEvent

from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.send import SendMessageRequestHeaderV2
from tests.support.containers import HOST, PORT, ContainerInMemory

STRANGER = "10.0.0.9"
SUCCESS, FAILED = ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR


def send(container: ContainerInMemory, port: int) -> RemotingCommand:
    header = SendMessageRequestHeaderV2(
        producer_group="P",
        topic="Topic",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=5,
        flag=0,
        properties="",
    )
    return container.ask(RequestCode.SEND_MESSAGE_V2, header, b"body", port=port)


def config_of(container: ContainerInMemory, port: int) -> dict[str, str]:
    answer = container.ask(RequestCode.GET_BROKER_CONFIG, port=port)
    assert answer.code == SUCCESS
    return javaproperties.loads(answer.body.decode())


def test_brokers_come_and_go_while_the_others_serve() -> None:
    container = ContainerInMemory()
    for name, port in (("a", 11), ("b", 21)):
        answer = container.add(container.file(name, port))
        assert (answer.code, answer.remark) == (SUCCESS, None)
        assert send(container, port).code == SUCCESS
    assert container.names() == ["DefaultCluster_a_0", "DefaultCluster_b_0"]
    answer = container.remove("a")
    assert (answer.code, answer.remark) == (SUCCESS, None)
    assert container.machine.open == {10811, 19, 21, 22}, "its ports are free again"
    assert send(container, 21).code == SUCCESS
    assert container.add("/a-0.conf").code == SUCCESS, "it is back, on the store that it had"
    assert send(container, 11).ext_fields["queueOffset"] == "1"


def test_a_broker_says_that_it_is_in_a_container() -> None:
    container = ContainerInMemory(namesrv_addr="10.0.0.1:9876")
    container.add(container.file("a", 11, "namesrvAddr=10.9.9.9:9876\nhaListenPort=4711\n"))
    config = config_of(container, 11)
    assert config["isInBrokerContainer"] == "true"
    assert config["haListenPort"] == "12", "as in stock: the next one, whatever the file says"
    assert config["namesrvAddr"] == "10.0.0.1:9876", "the container's"
    assert config["listenPort"] == "11"


def test_a_broker_keeps_its_own_name_servers_where_the_container_has_none() -> None:
    container = ContainerInMemory()
    container.add(container.file("a", 11, "namesrvAddr=10.9.9.9:9876\n"))
    assert config_of(container, 11)["namesrvAddr"] == "10.9.9.9:9876"


@pytest.mark.parametrize(
    ("text", "remark"),
    [
        ("brokerRole=SLAVE\nbrokerId=0\n", "slave broker id must be > 0"),
        ("brokerRole=SLAVE\n", "slave broker id must be > 0"),
        ("inSyncReplicas=2\n", "invalid replicas number"),
        ("totalReplicas=2\nminInSyncReplicas=2\n", "invalid replicas number"),
        (
            "duplicationEnable=true\n",
            "Can not add broker to container when duplicationEnable is true currently",
        ),
        ("enableControllerMode=true\nbrokerId=3\n", "add broker return null"),
        ("enableControllerMode=true\nbrokerRole=SLAVE\n", "add broker return null"),
        ("brokerId=many\n", ": brokerId does not accept its value"),
        ("totalReplicas=many\n", ": totalReplicas does not accept its value"),
        ("aclEnable=true\n", ": aclEnable does not accept its value"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(text: str, remark: str) -> None:
    container = ContainerInMemory()
    answer = container.add(container.file("a", 11, text))
    assert answer.code == FAILED
    assert remark in (answer.remark or "")
    assert container.names() == [] and container.machine.open == {10811}


def test_a_master_s_id_is_0_whatever_its_file_says() -> None:
    container = ContainerInMemory()
    assert container.add(container.file("a", 11, "brokerId=7\n")).code == SUCCESS
    assert container.names() == ["DefaultCluster_a_0"]


def test_no_path_and_no_file() -> None:
    container = ContainerInMemory()
    answer = container.add("")
    assert (answer.code, answer.remark) == (FAILED, "addBroker config path is empty")
    answer = container.add("/nothing")
    assert answer.code == FAILED
    assert answer.remark == "addBroker properties empty: /nothing: No such file or directory"


def test_no_text_of_a_file_is_told() -> None:
    container = ContainerInMemory()
    container.texts = {
        "/etc/shadow": "root:$6$secret:19000::::::\ndaemon:*:19000::::::\n",
        "/key.pem": "-----BEGIN SECRET KEY-----\nsecret\\u00zz\n",
        "/value": "brokerId=secret\n",
        "/switch": "aclEnable=true\nbrokerName=secret",
    }
    for path in container.texts:
        answer = container.add(path)
        assert answer.code == FAILED
        assert not re.search("secret|root|daemon|BEGIN", answer.remark or ""), answer.remark


def test_a_broker_that_is_there_already() -> None:
    container = ContainerInMemory()
    path = container.file("a", 11)
    container.add(path)
    answer = container.add(path)
    assert answer.code == FAILED
    assert answer.remark == "DefaultCluster_a_0 has already been added to current broker container"
    assert send(container, 11).code == SUCCESS


def test_a_taken_port_is_refused_and_what_was_opened_is_closed() -> None:
    container = ContainerInMemory()
    container.add(container.file("a", 11))
    ports = set(container.machine.open)
    answer = container.add(container.file("b", 11))
    assert answer.code == FAILED
    assert (answer.remark or "").startswith("start broker failed, ")
    assert "11" in (answer.remark or "")
    assert container.names() == ["DefaultCluster_a_0"] and container.machine.open == ports
    assert send(container, 11).code == SUCCESS
    answer = container.add(container.file("b", 21))
    assert answer.code == SUCCESS, "its store is free again"


def test_a_locked_store_is_refused() -> None:
    container = ContainerInMemory()
    container.add(container.file("a", 11, "storePathRootDir=/one\n"))
    ports = set(container.machine.open)
    answer = container.add(container.file("b", 21, "storePathRootDir=/one\n"))
    assert answer.code == FAILED
    assert (answer.remark or "").startswith("start broker failed, ")
    assert "/one is in use by another broker" in (answer.remark or "")
    assert container.machine.open == ports
    assert send(container, 11).code == SUCCESS


def test_a_master_and_a_slave_of_one_group_share_a_container() -> None:
    container = ContainerInMemory()
    assert container.add(container.file("a", 11)).code == SUCCESS
    assert container.add(container.file("a", 31, broker_id=1)).code == SUCCESS
    assert container.names() == ["DefaultCluster_a_0", "DefaultCluster_a_1"]
    assert container.remove("a", 1).code == SUCCESS
    assert send(container, 11).code == SUCCESS


def test_a_dledger_member_comes_and_goes() -> None:
    container = ContainerInMemory()
    keys = (
        "enableDLegerCommitLog=true\ndLegerGroup=a\ndLegerSelfId=n0\ndLegerPeers=n0-127.0.0.1:41\n"
    )
    assert container.add(container.file("a", 11, keys)).code == SUCCESS
    assert container.names() == ["DefaultCluster_a_0"] and 41 in container.machine.open
    for _ in range(100):
        container.machine.advance(0.1)
    assert send(container, 11).code == SUCCESS, "it elected itself"
    assert container.remove("a").code == SUCCESS
    assert container.names() == [] and container.machine.open == {10811}


@pytest.mark.parametrize(("name", "broker_id"), [("b", 0), ("a", 1)])
def test_an_unknown_broker_cannot_be_removed(name: str, broker_id: int) -> None:
    container = ContainerInMemory()
    container.add(container.file("a", 11))
    answer = container.remove(name, broker_id)
    assert (answer.code, answer.remark) == (ResponseCode.BROKER_NOT_EXIST, "Broker not exist")
    assert container.names() == ["DefaultCluster_a_0"]


def test_only_administrators_add_and_remove() -> None:
    container = ContainerInMemory()
    path = container.file("a", 11)
    answer = container.add(path, host=STRANGER)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "adminAddresses" in (answer.remark or "") and container.names() == []
    container.add(path)
    assert container.remove("a", host=STRANGER).code == ResponseCode.NO_PERMISSION
    assert container.names() == ["DefaultCluster_a_0"]


def said(asked: Callable[[], RemotingCommand]) -> list[str]:
    """The lines about who asks, from behind the address that was asked: whether they tell of a
    refusal, and what."""
    with capturedLogs() as events:
        asked()
    lines = []
    for event in events:
        who, asked_at, rest = (formatEvent(event) or "").partition(f" at {HOST}:{PORT} ")
        if asked_at:
            assert who.startswith(f"{HOST}:")
            lines.append(f"{'! ' if event['log_level'] is LogLevel.warn else ''}{rest}")
    return lines


def test_each_request_either_changes_something_or_looks() -> None:
    """What is said of those that change something is below."""
    changes = {RequestCode.ADD_BROKER, RequestCode.REMOVE_BROKER, RequestCode.UPDATE_BROKER_CONFIG}
    assert set(ContainerInMemory().handlers) == changes | {RequestCode.GET_BROKER_CONFIG}


def test_what_became_of_a_request_is_logged() -> None:
    container = ContainerInMemory()
    a, b = container.file("a", 11), container.file("b", 11)
    assert said(lambda: container.add(a)) == [
        f"wants the broker of {a} added",
        f"added DefaultCluster_a_0 of {a} (was not there)",
    ]
    already = "DefaultCluster_a_0 has already been added to current broker container"
    for path, why in (
        (a, already),
        (b, "start broker failed, "),
        ("/none", "addBroker properties"),
    ):
        asked, refused = said(lambda path=path: container.add(path))
        assert asked == f"wants the broker of {path} added"
        assert refused.startswith(f"! added no broker of {path}: {why}")
    wanted = "wants DefaultCluster_a_0 removed"
    assert said(lambda: container.remove("a")) == [
        wanted,
        f"removed DefaultCluster_a_0 (was of {a})",
    ]
    assert said(lambda: container.remove("a")) == [
        wanted,
        "! removed no broker: DefaultCluster_a_0 is not there",
    ]


def test_the_container_s_own_configuration_is_read_and_changed() -> None:
    container = ContainerInMemory(broker_config_paths="/a.conf:/b.conf")
    config = config_of(container, 10811)
    assert config["brokerConfigPaths"] == "/a.conf:/b.conf"
    assert config["listenPort"] == "10811"
    change = b"maxBrokerRestartPauseMillis=5000"
    (line,) = said(lambda: container.ask(RequestCode.UPDATE_BROKER_CONFIG, body=change))
    assert line.startswith("changed the configuration: maxBrokerRestartPauseMillis=5000 (was ")
    assert container.config.max_broker_restart_pause_millis == 5_000
    assert container.files.read("/container.conf") == change + b"\n"
    for body in (b"brokerConfigPaths=/c.conf", b"rocketmqHome=/tmp", b"configBlackList="):
        answer = container.ask(RequestCode.UPDATE_BROKER_CONFIG, body=body)
        assert answer.code == ResponseCode.NO_PERMISSION
    answer = container.ask(RequestCode.UPDATE_BROKER_CONFIG, body=change, host=STRANGER)
    assert answer.code == SUCCESS, "that is what it is already"
    answer = container.ask(
        RequestCode.UPDATE_BROKER_CONFIG, body=b"maxBrokerRestartPauseMillis=1", host=STRANGER
    )
    assert answer.code == ResponseCode.NO_PERMISSION


def test_a_stop_stops_all_and_nothing_is_added_any_more() -> None:
    container = ContainerInMemory()
    container.add(container.file("a", 11))
    container.add(container.file("a", 31, broker_id=1))
    stopped = container.container.stop()
    for _ in range(100):
        container.machine.advance(0.1)
    assert stopped.called and container.names() == []
    assert container.machine.open == {10811}
    assert container.add("/a-0.conf").remark == "the container stops"
    assert not [name for name in container.files.list("/store/a-0.conf") if name == "abort"]
