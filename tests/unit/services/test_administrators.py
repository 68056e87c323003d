"""Only administrators end a service or remove data: by their address, until there are accounts."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.config.namesrv import NamesrvConfig
from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.namesrv.namesrv import NameServer
from rocketmq_tw.net.interfaces import AccessChecks
from rocketmq_tw.net.server import RemotingServer
from rocketmq_tw.services.access import request_checks
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.broker import BrokerInMemory
from tests.support.network import MemoryNetwork
from tests.support.sim.clock import ProcessClock

LOCAL, ADMIN, STRANGER = "127.0.0.1", "10.1.0.7", "10.0.0.9"
REFUSED = ResponseCode.NO_PERMISSION


class World:
    """A machine with one server, and clients elsewhere."""

    def __init__(self, port: int, admin_addresses: str) -> None:
        self.network = MemoryNetwork(Clock())
        self.clock = ProcessClock(self.network.clock, self.network, "127.0.0.1")
        self.address = f"127.0.0.1:{port}"
        config = NettyServerConfig(
            bind_address="127.0.0.1", listen_port=port, admin_addresses=admin_addresses
        )
        access = AccessChecks(requests=request_checks(config, self.clock.seconds))
        self.server = RemotingServer(self.clock, config, access=access)

    def ask(self, host: str, code: int, body: bytes = b"", **fields: str) -> RemotingCommand:
        answers: list[RemotingCommand] = []
        request = RemotingCommand(code, ext_fields=dict(fields), body=body)
        self.network.client(host).request(self.address, request, 3.0).addCallback(answers.append)
        self.network.settle()
        return answers[0]


class BrokerWorld(World):
    def __init__(self, admin_addresses: str = "") -> None:
        super().__init__(10911, admin_addresses)
        self.broker = BrokerInMemory(
            clock=self.clock, network=self.network, address=self.address, server=self.server
        )

    def change(self, host: str, text: str) -> RemotingCommand:
        return self.ask(host, RequestCode.UPDATE_BROKER_CONFIG, text.encode())


class NameServerWorld(World):
    def __init__(self, admin_addresses: str = "") -> None:
        super().__init__(9876, admin_addresses)
        self.config = NamesrvConfig()
        NameServer(self.clock, MemoryFiles(), self.config).start(self.server)

    def change(self, host: str, text: str) -> RemotingCommand:
        return self.ask(host, RequestCode.UPDATE_NAMESRV_CONFIG, text.encode())


@pytest.mark.parametrize(
    "text",
    [
        "diskSpaceCleanForciblyRatio=0",
        "fileReservedTime=1",
        "brokerPermission=0",
        "rejectTransactionMessage=true",
        "minInSyncReplicas=9",
        "traceOn=false\nfileReservedTime=1",
    ],
)
def test_a_stranger_changes_nothing_that_harms(text: str) -> None:
    world = BrokerWorld()
    before = world.broker.broker.config.trace_on, world.broker.store_config
    with capturedLogs() as logs:
        answer = world.change(STRANGER, text)
    assert answer.code == REFUSED
    assert f"add {STRANGER} to adminAddresses" in (answer.remark or "")
    assert (world.broker.broker.config.trace_on, world.broker.store_config) == before
    assert [1 for event in logs if f"{STRANGER}:" in formatEvent(event)], "it says who asked"
    assert world.change(LOCAL, text).code == 0


def test_what_harms_nothing_and_what_changes_nothing_is_anyones() -> None:
    world = BrokerWorld()
    assert world.change(STRANGER, "traceOn=false").code == 0
    assert world.change(STRANGER, "fileReservedTime=72").code == 0
    assert not world.broker.broker.config.trace_on


def test_an_administrator_elsewhere_is_heard_where_its_network_is_named() -> None:
    world = BrokerWorld("10.1.0.0/16")
    assert world.change(STRANGER, "fileReservedTime=48").code == REFUSED
    assert world.change(ADMIN, "fileReservedTime=48").code == 0
    assert world.change(LOCAL, "fileReservedTime=49").code == 0
    assert world.broker.store_config.file_reserved_time == 49
    # Who was an administrator once has not become one for others.
    assert world.change(STRANGER, "fileReservedTime=48").code == REFUSED


def test_nobody_moves_a_broker_to_other_controllers() -> None:
    world = BrokerWorld("10.1.0.0/16")
    for host in (LOCAL, ADMIN, STRANGER):
        assert world.change(host, "controllerAddr=10.0.0.9:9878").code == REFUSED
    assert world.broker.broker.config.controller_addr == ""


OF_BROKERS: list[tuple[RequestCode, dict[str, str]]] = [
    (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Named"}),
    (RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "Named"}),
    (
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        {"topic": "Named", "group": "g", "timestamp": "0", "isForce": "true"},
    ),
    (RequestCode.CLONE_GROUP_OFFSET, {"srcGroup": "a", "destGroup": "b", "topic": "Named"}),
    (
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
        {"group": "g", "topic": "Named", "readable": "false"},
    ),
    (RequestCode.CLEAN_UNUSED_TOPIC, {}),
    (RequestCode.DELETE_EXPIRED_COMMITLOG, {}),
]


@pytest.mark.parametrize(("code", "fields"), OF_BROKERS)
def test_what_removes_data_is_for_administrators_where_they_are_named(
    code: RequestCode, fields: dict[str, str]
) -> None:
    world = BrokerWorld("10.1.0.0/16")
    world.broker.add_topic("Named")
    with capturedLogs() as logs:
        answer = world.ask(STRANGER, code, **fields)
    assert answer.code == REFUSED and "adminAddresses" in (answer.remark or "")
    assert any(code.name in formatEvent(event) and STRANGER in formatEvent(event) for event in logs)
    assert world.broker.topics.get("Named") is not None
    for host in (ADMIN, LOCAL):
        assert world.ask(host, code, **fields).code != REFUSED
    # As in stock.
    assert BrokerWorld().ask(STRANGER, code, **fields).code != REFUSED


OF_NAME_SERVERS: list[tuple[RequestCode, dict[str, str]]] = [
    (RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "b"}),
    (RequestCode.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "b"}),
    (RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "Named"}),
    (RequestCode.PUT_KV_CONFIG, {"namespace": "n", "key": "k", "value": "v"}),
    (RequestCode.DELETE_KV_CONFIG, {"namespace": "n", "key": "k"}),
]


@pytest.mark.parametrize(("code", "fields"), OF_NAME_SERVERS)
def test_the_same_of_a_name_server(code: RequestCode, fields: dict[str, str]) -> None:
    world = NameServerWorld("10.1.0.0/16")
    assert world.ask(STRANGER, code, **fields).code == REFUSED
    for host in (ADMIN, LOCAL):
        assert world.ask(host, code, **fields).code == 0
    assert NameServerWorld().ask(STRANGER, code, **fields).code == 0


@pytest.mark.parametrize("text", ["needWaitForService=true", "waitSecondsForService=99999"])
def test_no_stranger_makes_a_name_server_wait(text: str) -> None:
    world = NameServerWorld()
    assert world.change(STRANGER, text).code == REFUSED
    assert world.config == NamesrvConfig()
    assert world.change(LOCAL, text).code != REFUSED


def test_values_of_a_name_server_are_changed_by_name() -> None:
    world = NameServerWorld()
    fields: dict[str, Any] = {"namespace": "n", "key": "k"}
    with capturedLogs() as logs:
        world.ask(STRANGER, RequestCode.PUT_KV_CONFIG, value="v", **fields)
        world.ask(STRANGER, RequestCode.DELETE_KV_CONFIG, **fields)
    lines = [formatEvent(event) for event in logs if STRANGER in formatEvent(event)]
    assert len(lines) == 2 and all("k in n" in line for line in lines)
