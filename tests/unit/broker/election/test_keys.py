"""The keys of a broker in controller mode: each one does what it says."""

from __future__ import annotations

import socket
from itertools import pairwise
from typing import Any

import pytest

from rocketmq_tw.broker.election.part import CONTROLLER_LOOK_UP_SECONDS
from rocketmq_tw.broker.replicas.part import Replicas
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.config.properties import ConfigError
from rocketmq_tw.controller.requests import ControllerRequests
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.namesrv import BrokerHeartbeatRequestHeader
from tests.support.broker import fired
from tests.support.sim.controllers import PEERS
from tests.support.sim.group import NAME, ElectedGroup
from tests.support.stores import ROOT


class Asked:
    """What brokers ask controllers from now on, and when."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = lambda: 0.0
        self.notes: list[tuple[float, str, RemotingCommand]] = []
        handlers, notes = ControllerRequests.handlers, self.notes

        def noted(requests: ControllerRequests) -> dict[int, Any]:
            member = requests._config.controller_dledger_self_id

            def note(handler: Any) -> Any:
                def handle(request: RemotingCommand, peer: Any) -> Any:
                    notes.append((self.seconds(), member, request))
                    return handler(request, peer)

                return handle

            return {code: note(handler) for code, handler in handlers(requests).items()}

        monkeypatch.setattr(ControllerRequests, "handlers", noted)

    def of(self, code: int) -> list[tuple[float, str, RemotingCommand]]:
        return [note for note in self.notes if note[2].code == code]

    def forget(self) -> None:
        self.notes.clear()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


def led(asked: Asked, count: int = 1, **keys: Any) -> ElectedGroup:
    """A group whose first broker is the master, and the others are in sync."""
    broker = keys.pop("broker", {})
    group = ElectedGroup(broker, **keys)
    asked.seconds = group.clock.seconds
    group.controllers.leader()
    group.start(1)
    group.run_until(lambda: group.masters() == [1])
    for number in range(2, count + 1):
        group.start(number)
    group.run_until(lambda: len(group.in_sync()) == count)
    asked.forget()
    return group


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("sync_broker_metadata_period", RequestCode.CONTROLLER_GET_REPLICA_INFO),
        ("sync_controller_metadata_period", RequestCode.CONTROLLER_GET_METADATA_INFO),
        ("broker_heartbeat_interval", RequestCode.BROKER_HEARTBEAT),
    ],
)
@pytest.mark.parametrize("period", [400, 1500])
def test_what_is_asked_at_its_period(asked: Asked, key: str, code: int, period: int) -> None:
    group = led(asked, broker={key: period})
    group.run(8 * period / 1000)
    notes = asked.of(code)
    if code == RequestCode.BROKER_HEARTBEAT:
        # Every controller hears of it.
        assert {member for _, member, _ in notes} == set(PEERS)
        notes = [note for note in notes if note[1] == "n1"]
    times = [at for at, _, _ in notes]
    assert len(times) in (7, 8, 9)
    for before, after in pairwise(times):
        assert after - before == pytest.approx(period / 1000, abs=0.02)


def test_a_heartbeat_says_how_far_the_log_is(asked: Asked) -> None:
    group = led(
        asked,
        2,
        broker={
            "controller_heart_beat_timeout_mills": 43_210,
            "broker_election_priority": 7,
        },
        all_ack_in_sync_state_set=True,
    )
    master = group.brokers[1]
    confirmed = master.broker[Replicas].switching.progress.confirmed
    group.processes[2].pause()
    group.send(1, b"held")
    asked.forget()
    group.run(1.5)
    _, _, request = asked.of(RequestCode.BROKER_HEARTBEAT)[-1]
    said = request.header(BrokerHeartbeatRequestHeader)
    assert said == BrokerHeartbeatRequestHeader(
        cluster_name="C",
        broker_name=NAME,
        broker_addr="10.0.0.1:10911",
        broker_id=1,
        epoch=1,
        max_offset=master.store.end_offset,
        confirm_offset=confirmed,
        heartbeat_timeout_mills=43_210,
        election_priority=7,
    )
    assert master.store.end_offset > confirmed


def test_a_heartbeat_tells_of_the_logs_epoch_and_not_of_the_roles(asked: Asked) -> None:
    group = led(asked, 2)
    group.send(1, b"m")
    group.run(1)
    group.kill(2)
    asked.forget()
    group.start(2)

    def beats() -> list[BrokerHeartbeatRequestHeader]:
        notes = asked.of(RequestCode.BROKER_HEARTBEAT)
        told = [request.header(BrokerHeartbeatRequestHeader) for _, _, request in notes]
        return [one for one in told if one.broker_id == 2]

    group.run_until(beats)
    # It had no role then.
    assert beats()[0].epoch == 1


@pytest.mark.parametrize(
    ("behind", "check", "earliest", "latest"),
    [(2000, 300, 2.0, 2.4), (5000, 300, 5.0, 5.4), (2000, 30_000, 20.0, 32.0)],
)
def test_who_is_behind_for_too_long_leaves_the_set(
    asked: Asked, behind: int, check: int, earliest: float, latest: float
) -> None:
    group = led(
        asked,
        2,
        broker={
            "check_sync_state_set_period": check,
            "controller_heart_beat_timeout_mills": 60_000,
        },
        ha_max_time_slave_not_catchup=behind,
        ha_housekeeping_interval=60_000,
    )
    group.processes[2].pause()
    group.send(1, b"not copied")
    began = group.clock.seconds()
    group.run_until(lambda: asked.of(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET))
    assert earliest <= group.clock.seconds() - began <= latest
    group.run_until(lambda: group.in_sync() == {1})


def test_the_name_of_the_controllers_is_looked_up_again(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until there is one behind it."""
    addresses: list[str] = []

    def look_up(host: str, *_: Any, **__: Any) -> list[tuple[Any, ...]]:
        assert host == "controllers.example"
        return [(socket.AF_INET, None, 6, "", (each, 0)) for each in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    group = ElectedGroup(
        {
            "controller_addr": "controllers.example:9878",
            "fetch_controller_addr_by_dns_lookup": True,
        }
    )
    group.controllers.leader()
    began = group.clock.seconds()
    group.start(1)
    group.run(10)
    assert group.role(1) is Role.ISOLATED
    addresses += ["10.1.0.0", "10.1.0.1", "10.1.0.2"]
    group.run_until(group.masters, limit=200)
    assert group.clock.seconds() - began == pytest.approx(CONTROLLER_LOOK_UP_SECONDS, abs=10)


def test_id_and_role_of_the_file_mean_nothing(asked: Asked) -> None:
    group = led(asked, 2, broker={"broker_id": 5}, broker_role="SLAVE")
    assert [group.role(number) for number in (1, 2)] == [Role.MASTER, Role.SLAVE]
    members = group.name_server.table.members
    group.run_until(
        lambda: members("C", NAME).broker_addrs == {0: "10.0.0.1:10911", 2: "10.0.0.2:10911"}
    )


@pytest.mark.parametrize(
    ("keys", "identity", "epochs"),
    [
        ({}, f"{ROOT}/brokerIdentity", f"{ROOT}/epochFileCheckpoint"),
        (
            {"store_path_broker_identity": "/other/id", "store_path_epoch_file": "/more/epochs"},
            "/other/id",
            "/more/epochs",
        ),
    ],
)
def test_where_identity_and_epochs_are(
    asked: Asked, keys: dict[str, str], identity: str, epochs: str
) -> None:
    group = led(asked, **keys)
    files = group.processes[1].files
    assert files.read(identity) == b"C#broker-a#1"
    assert files.read(epochs).endswith(b"\n1-0\n")
    assert files.exists(f"{ROOT}/brokerIdentity") == files.exists(f"{ROOT}/epochFileCheckpoint")
    assert files.exists(f"{ROOT}/brokerIdentity") == (not keys)
    group.kill(1)
    group.start(1)
    group.run_until(lambda: group.masters() == [1])
    assert group.broker_id(1) == 1


def test_with_another_brokers_identity_it_does_not_start(asked: Asked) -> None:
    group = led(asked)
    group.start(2)
    group.run_until(lambda: group.broker_id(2) == 2)
    group.kill(2)
    path = f"{ROOT}/brokerIdentity"
    file = group.processes[2].files.open(path, create=True)
    file.truncate(0)
    file.pwrite(b"C#broker-b#2", 0)
    with pytest.raises(ConfigError, match="is that of broker broker-b"):
        group.start(2)


def test_without_the_address_of_a_controller_it_does_not_start() -> None:
    group = ElectedGroup({"controller_addr": ""})
    with pytest.raises(ConfigError, match="enableControllerMode=true without controllerAddr"):
        group.start(1)


def test_never_is_a_period_too(asked: Asked) -> None:
    """As some write it into stock's files."""
    never = 2**63 - 1
    group = led(
        asked,
        2,
        broker={
            "check_sync_state_set_period": never,
            "sync_broker_metadata_period": never,
            "sync_controller_metadata_period": never,
        },
        ha_max_time_slave_not_catchup=never,
        ha_housekeeping_interval=600_000,
    )
    asked.forget()
    group.processes[2].pause()
    group.send(1, b"not copied")
    group.run(60)
    asked_for = {request.code for _, _, request in asked.notes}
    assert asked_for == {RequestCode.BROKER_HEARTBEAT}
    assert group.in_sync() == {1, 2}


def update(group: ElectedGroup, number: int, keys: bytes) -> None:
    """As `mqadmin updateBrokerConfig`."""
    group.brokers[number].ask(RequestCode.UPDATE_BROKER_CONFIG, body=keys)


def test_who_counts_as_in_sync_may_change_while_it_runs(asked: Asked) -> None:
    group = led(
        asked,
        2,
        broker={"controller_heart_beat_timeout_mills": 600_000},
        all_ack_in_sync_state_set=True,
        ha_max_time_slave_not_catchup=300_000,
        ha_housekeeping_interval=600_000,
        slave_timeout=600_000,
    )
    group.processes[2].pause()
    group.send(1, b"held")
    group.run(30)
    assert len(group.in_sync()) == 2 and group.acknowledged == []
    update(group, 1, b"haMaxTimeSlaveNotCatchup=5000")
    group.run_until(lambda: group.acknowledged == [b"held"], limit=10)
    assert group.in_sync() == {1}


def test_where_the_controllers_are_is_no_live_key(asked: Asked) -> None:
    """A stranger's controller made a master its slave."""
    group = led(asked, 2)
    with pytest.raises(RequestError, match="restart it"):
        fired(
            group.brokers[1].ask(
                RequestCode.UPDATE_BROKER_CONFIG, body=b"controllerAddr=10.9.9.9:9878"
            )
        )
    asked.forget()
    group.run(2)
    assert {member for _, member, _ in asked.of(RequestCode.BROKER_HEARTBEAT)} == set(PEERS)
    assert group.role(1) is Role.MASTER
