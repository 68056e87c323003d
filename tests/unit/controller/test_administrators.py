"""Whose orders controllers take, where their administrators are named."""

from __future__ import annotations

import pytest
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from tests.support.sim.controllers import PEERS, Controllers
from tests.unit.controller.conftest import group_of_three

DESIGNATE = {"clusterName": "C", "brokerName": "g", "brokerId": 2, "designateElect": "true"}
END_EPOCH = DESIGNATE | {"brokerId": -1}
CLEAN = {"clusterName": "C", "brokerName": "g", "isCleanLivingBroker": "true"}
STRANGER, ADMIN, LOCAL = "10.66.0.1", "10.8.0.1", "127.0.0.1"
ELECT, CLEANING = RequestCode.CONTROLLER_ELECT_MASTER, RequestCode.CLEAN_BROKER_DATA


@pytest.fixture
def named() -> Controllers:
    controllers = Controllers(admin_addresses="10.8.0.0/16")
    group_of_three(controllers)
    return controllers


def code_of(controllers: Controllers, asker: str, code: int, fields: dict[str, object]) -> int:
    controllers.asker = asker
    return controllers.ask(controllers.leader_id(), code, **fields).code


@pytest.mark.parametrize(
    ("code", "fields"), [(ELECT, DESIGNATE), (ELECT, END_EPOCH), (CLEANING, CLEAN)]
)
def test_a_stranger_is_not_heard(named: Controllers, code: int, fields: dict[str, object]) -> None:
    before = named.leader().machine.state.group("g")
    assert before is not None
    with capturedLogs() as logs:
        assert code_of(named, STRANGER, code, fields) == ResponseCode.NO_PERMISSION
    assert any(f"{STRANGER}:" in formatEvent(event) for event in logs)
    assert named.leader().machine.state.group("g") == before


@pytest.mark.parametrize("asker", [ADMIN, LOCAL, PEERS["n1"].partition(":")[0]])
@pytest.mark.parametrize(("code", "fields"), [(ELECT, DESIGNATE), (CLEANING, CLEAN)])
def test_administrators_and_controllers_are(
    named: Controllers, asker: str, code: int, fields: dict[str, object]
) -> None:
    assert code_of(named, asker, code, fields) == 0


def test_a_master_ends_its_own_epoch_and_no_more(named: Controllers) -> None:
    refused = ResponseCode.NO_PERMISSION
    master = "10.0.0.1"
    assert code_of(named, master, ELECT, DESIGNATE) == refused
    assert code_of(named, master, CLEANING, CLEAN) == refused
    assert code_of(named, master, ELECT, END_EPOCH | {"brokerName": "other"}) == refused
    assert code_of(named, master, ELECT, END_EPOCH) != refused


def test_a_stranger_that_registers_in_a_group_ends_no_epoch(named: Controllers) -> None:
    """Anybody may apply for an id."""
    stranger = "10.66.0.1"
    apply = {"clusterName": "C", "brokerName": "g", "appliedBrokerId": 4, "registerCheckCode": "x"}
    assert code_of(named, stranger, RequestCode.CONTROLLER_APPLY_BROKER_ID, apply) == 0
    register = {"clusterName": "C", "brokerName": "g", "brokerId": 4}
    register["brokerAddress"] = f"{stranger}:10911"
    assert code_of(named, stranger, RequestCode.CONTROLLER_REGISTER_BROKER, register) == 0
    for host in (stranger, "10.0.0.3"):
        assert code_of(named, host, ELECT, END_EPOCH) == ResponseCode.NO_PERMISSION


def test_what_needs_no_administrator_is_taken_as_before(named: Controllers) -> None:
    elect = DESIGNATE | {"designateElect": "false"}
    assert code_of(named, STRANGER, ELECT, elect) == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
    clean = CLEAN | {"isCleanLivingBroker": "false"}
    assert code_of(named, STRANGER, CLEANING, clean) != ResponseCode.NO_PERMISSION


@pytest.mark.parametrize(("code", "fields"), [(ELECT, DESIGNATE), (CLEANING, CLEAN)])
def test_each_order_is_in_the_log_with_who_gave_it(
    controllers: Controllers, code: int, fields: dict[str, object]
) -> None:
    group_of_three(controllers)
    with capturedLogs() as logs:
        assert code_of(controllers, STRANGER, code, fields) == 0, "as in stock without the key"
    name = RequestCode(code).name
    (line,) = [text for event in logs if f"orders {name}" in (text := formatEvent(event))]
    assert f"{STRANGER}:" in line and "'brokerName': 'g'" in line
    assert line.endswith("(was master 1, in sync [1, 2, 3], brokers [1, 2, 3])")


def test_a_stranger_makes_no_unclean_master(controllers: Controllers) -> None:
    update = RequestCode.UPDATE_CONTROLLER_CONFIG
    text = b"enableElectUncleanMaster=true"
    controllers.asker = STRANGER
    assert controllers.ask("n0", update, text).code == ResponseCode.NO_PERMISSION
    assert not controllers.processes["n0"].config.enable_elect_unclean_master
    controllers.asker = LOCAL
    assert controllers.ask("n0", update, text).code == 0


def test_a_controller_that_does_not_lead_says_so_and_judges_nobody(named: Controllers) -> None:
    leader = named.leader_id()
    follower = next(member for member in PEERS if member != leader)
    named.asker = STRANGER
    answer = named.ask(follower, ELECT, **END_EPOCH)
    assert answer.code == ResponseCode.CONTROLLER_NOT_LEADER


@pytest.mark.parametrize(("asker", "members"), [(ADMIN, {2}), ("10.0.0.2", {1, 2, 3})])
def test_only_a_master_itself_says_that_it_never_began_its_epoch(
    named: Controllers, asker: str, members: set[int]
) -> None:
    assert code_of(named, ADMIN, ELECT, DESIGNATE) == 0
    group = named.leader().machine.state.group("g")
    assert group is not None and (group.sync.master, group.sync.members) == (2, {2})
    end = END_EPOCH | {"masterEpoch": group.sync.master_epoch, "neverBegun": "true"}
    code_of(named, asker, ELECT, end)
    group = named.leader().machine.state.group("g")
    assert group is not None and (group.sync.master, group.sync.members) == (None, members)
