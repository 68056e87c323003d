"""Only brokers of the cluster are heard as brokers where `clusterAddresses` names them: by their
address, until there are accounts."""

from __future__ import annotations

import json

import pytest
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.config.namesrv import NamesrvConfig
from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.namesrv.namesrv import NameServer
from rocketmq_tw.net import cluster_peers
from rocketmq_tw.net.interfaces import AccessChecks
from rocketmq_tw.net.server import RemotingServer
from rocketmq_tw.replication.links.members import SlaveAddressCheck
from rocketmq_tw.services.access import request_checks
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from tests.support.broker import BrokerInMemory
from tests.support.network import FakePeer, MemoryNetwork
from tests.support.sim.clock import ProcessClock
from tests.support.sim.controllers import Controllers
from tests.unit.controller.conftest import group_of_three

LOCAL, ADMIN, BROKER, STRANGER = "127.0.0.1", "10.8.0.7", "10.0.0.9", "10.66.0.1"
REFUSED = ResponseCode.NO_PERMISSION
CLUSTER = "10.0.0.0/24"


class World:
    """A machine with one server, and those who ask it."""

    def __init__(self, port: int, cluster_addresses: str = CLUSTER) -> None:
        self.network = MemoryNetwork(Clock())
        self.clock = ProcessClock(self.network.clock, self.network, "127.0.0.1")
        self.address = f"127.0.0.1:{port}"
        config = NettyServerConfig(
            bind_address="127.0.0.1",
            listen_port=port,
            admin_addresses="10.8.0.0/16",
            cluster_addresses=cluster_addresses,
        )
        checks = request_checks(config, self.clock.seconds, lambda request, peer: False)
        self.server = RemotingServer(self.clock, config, access=AccessChecks(requests=checks))

    def ask(self, host: str, code: int, body: bytes = b"", **fields: object) -> RemotingCommand:
        answers: list[RemotingCommand] = []
        texts = {name: str(value) for name, value in fields.items()}
        request = RemotingCommand(code, ext_fields=texts, body=body)
        self.network.client(host).request(self.address, request, 3.0).addCallback(answers.append)
        self.network.settle()
        return answers[0]


class NameServerWorld(World):
    def __init__(self, cluster_addresses: str = CLUSTER) -> None:
        super().__init__(9876, cluster_addresses)
        self.name_server = NameServer(self.clock, MemoryFiles(), NamesrvConfig())
        self.name_server.start(self.server)


OF_NAME_SERVERS = [
    RequestCode.REGISTER_BROKER,
    RequestCode.UNREGISTER_BROKER,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV,
    RequestCode.QUERY_DATA_VERSION,
    RequestCode.BROKER_HEARTBEAT,
]
FIELDS: dict[str, object] = {
    "clusterName": "C",
    "brokerName": "broker-a",
    "brokerId": 0,
    "brokerAddr": f"{BROKER}:10911",
    "haServerAddr": f"{BROKER}:10912",
    "topic": "T1",
}
BODIES = {
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: b'{"queueDatas":[]}',
    RequestCode.QUERY_DATA_VERSION: json.dumps({"timestamp": 1, "counter": 1}).encode(),
}


@pytest.mark.parametrize("code", OF_NAME_SERVERS)
def test_a_stranger_is_no_broker_to_a_name_server(code: RequestCode) -> None:
    world = NameServerWorld()
    body = BODIES.get(code, b"")
    with capturedLogs() as logs:
        answer = world.ask(STRANGER, code, body, **FIELDS)
    assert answer.code == REFUSED
    assert f"add {STRANGER} to clusterAddresses" in (answer.remark or "")
    (line,) = [text for event in logs if "clusterAddresses" in (text := formatEvent(event))]
    assert code.name in line and f"{STRANGER}:" in line
    assert world.name_server.table.broker_names() == []
    for host in (BROKER, LOCAL, ADMIN):
        assert world.ask(host, code, body, **FIELDS).code != REFUSED, host
    assert NameServerWorld("").ask(STRANGER, code, body, **FIELDS).code != REFUSED


@pytest.mark.parametrize(
    "code", [RequestCode.GET_BROKER_MEMBER_GROUP, RequestCode.GET_BROKER_CLUSTER_INFO]
)
def test_clients_look_as_before(code: RequestCode) -> None:
    assert NameServerWorld().ask(STRANGER, code, **FIELDS).code == 0


def test_the_log_tells_of_a_host_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_peers, "MAX_HOSTS", 2)
    world = NameServerWorld()

    def lines(*hosts: str) -> list[str]:
        with capturedLogs() as logs:
            for host in hosts:
                world.ask(host, RequestCode.BROKER_HEARTBEAT, **FIELDS)
        texts = [formatEvent(event) for event in logs]
        return [text for text in texts if "clusterAddresses" in text]

    assert len(lines(STRANGER, STRANGER, "10.66.0.2", "10.66.0.3")) == 2
    world.network.clock.advance(59)
    assert not lines(STRANGER)
    world.network.clock.advance(2)
    assert len(lines(STRANGER, "10.66.0.3", STRANGER)) == 2


def test_a_stranger_is_no_master_to_a_broker() -> None:
    world = World(10911)
    BrokerInMemory(
        clock=world.clock, network=world.network, address=world.address, server=world.server
    )
    code = RequestCode.EXCHANGE_BROKER_HA_INFO
    assert world.ask(STRANGER, code).code == REFUSED
    for host in (BROKER, LOCAL):
        assert world.ask(host, code).code == 0
    assert world.ask(STRANGER, RequestCode.GET_BROKER_HA_STATUS).code == 0


def test_a_stranger_is_no_slave() -> None:
    check = SlaveAddressCheck("", CLUSTER)
    with pytest.raises(RequestError, match=f"add {STRANGER} to clusterAddresses"):
        check(FakePeer(f"{STRANGER}:5"))
    for host in (BROKER, LOCAL):
        check(FakePeer(f"{host}:5"))
    # What is said of slaves alone counts for them alone.
    with pytest.raises(RequestError, match="haAddresses"):
        SlaveAddressCheck("10.77.0.0/16", CLUSTER)(FakePeer(f"{BROKER}:5"))


OF_CONTROLLERS = [
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
    RequestCode.CONTROLLER_ELECT_MASTER,
    RequestCode.CONTROLLER_REGISTER_BROKER,
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
    RequestCode.CONTROLLER_APPLY_BROKER_ID,
    RequestCode.CLEAN_BROKER_DATA,
    RequestCode.BROKER_HEARTBEAT,
]
OF_A_BROKER: dict[str, object] = {
    "clusterName": "C",
    "brokerName": "g",
    "brokerId": 2,
    "brokerAddr": f"{STRANGER}:10911",
    "brokerAddress": f"{STRANGER}:10911",
    "appliedBrokerId": 4,
    "registerCheckCode": "code",
    "masterBrokerId": 1,
    "masterEpoch": 1,
    "maxOffset": 10**15,
}
SET = b'{"syncStateSet":[1],"syncStateSetEpoch":1}'


@pytest.mark.parametrize("code", OF_CONTROLLERS)
def test_a_stranger_is_no_broker_to_a_controller(code: RequestCode) -> None:
    controllers = Controllers(admin_addresses="10.8.0.0/16", cluster_addresses=CLUSTER)
    group_of_three(controllers)
    before = controllers.leader().machine.state.group("g")
    assert before is not None
    controllers.asker = STRANGER
    for member in controllers.running:
        answer = controllers.ask(member, code, SET, **OF_A_BROKER)
        assert answer.code == REFUSED and "clusterAddresses" in (answer.remark or "")
    assert controllers.leader().machine.state.group("g") == before
    for controllers.asker in ("10.0.0.200", LOCAL, ADMIN):
        answer = controllers.ask(controllers.leader_id(), code, SET, **OF_A_BROKER)
        assert answer.code != REFUSED, controllers.asker


def test_a_stranger_may_look_at_the_controllers_groups() -> None:
    controllers = Controllers(cluster_addresses=CLUSTER)
    group_of_three(controllers)
    controllers.asker = STRANGER
    code = RequestCode.CONTROLLER_GET_REPLICA_INFO
    assert controllers.ask(controllers.leader_id(), code, brokerName="g").code == 0
